#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Beside a merge: a write to the origin that is under way is not lost to a private copy of its
# chunk, writes come in front of a stretch that is being closed, writes that take longer than
# hold_timeout are waited for, and a merge whose record is lost, alone or with a table block, is not
# forgotten.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

need_target delay
plan 26
exact_copies
MIB=1048576
CHUNK=65536

# ---- a copy of home beside a write that goes there ----

HOME_MS=20000	# a write at home
STORE_MS=6000	# a write of data to the store

# slow_writes DEV MS: but neither reads nor flushes.
slow_writes()
{
	echo "0 $(sectors "$1") delay $1 0 0 $1 0 $2 $1 0 0"
}

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
dmcreate home "$(slow_writes "$base" 0)"
dmcreate cow "$(slow_writes "$store" 0)"
both=$((12 * MIB))	# where chunk c0 begins, then c1: behind the first stretch
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/cow P 128 id 1 create copy_ahead 0 copy_around 0
put_letter /dev/mapper/o X $both $CHUNK
snap_up t /dev/mapper/home /dev/mapper/cow P 128 id 2 create
put_letter /dev/mapper/t M 0 $((3 * MIB))
dmremove t
dmremove s
dmremove o
# The merge's own writes are as slow, so that its first stretch stays closed.
dmreload home "$(slow_writes "$base" $HOME_MS)"
dmcreate o "0 $(sectors "$base") cowsnap-merge /dev/mapper/home /dev/mapper/cow P 128 2 id 2"
ok "the merge writes its first stretch" wait_for 60 writes_are_delayed home 1
left=$(left_of o)
isnt "$left" 0 "nothing is merged before the first stretch is written"
dmreload cow "$(slow_writes "$store" $STORE_MS)"
# c1 is on its way to the store, for snapshot 1, which has c0 already.
put_letter /dev/mapper/o P $((both + CHUNK)) 4096 &
wait_for 60 io_is_in_flight o write
sleep 0.1
at_home=$(delayed_writes home)
put_letter /dev/mapper/o Q $both 4096 &
ok "a write goes home beside the merge's" wait_for 60 writes_are_delayed home $((at_home + 1))
# Were c0 copied now, it would be without the Q.
put_letter /dev/mapper/o R $((both + 4096)) $((2 * CHUNK - 4096)) &
is "$(left_of o)" "$left" "nothing is merged while writes go home beside the merge"
wait
dmreload cow "$(slow_writes "$store" 0)"
dmreload home "$(slow_writes "$base" 0)"
ok "a write that went home beside others is there" all_letter /dev/mapper/o Q $both 4096
ok "what was written after a write that went home is there" \
	all_letter /dev/mapper/o R $((both + 4096)) $((CHUNK - 4096))
ok "the merge ends" wait_for 60 merged
ok "merged, the write that went home beside others is there" all_letter "$base" Q $both 4096
dmremove o
dmremove home
dmremove cow

# ---- versions that come in front of the next stretch while that is being closed ----

TABLES=24	# sectors of the store that hold no data
front=$((9 * MIB)) step=$((MIB / 2)) nr=40	# writes, the last of them at 28.5 MiB

# all_at LETTER DEV: the chunks that were written in front.
all_at()
{
	local i

	for ((i = 0; i < nr; i++)); do
		all_letter "$2" "$1" $((front + i * step)) 4096 || return
	done
}

first_is_merged() { [[ $(left_of o) -lt $left ]]; }

# all_are_copied: so many runs are being copied. Copies that are read together are written together.
all_are_copied() { [[ $(key_of o pending) == "$nr" ]] && writes_are_delayed cow 1; }

base=$(mkloop 40M)
store=$(mkloop 32M)
size=$(sectors "$store")
fill_letter "$base" A
dmcreate home "$(slow_writes "$base" 0)"
dmcreate cow "$(slow_writes "$store" 0)"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/cow P 8 id 1 create copy_ahead 0 copy_around 0
put_letter /dev/mapper/o B $MIB $CHUNK
put_letter /dev/mapper/o B $((30 * MIB)) $CHUNK
# From the first private version on, writes do not wait for its record to say so.
put_letter /dev/mapper/s A $((36 * MIB)) 4096
# It lives, so that writes are the merged snapshot's until they are at home.
snap_up t /dev/mapper/home /dev/mapper/cow P 8 id 2 create
dmremove t
dmremove s
dmremove o
dmreload home "$(slow_writes "$base" 600000)"
echo 60000 >"$PARAMETERS/hold_timeout"
at_exit _write "$PARAMETERS/hold_timeout" 5000
dmcreate o "0 $(sectors "$base") cowsnap-merge /dev/mapper/home /dev/mapper/cow P 8 2 id 1"
ok "front: the merge writes its first stretch" wait_for 60 writes_are_delayed home 1
# Data is slow, so that these are all on their way when the second stretch is looked for.
dmreload cow "$(partly_table "$store" $TABLES $((size - TABLES - 8)) \
	delay "$store" $TABLES 0 "$store" $TABLES 600000 "$store" $TABLES 0)"
