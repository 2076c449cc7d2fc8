#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The end of a snapshot costs the others nothing: its places are given to others only when
# none of its own writes and no read uses them, the oldest is the one that is dropped whatever was
# deleted and reopened before, and a full store waits for all deletions that are under way.

. "$(dirname "$0")/common.sh"

need perl fio
need_target delay zero
MIB=1048576
KIB=1024

exact_copies
plan 33

down()
{
	local name

	for name; do
		dmremove "$name"
	done
}

own_write_is_under_way()
{
	[[ $(key_of s1 pending) = 1 ]]
}

first_is_dropped()
{
	kernel_log | grep -q 'snapshot 1 of .* is dropped'
}

# ---- a write of a dropped snapshot that is still under way ----

base=$(mkloop 4M)
store=$(mkloop 2M)
fill "$base" "$TEST_TMP/now"
dmcreate slow "$(delay_table "$store" 0 0)"
origin_up o "$base"
snap_up s1 "$base" /dev/mapper/slow P 8 id 1 create on_full drop_oldest
put /dev/mapper/o "$TEST_TMP/now" 0 $MIB
cp "$TEST_TMP/now" "$TEST_TMP/old2"
snap_up s2 "$base" /dev/mapper/slow P 8 id 2 create
put /dev/mapper/o "$TEST_TMP/now" $MIB $((960 * KIB))
# Its record says that it is written to.
put_letter /dev/mapper/s1 P $((3 * MIB)) 4096
# Only the first place of data, so that what is read to make room comes at once.
dmreload slow "$(partly_table "$store" 8 8 delay "$store" 8 120000 "$store" 8 0)"
# Part of a copied chunk: what was copied is read and verified first.
put_letter /dev/mapper/s1 P 0 512 >/dev/null 2>&1 &
writer=$!
wait_for 60 own_write_is_under_way
put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB &
origin_writer=$!
wait_for 60 first_is_dropped
sleep 0.5
is "$(key_of s2 freed)" 0 \
	"places: none is given back as long as the dropped snapshot's write uses one"
not_ok "places: that write is still under way" has_ended "$writer"
dmreload slow "$(delay_table "$store" 0 0)"
ok "places: a write that needs room succeeds" wait "$origin_writer"
wait "$writer"
ok "places: the oldest is dropped for it" first_is_dropped
ok "places: the other snapshot is right" same /dev/mapper/s2 "$TEST_TMP/old2"
down s1 s2 o
origin_up o "$base" store /dev/mapper/slow
snap_up s2 "$base" /dev/mapper/slow P 8 id 2
ok "places: the other snapshot is right when the store is opened again" \
	same /dev/mapper/s2 "$TEST_TMP/old2"
down s2 o slow

# ---- a read of what only a deleted snapshot needs by now ----

LARGE=256		# sectors: parts of such chunks are read without their checksum
LARGE_BYTES=$((LARGE * 512))

total() { status s2 | sed 's,^[0-9]*/\([0-9]*\) .*,\1,'; }

store_is_used_up() { [[ $(used_sectors s2) = $(total) ]]; }

base=$(mkloop 4M)
store=$(mkloop 2M)
fill_letter "$base" Z
put_letter "$base" A 0 $LARGE_BYTES
dmcreate slow "$(delay_table "$store" 0 0)"
origin_up o "$base"
snap_up s1 "$base" /dev/mapper/slow P $LARGE id 1 create copy_ahead 0 copy_around 0
snap_up s2 "$base" /dev/mapper/slow P $LARGE id 2 create
dmreload o "$(origin_table "$base" store /dev/mapper/slow)"
put_letter /dev/mapper/o B 0 $LARGE_BYTES
dmreload slow "$(delay_table "$store" 120000 0)"
get /dev/mapper/s2 0 4096 >"$TEST_TMP/read" &
reader=$!
ok "read: it is on its way to the store" wait_for 60 reads_are_delayed slow 1
put_letter /dev/mapper/s2 M 0 $LARGE_BYTES
dmremove s1
dmsetup message o 0 delete 1
# One more than fits without the place that is read.
for ((i = 1, free = ($(total) - $(used_sectors s2)) / LARGE; i <= free + 1; i++)); do
	put_letter /dev/mapper/o C $((i * LARGE_BYTES)) 4096 || exit
done &
writer=$!
ok "read: all other places are given out" wait_for 120 store_is_used_up
not_ok "read: its place is not" wait_for 5 has_ended "$writer"
dmreload slow "$(delay_table "$store" 0 0)"
ok "read: it succeeds" wait "$reader"
is "$(tr -d AM <"$TEST_TMP/read" | wc -c)" 0 "read: it has what the snapshot had"
ok "read: then the place is given to others" wait "$writer"
ok "read: the other snapshot is right" all_letter /dev/mapper/s2 Z $LARGE_BYTES $((3 * MIB))
down s2 o slow

# ---- which one is the oldest ----

reopen()
{
	dmremove o && origin_up o "$base" store "$store"
}

# Those dropped since the first part.
dropped()
{
	kernel_log | sed -n 's/.*: snapshot \([0-9]*\) of .* is dropped.*/\1/p' | tail -n +2 |
		tr '\n' ' '
}

# Nearly all that is free in one write, then chunk by chunk.
drop_two()
{
	local i room

	room=$(($(status s | sed 's,^\([0-9]*\)/\([0-9]*\) .*,(\2 - \1) / 8,') - 8))
	put /dev/mapper/o "$TEST_TMP/now" $MIB $((room * 4096)) || return
	for ((i = room; i < room + 12; i++)); do
		[[ ! $(dropped) =~ ^[0-9]\ [0-9]\ $ ]] || return 0
		put /dev/mapper/o "$TEST_TMP/now" $((MIB + i * 4096)) 4096 || return
	done
	return 1
}

