#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# While an origin is written, its snapshots are sent and received bit for bit, in full and by
# what has changed, and cowsnap diff misses no write that was there before it.

. "$(dirname "$0")/common.sh"

for tool in "$TOOLS/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
	[[ ! -x $tool ]] || break
done
[[ -x $tool ]] || skip_all "cowsnap has not been built"

plan 24

# Random writes of 4 to 64 KiB, until the file that says so has gone.
write_on()
{
	local n

	while [[ -e $TEST_TMP/writing ]]; do
		n=$((RANDOM % 16 + 1))
		put /dev/mapper/o - $((RANDOM % (2048 - 16) * 4096)) $((n * 4096)) \
			$((RANDOM % (2048 - 16) * 4096)) 4096
	done
}

create()
{
	dmsetup message o 0 create "$1"
}

# content ID FILE: of a snapshot, through a device of its own.
content()
{
	snap_up content "$base" "$store" P 8 id "$1" >/dev/null && image /dev/mapper/content "$2" &&
		dmremove content
}

# is_snapshot FILE ID: every byte.
is_snapshot()
{
	content "$2" "$TEST_TMP/content" && cmp "$1" "$TEST_TMP/content"
}

send_to()
{
	local target=$1

	shift
	"$tool" send "$@" | "$tool" receive --state "$TEST_TMP/state" "$target"
}

# missed EXTENTS A B: chunks in which two images differ, and that are in no extent.
missed()
{
	perl "$TESTS_DIR/host/stream.pl" compare 4096 "$2" "$3" <"$1" | cut -d' ' -f1
}

# says REGEX DESC: passes if the last command under test said so.
says()
{
	cp "$TEST_TMP/out" "$TEST_TMP/said"
	ok "$2" grep -qE -- "$1" "$TEST_TMP/said"
}

base=$(mkloop 8M)
store=$(mkloop 24M)
target=$(mkloop 8M)
# What is copied before it is needed is said to differ.
exact_copies
fill "$base" "$TEST_TMP/unused"
snap_up first "$base" "$store" P 8
origin_up o "$base" store "$store"
dmremove first
: >"$TEST_TMP/writing"
write_on &
writer=$!

create 1
sleep 1
create 2
ok "a snapshot is sent while its origin is written" send_to "$TEST_TMP/copy" o@1
ok "the copy is the snapshot" is_snapshot "$TEST_TMP/copy" 1
ok "what has changed since it is sent" send_to "$TEST_TMP/copy" --from o@1 --compress o@2
ok "the copy is the newer snapshot" is_snapshot "$TEST_TMP/copy" 2
not_ok "the device that was made for it has gone" test -e /dev/mapper/o@2
rm "$TEST_TMP/state"
not_ok "changes are not sent to a device of which nothing is known" send_to "$target" --from 1 o@2
says "it is not known what it holds" "changes to an unknown device: why is said"
ok "the snapshot is sent to a device, by the name of its store" send_to "$target" "$store" 2
ok "the device is the snapshot" is_snapshot "$target" 2

# What was written before the question is in the answer, whatever is written meanwhile.
create 3
ok "what has changed until now is listed while it is written" bash -c "$tool diff --extents o@1 >$TEST_TMP/extents"
ok "what differs between two snapshots is listed while the origin is written" bash -c "$tool diff --extents o@1 o@3 >$TEST_TMP/between"
content 1 "$TEST_TMP/content.1"
content 3 "$TEST_TMP/content.3"
is "$(missed "$TEST_TMP/extents" "$TEST_TMP/content.1" "$TEST_TMP/content.3")" 0 \
	"no write before the question is missing"
is "$(missed "$TEST_TMP/between" "$TEST_TMP/content.1" "$TEST_TMP/content.3")" 0 \
	"nothing that differs between the snapshots is missing"
rm "$TEST_TMP/writing"
wait $writer
"$tool" diff --extents o@1 now >"$TEST_TMP/extents"
image /dev/mapper/o "$TEST_TMP/now"
is "$(perl "$TESTS_DIR/host/stream.pl" compare 4096 "$TEST_TMP/content.1" "$TEST_TMP/now" <"$TEST_TMP/extents")" \
	"0 0" "when nothing is written, the answer is exact"

# A target that fails in its middle.
rm "$TEST_TMP/state"
dmcreate bad "$(partly_table "$target" 8192 8 error)"
not_ok "a target that cannot be written stops the stream" send_to /dev/mapper/bad o@3
says "go on with cowsnap send --resume cowsnap1-" "a target that cannot be written: where to go on is said"
swap_table bad "$(linear_table "$target")"
token=$("$tool" receive --state "$TEST_TMP/state" --token /dev/mapper/bad)
ok "a stream stopped by its target goes on with the token" send_to /dev/mapper/bad --resume "$token" o@3
ok "a stream that went on gives the snapshot" cmp /dev/mapper/bad "$TEST_TMP/content.3"

# As LVM has them: two stores of one origin, each with a snapshot of the same number.
second=$(mkloop 24M)
dmcreate other "$(snap_table "$base" "$second" P 8 id 3 create)"
dmcreate three "$(snap_table "$base" "$store" P 8 id 3)"
image /dev/mapper/other "$TEST_TMP/content.other"
put /dev/mapper/o - 0 65536
for which in store second; do
	"$tool" send "${!which}" 3 | "$tool" receive "$TEST_TMP/of-$which"
done
ok "two stores, one number: the first store's snapshot is sent" \
	cmp "$TEST_TMP/of-store" "$TEST_TMP/content.3"
ok "two stores, one number: the second store's snapshot is sent" cmp "$TEST_TMP/of-second" "$TEST_TMP/content.other"
dmremove three
dmsetup message o 0 set throttle 1
dmreload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 3"
not_ok "what has changed until now is not known during a merge from another store" \
	"$tool" diff "$second" 3 now
says "snapshot 3 is being merged into the origin; wait for the end of that" "diff during a merge from another store: why is said"
dmsetup message o 0 set throttle 100
wait_for 120 merged
dmreload o "$(origin_table "$base" store "$store")"
dmremove other

dm message o 0 delete 1
not_ok "a snapshot that was deleted is not compared with" "$tool" diff o@1
says "the store has no snapshot 1" "a snapshot that the store does not have: why is said"
