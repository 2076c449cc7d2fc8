#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# While a tracker is made or read something else happens: its snapshot becomes invalid, the origin
# is written, the store is read-only. It never knows of less than has changed.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"

need_target delay

BAD_KIB=20000

# ---- a snapshot that becomes invalid meanwhile ----

# Each write of metadata takes long, and one chunk of the origin cannot be read, so not copied.
late()
{
	tracked_origin 24 32
	dmremove o
	local below=$base good=$store

	dmcreate b "$(linear_table "$below")"
	dmcreate st "$(linear_table "$good")"
	base=/dev/mapper/b store=/dev/mapper/st
	origin_up o "$base" store "$store"
	dm message o 0 create 1
	write_at 64 4096
	swap_table b "$(partly_table "$below" $((BAD_KIB * 2)) 8 error)"
	swap_table st "$(delay_table "$good" 0 500)"
	dmsetup message o 0 track 1 2>"$TEST_TMP/said" &
	wait_for 60 writes_are_delayed st 1
	write_at $BAD_KIB 4096 2>/dev/null
	not_ok "a snapshot that has become invalid is not given up" wait $!
	is "$(state_of 1)" invalid "a snapshot whose copy failed is invalid, not a tracker"
	swap_table st "$(linear_table "$good")"
	swap_table b "$(linear_table "$below")"
	again
	is "$(state_of 1)" invalid "the snapshot is invalid after the store was opened again"
	dmremove o
	dmremove st
	dmremove b
}
late

# ---- a store that is being prepared meanwhile ----

# The first write to a snapshot marks it, and the store stands still for a second.
prepared()
{
	dmsetup suspend --noflush st
	put /dev/mapper/s - 65536 4096 &
	sleep 0.5
	dmsetup message o 0 track 1 2>"$TEST_TMP/said" &
	sleep 0.5
	dmsetup resume st
	ok "a snapshot is given up while a store marks another" wait $!
	is "$(state_of 1)" tracker "a snapshot given up while another is marked is a tracker"
	wait
}

# Its room is looked for while another snapshot is marked: each write of metadata takes long.
room_meanwhile()
{
	dm message o 0 create 3
	dm message o 0 create 4
	dmcreate s4 "$(snap_table "$base" "$store" P 8 id 4)"
	swap_table st "$(delay_table "$good" 0 500)"
	dmsetup message o 0 track 3 2>"$TEST_TMP/said" &
	wait_for 60 writes_are_delayed st 1
	put /dev/mapper/s4 - 65536 4096
	ok "room is found once another snapshot is marked" wait $!
	swap_table st "$(linear_table "$good")"
	dmremove s4
}

tracked_origin 24 32
dmremove o
good=$store
dmcreate st "$(linear_table "$store")"
store=/dev/mapper/st
origin_up o "$base" store "$store"
snapshot_as 1 one
dm message o 0 create 2
dmcreate s "$(snap_table "$base" "$store" P 8 id 2)"
prepared
room_meanwhile
write_at 100 8192
dmremove s
again
is "$(missed one o@1)" 0 "a tracker made meanwhile misses nothing"
dmremove o
dmremove st

# ---- a store that can only be read ----

# Marks are left by a crash, and cannot be taken away.
tracked_origin 24 32
snapshot_as 1 one
dm message o 0 create 2
dm message o 0 track 1
write_at 9000 4096
image "$base" "$TEST_TMP/base.crash"
image "$store" "$TEST_TMP/store.crash"
dmremove o
dd if="$TEST_TMP/base.crash" of="$base" bs=1M oflag=direct conv=notrunc status=none
dd if="$TEST_TMP/store.crash" of="$store" bs=1M oflag=direct conv=notrunc status=none
blockdev --setro "$store"
origin_up o "$base"
dmcreate s "$(snap_table "$base" "$store" P 8 id 2)" -r
not_ok "bits of a store that is read-only cannot be made exact" dmsetup message s 0 commit
is "$(missed one o@1)" 0 "a read-only store knows what was written just before a crash"
dmremove s
dmremove o
blockdev --setrw "$store"
origin_up o "$base" store "$store"
is "$(missed one o@1)" 0 "the store knows it when it can be written again"
dmremove o

# ---- an origin of more than 2^32 chunks ----

# Its bits take 540 MiB of memory, and as much of the store.
wide()
{
	local bytes=$(((1 << 32) * 4096 + 40000 * 1024)) good

	dmcreate zeroes "0 $((((1 << 32) + 65536) * 8)) zero"
	base=/dev/mapper/zeroes
	good=$(mkloop 1G --sector 4096)
	dmcreate st "$(linear_table "$good")"
	store=/dev/mapper/st
	snap_up first "$base" "$store" P 8
	origin_up o "$base" store "$store"
	dmremove first
	dm message o 0 create 1
	ok "a snapshot of more than 2^32 chunks is given up" dmsetup message o 0 track 1
	put_letter /dev/mapper/o A $bytes 4096
	# As after a crash: nothing is written any more, and the module knows nothing.
	swap_table st "$(no_writes_table "$good")"
	dmremove o
	swap_table st "$(linear_table "$good")"
	reload_module
	origin_up o "$base" store "$store"
	is "$(state_of 1)" tracker "a tracker of more than 2^32 chunks is one after a crash"
	"$tool" diff --extents o@1 >"$TEST_TMP/extents"
	# shellcheck disable=SC2016  # awk's
	ok "a tracker of more than 2^32 chunks knows a write just before a crash" awk -v at=$bytes \
		'$1 <= at && at < $1 + $2 { found = 1 } END { exit !found }' "$TEST_TMP/extents"
}
if (($(scaled 100) < 100)); then
	skip "trackers of more than 2^32 chunks" "it takes minutes"
else
	wide
fi
done_testing