# 1 2 3; without 1; 4, whose record is where that of 1 was. Each keeps a chunk of its own.
base=$(mkloop 4M)
store=$(mkloop 2M)
fill "$base" "$TEST_TMP/now"
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create
dmreload o "$(origin_table "$base" store "$store")"
dmremove s
put /dev/mapper/o "$TEST_TMP/now" 0 4096
dmsetup message o 0 create 2
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put /dev/mapper/o "$TEST_TMP/now" 8192 4096
dmsetup message o 0 create 3
put /dev/mapper/o "$TEST_TMP/now" 16384 4096
cp "$TEST_TMP/now" "$TEST_TMP/old4"
dmsetup message o 0 delete 1
dmsetup message o 0 create 4
put /dev/mapper/o "$TEST_TMP/now" 24576 4096
reopen
dmsetup message o 0 set on_full drop_oldest
snap_up s "$base" "$store" P 8 id 4
ok "age: the store is filled until two are dropped" drop_two
is "$(dropped)" "2 3 " "age: those made first are dropped first"
like "$(status s)" '^[0-9]+/' "age: the newest is not dropped"
ok "age: the newest is right" same /dev/mapper/s "$TEST_TMP/old4"
down s o

# Three at a time, made and deleted in turn, and reopened after each twenty.
rotate()
{
	local i

	for ((i = 1; i <= rotations; i += 20)); do
		perl "$TESTS_DIR/functional/origin.pl" rotate "$TEST_TMP" "$i" \
			$((i + 19 < rotations ? i + 19 : rotations)) &&
			reopen >/dev/null || return
	done
}

all_three()
{
	local i

	for ((i = rotations - 2; i <= rotations; i++)); do
		dmsetup create look --table "$(snap_table "$base" "$store" P 8 id "$i")" || return
		same /dev/mapper/look "$TEST_TMP/of$((i % 3))" || return
		dmsetup remove --retry look
	done
}

rotations=$(scaled 100)
((rotations >= 7)) || rotations=7
base=$(mkloop 4M)
store=$(mkloop 2M)
fill "$base" "$TEST_TMP/now"
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 0 create
dmreload o "$(origin_table "$base" store "$store")"
dmremove s
dmsetup message o 0 delete 0
ok "rotation: $rotations snapshots, three at a time" rotate
reopen
ok "rotation: the last three are right" all_three
is "$(key_of o snapshots)" 3 "rotation: there are no more than three snapshots"
dmsetup message o 0 set on_full drop_oldest
put /dev/mapper/o "$TEST_TMP/now" 0 $MIB $MIB $MIB $((2 * MIB)) $((MIB / 4))
like "$(kernel_log | sed -n 's/.*: snapshot \([0-9]*\) of .* is dropped.*/\1/p' | grep -A1 -x $((rotations - 2)) | tr '\n' ' ')" \
	"^$((rotations - 2)) ($((rotations - 1)) )?" "rotation: the oldest is dropped first"
dmremove o

# ---- deletions in a row, beside a writer that needs the room ----

# delete_in_a_row LAST: messages "delete 1" to "delete LAST" with no pause, and at once a write
# by a process that is there already. (Between two of them the store is full for good if what
# the first left is reclaimed before the second comes.)
delete_in_a_row()
{
	perl "$TESTS_DIR/functional/origin.pl" delete-all-and-write "$1"
}

fill_all()
{
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=64 \
		--filename=/dev/mapper/o --allow_file_create=0 --output="$TEST_TMP/fio.log" ||
		{ cat "$TEST_TMP/fio.log" && false; }
}

# in_a_row POLICY LAST: snapshots 1 to LAST are alike, so that what they keep is free when
# all are gone; two more are to stay.
in_a_row()
{
	local words="$1, $2 deletions" i

	# Beside the tables the records of more than eight snapshots take a chunk.
	store=$(mkloop $(((CHUNKS + tables + 1) * 4096)))
	origin_up o "$base"
	snap_up k "$base" "$store" P 8 id 1 create on_full "$1"
	dmreload o "$(origin_table "$base" store "$store")"
	dmremove k
	for ((i = 2; i <= $2; i++)); do
		dmsetup message o 0 create "$i"
	done
	ok "$words: a store is filled" fill_all
	snap_up k "$base" "$store" P 8 id 100 create
	snap_up l "$base" "$store" P 8 id 101 create
	like "$(status k)" '^([0-9]+)/\1 ' "$words: the store is full to the last chunk"
	ok "$words: the origin is written after the last deletion" delete_in_a_row "$2"
	like "$(status k)" '^[0-9]+/' "$words: the first of two snapshots left is valid"
	like "$(status l)" '^[0-9]+/' "$words: the second of two snapshots left is valid"
	is "$(key_of o snapshots)" 2 "$words: no other snapshot is left"
	down k l o
}

CHUNKS=$(scaled 32768)
# 34 slots a block of 512 bytes, 8 blocks a chunk; the superblocks have two blocks.
tables=$((((CHUNKS + 33) / 34 + 2 + 7) / 8))
dmcreate zeroes "0 $((CHUNKS * 8)) zero"
base=/dev/mapper/zeroes
in_a_row invalidate 10
in_a_row drop_oldest 10