for ((i = 0; i < nr; i++)); do
	put_letter /dev/mapper/o C $((front + i * step)) 4096 &
done
ok "front: writes are on their way" wait_for 120 all_are_copied
left=$(left_of o)
dmreload home "$(slow_writes "$base" 0)"
ok "front: the first stretch is merged" wait_for 60 first_is_merged
# The second one begins at 30 MiB, since nothing is in front of that yet, and is being closed.
sleep 1
dmreload cow "$(slow_writes "$store" 0)"
wait
ok "front: the merge ends" wait_for 60 merged
ok "front: what was written meanwhile is at home" all_at C "$base"
ok "front: so is what was merged behind it" all_letter "$base" A $((29 * MIB)) $((11 * MIB))
snap_up t /dev/mapper/home /dev/mapper/cow P 8 id 2
ok "front: the other snapshot has what the origin had, in front" \
	all_letter /dev/mapper/t A $((2 * MIB)) $((28 * MIB))
ok "front: and where it was merged" all_letter /dev/mapper/t B $((30 * MIB)) $CHUNK
dmremove t
dmremove o
dmremove home
dmremove cow
echo 5000 >"$PARAMETERS/hold_timeout"

# ---- a stretch cannot be closed within hold_timeout ----

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
dmcreate home "$(slow_writes "$base" 0)"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home "$store" P 8 id 1 create copy_ahead 0 copy_around 0
put_letter /dev/mapper/o B 0 $CHUNK
put_letter /dev/mapper/o B $((8 * MIB)) $CHUNK
dmremove s
dmremove o
echo 50 >"$PARAMETERS/hold_timeout"
dmreload home "$(slow_writes "$base" 3000)"
dmcreate o "0 $(sectors "$base") cowsnap-merge /dev/mapper/home $store P 8 2 id 1"
ok "close: the merge writes its first stretch" wait_for 60 writes_are_delayed home 1
# The last of these are on their way home when the second stretch is to be closed.
for i in 0 1 2; do
	put_letter /dev/mapper/o C $((14 * MIB + i * 4096)) 4096 &
	sleep 0.5
done
wait
ok "close: the merge ends" wait_for 60 merged
like "$(kernel_log)" 'did not end within 50 ms' "close: it had to wait for writes"
ok "close: all of the merge is at home" all_letter "$base" A 0 $((14 * MIB))
dmremove o
dmremove home

# ---- the record of the merge is lost, or the table block that says where records are ----

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create throttle 1
dmreload o "$(origin_table "$base" store "$store")"
dmremove s
for id in 2 3 4 5 6 7 8 9 10; do
	dmsetup message o 0 create "$id"
done
put_letter /dev/mapper/o B 0 $((8 * MIB))
dmremove o
# A stretch takes half a second at least, and the rest after it a hundred times as long.
dmcreate cow "$(delay_table "$store" 500 0)"
dmcreate o "0 $(sectors "$base") cowsnap-merge $base /dev/mapper/cow P 8 2 id 10"
ok "records: a merge is under way" wait_for 60 part_is_merged 16384
dmremove o
dmremove cow
blockdev --flushbufs "$store"
records=$(store_tool find-place "$(loop_file "$store")" 5)
dmcreate cow "$(partly_table "$store" $((records * 8)) 1 error)"
not_ok "records: the merge does not go on while its record cannot be read" \
	dmsetup create o --table "0 $(sectors "$base") cowsnap-merge $base /dev/mapper/cow P 8 2 id 10"
like "$(kernel_log)" 'the record of snapshot 10, which is being merged, is lost: run cowsnap repair' \
	"records: the log says what is lost"
dmremove cow
ok "records: the table block that says where they are is lost" \
	store_tool spoil-block "$(loop_file "$store")" $RECORDS
not_ok "records: the merge does not go on without its record" \
	dmsetup create o --table "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 10"
not_ok "records: the origin, which is half merged, is not shown" \
	dmsetup create o --table "$(origin_table "$base" store "$store")"
dmsetup remove o 2>/dev/null || true
