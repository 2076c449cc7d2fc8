#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# After a crash a tracker knows of more than has changed, never of less; when it cannot be written
# it says that it is lost, and nothing else suffers from that.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"

# crash: what the disks have at this moment is what they have later.
save()
{
	image "$base" "$TEST_TMP/base.crash" && image "$store" "$TEST_TMP/store.crash"
}

crash()
{
	dmremove o
	dd if="$TEST_TMP/base.crash" of="$base" bs=1M oflag=direct conv=notrunc status=none
	dd if="$TEST_TMP/store.crash" of="$store" bs=1M oflag=direct conv=notrunc status=none
	origin_up o "$base" store "$store"
}

more()
{
	missed_and_more "$@" | cut -d ' ' -f 2
}

# The store can be made to fail.
tracked_origin 24 32
dmremove o
good=$store
dmcreate st "$(linear_table "$good")"
store=/dev/mapper/st
narrow=$base
origin_up o "$base" store "$store"

# ---- crashes ----

snapshot_as 1 one
write_at 64 4096
dm message o 0 track 1
save
crash
is "$(state_of 1)" tracker "the tracker is there after a crash"
is "$(missed_and_more one o@1)" "0 0" "a crash after giving up costs nothing"
write_at 9000 4096
save
crash
is "$(missed one o@1)" 0 "what was written just before a crash is known"
isnt "$(more one o@1)" 0 "the whole region counts as changed after a crash"
snapshot_as 2 two
dm message o 0 track 2
write_at 9000 4096 20000 65536
sleep 10
write_at 9000 4096
save
crash
is "$(missed_and_more two o@2)" "0 0" "the chunks of a region that was left alone are known after a crash"
write_at 9004 4096 9008 8192
dm message o 0 commit
write_at 9008 4096
save
crash
is "$(missed_and_more two o@2)" "0 0" "the chunks are known after a commit and a crash"
write_at 9100 4096 16384 4096 8188 8192
save
crash
is "$(missed two o@2)" 0 "the newer of two trackers misses nothing after a crash"
is "$(missed one o@1)" 0 "the older of two trackers misses nothing after a crash"

# A write is under way in each moment of giving up.
snapshot_as 3 three
: >"$TEST_TMP/writing"
while [[ -e $TEST_TMP/writing ]]; do scatter 5; sleep 0.05; done &
writer=$!
for id in 4 5 6; do
	dm message o 0 create $id
	sleep 0.3
	dm message o 0 track $id
done
ok "a snapshot is given up while its origin is written" dmsetup message o 0 track 3
sleep 0.5
save
rm "$TEST_TMP/writing"
wait $writer
is "$(missed three o@3)" 0 "no write is missing from a tracker made meanwhile"
crash
is "$(missed three o@3)" 0 "no write is missing after a crash while trackers are made"

# In chunks of 64 KiB a block has all regions of this origin: each mark that is made is written
# with those that are there.
dmremove o
tracked_origin 24 32 128
snapshot_as 1 one
dm message o 0 track 1
write_at 9100 4096 16384 4096 8188 8192 9200 4096
save
crash
is "$(missed one o@1)" 0 "regions that share a block are marked beside each other"
dmremove o
base=$narrow store=/dev/mapper/st chunk=8
origin_up o "$base" store "$store"

# ---- a store that cannot be written ----

for id in 1 2 3 4 5 6; do
	dm message o 0 delete $id
done
dm message o 0 create 7
dm message o 0 create 8
dm message o 0 track 8
dm message o 0 track 7
dm message o 0 commit
swap_table st "$(no_writes_table "$good")"
ok "the origin is written though the store takes no writes" write_at 100 4096
both_are_lost()
{
	[[ $(state_of 7) == invalid && $(state_of 8) == invalid ]]
}
ok "trackers are lost with a store that takes no writes" wait_for 60 both_are_lost
not_ok "diff refuses a lost tracker" "$tool" diff o@7
swap_table st "$(linear_table "$good")"
again
ok "lost trackers are invalid after the store was opened again" both_are_lost
not_ok "diff refuses a lost tracker after the store was opened again" "$tool" diff o@8
like "$("$tool" diff o@7 2>&1)" "full copy" "diff of a lost tracker says what to do"

# ---- a store that is away, and one that is full ----

dm message o 0 create 9
dm message o 0 track 9
dmremove o
origin_up o "$base"
write_at 100 4096
dmremove o
origin_up o "$base" store "$store"
is "$(state_of 9)" invalid "written without the store, the origin has no tracker"
dmremove o

tracked_origin 8 3 1
dm message o 0 create 1
dm message o 0 track 1
write_at 0 4096
dm message o 0 create 2
# As much as there is room for, but a few chunks.
total=$(sectors "$store")
for ((n = 0; $(used) + 192 < total; n++)); do
	write_at $((n * 64)) 65536
done
for ((n *= 64 * 1024; $(used) + 4 < total; n += 512)); do
	put /dev/mapper/o - $n 512
done
not_ok "in a full store no snapshot is given up" dmsetup message o 0 track 2
is "$(state_of 2)" live "a snapshot that was not given up is live"
is "$(state_of 1)" tracker "a tracker stays in a full store"
ok "an origin with a full store and a tracker is written" write_at 0 16384

differ()
{
	"$tool" diff "$1" | sed 's/ of .*//'
}
is "$(differ o@1)" "$(differ o@2)" "tracker and snapshot of a full store know the same"
dm message o 0 delete 2
is_free()
{
	(($(used) < total / 2))
}
ok "a deleted snapshot makes room beside a tracker" wait_for 60 is_free
dmremove o
ok "the store is clean" "$tool" check -q "$store"
done_testing
