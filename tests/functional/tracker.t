#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot that is given up to a tracker frees its room, and what has changed since stays known
# to the chunk, also after the store was closed and opened.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"

plan 30

incompat()
{
	dd if="$store" bs=4096 count=1 iflag=direct status=none | od -An -tu8 -j 40 -N 8 | tr -d ' '
}

tracked_origin 20 16
is "$(incompat)" 0 "a store without trackers can be used by older versions"
snapshot_as 1 one
scatter 40
before=$(used)
dmcreate dev "0 $(sectors "$base") cowsnap $base $store P 8 2 id 1"
not_ok "a snapshot with a device is not given up" dmsetup message o 0 track 1
dmremove dev
not_ok "a snapshot that does not exist is not given up" dmsetup message o 0 track 7
ok "a snapshot is given up" dmsetup message o 0 track 1
is "$(state_of 1)" tracker "a snapshot that was given up is a tracker"
is "$(incompat)" 4 "older versions keep off the store now"
status_is()
{
	[[ $(key_of o trackers) == "$1" && $(key_of o snapshots) == "$2" ]]
}
ok "the status counts the tracker" status_is 1 0
is_free()
{
	(($(used) < before))
}
ok "the room of a snapshot that was given up is free" wait_for 60 is_free
is "$(missed_and_more one o@1)" "0 0" "a tracker knows to the chunk what changed before it was made"
scatter 40
is "$(missed_and_more one o@1)" "0 0" "a tracker knows to the chunk what has changed since"
not_ok "a tracker cannot be read" dmcreate dev "0 $(sectors "$base") cowsnap $base $store P 8 2 id 1"
not_ok "a tracker cannot be given up again" dmsetup message o 0 track 1

again
is "$(state_of 1)" tracker "a tracker is one after the store was opened again"
is "$(missed_and_more one o@1)" "0 0" "a tracker knows as much after the store was opened again"
scatter 20
is "$(missed_and_more one o@1)" "0 0" "a tracker goes on after the store was opened again"

snapshot_as 2 two
scatter 20
is "$(missed one o@1)" 0 "a tracker goes on beside a snapshot"
ok "a second one is given up, by the command" "$tool" delete --track o@2
is "$(state_of 2)" tracker "the second snapshot is a tracker"
scatter 20
is "$(missed_and_more one o@1)" "0 0" "the first knows what has changed since the first"
is "$(missed_and_more two o@2)" "0 0" "the second what has changed since the second"
snapshot_as 3 three
scatter 10
"$tool" diff --extents o@2 o@3 >"$TEST_TMP/extents"
is "$(perl "$TESTS_DIR/host/stream.pl" compare 4096 "$TEST_TMP/two" "$TEST_TMP/three" \
	<"$TEST_TMP/extents" | cut -d ' ' -f 1)" 0 "between a tracker and a snapshot nothing is missing"
# With a tracker as its base a stream goes on as with a snapshot.
"$tool" send --from o@2 o@3 >"$TEST_TMP/stream"
cp "$TEST_TMP/two" "$TEST_TMP/copy"
head -c 100000 "$TEST_TMP/stream" | "$tool" receive -f "$TEST_TMP/copy" 2>/dev/null
token=$("$tool" receive --token "$TEST_TMP/copy")
"$tool" send --resume "$token" o@3 2>"$TEST_TMP/said" | "$tool" receive "$TEST_TMP/copy"
ok "a stream of what has changed since a tracker goes on" cmp "$TEST_TMP/copy" "$TEST_TMP/three"
not_ok "a tracker has nothing to be sent" bash -c "$tool send o@2 >/dev/null"
ok "a tracker is deleted" "$tool" delete o@1
is "$(state_of 1)" "" "a deleted tracker has gone"
not_ok "nothing is known of a deleted tracker" "$tool" diff o@1

dmremove o
ok "a store with trackers is clean" "$tool" check -q "$store"
is "$(missed_and_more two "$store" 2)" "0 0" "a tracker is read from a store that is not in use"
"$tool" dump "$store" >"$TEST_TMP/dump"
ok "a store with a tracker is restored from a dump" "$tool" restore -f -i "$TEST_TMP/dump" "$store"
origin_up o "$base" store "$store"
is "$(state_of 2)" invalid "a restored tracker is invalid, since the dump has no blocks of it"
