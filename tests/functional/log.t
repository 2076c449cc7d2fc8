#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store with a log: copies are committed by records; what a crash leaves of them is opened; zones
# are left for others, given back by a store that is full, and named no more by one that is
# closed; snapshots are deleted, and places used again, while the log speaks of them.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/log.sh"

exact_copies
plan 66

# up SECTOR CHUNK STORE [FEATURE...]: snapshot s with a log, of an origin of 8 MiB.
up()
{
	base=$(mkloop 8M --sector "$1")
	store=$(mkloop "$3" --sector "$1")
	cut_base=$(mkloop 8M --sector "$1")
	cut_store=$(mkloop "$3" --sector "$1")
	chunk=$2
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P "$2" id 1 create log on "${@:4}"
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

# ---- its life, with all sizes ----

life()
{
	local what="blocks of $1, chunks of $2" commits

	up "$1" "$2" 32M
	ok "$what: a store with a log names two zones" wait_for 10 has_zones "$store" 2
	is "$(used_sectors s)" "$(status s | cut -d' ' -f2)" "$what: zones are no room that is used"
	commits=$(key_of s commits)
	put_scattered /dev/mapper/o "$TEST_TMP/now" 0 40
	isnt "$(key_of s records)" 0 "$what: copies are committed by records"
	is "$(key_of s commits)" "$commits" "$what: and not by the tables"
	ok "$what: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
	cut_off crash
	isnt "$(log_tool records "$TEST_TMP/crash.store")" "" "$what: the records are in the zones"
	like "$(checked "$TEST_TMP/crash.store")" 'clean, 1 snapshots' "$what: cowsnap check knows them"
	ok "$what: after a crash the store is opened" opened crash
	ok "$what: after a crash the snapshot is as it was" same /dev/mapper/y "$TEST_TMP/old"
	ok "$what: after a crash the origin has what was written" same /dev/mapper/x "$TEST_TMP/now"
	closed
	dmremove s
	dmremove o
	is "$(zones "$store")" "" "$what: a store that was closed names no zone"
	ok "$what: it is opened again" snap_up s "$base" /dev/mapper/cow P "$2" id 1
	origin_up o "$base"
	is "$(key_of s log)" on "$what: it still has its log"
	ok "$what: opened again, the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
	down
}

life 512 8
life 4096 32

# ---- one zone after the other ----

up 512 8 24M
wait_for 10 has_zones "$store" 2
before=$(zones "$store")
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 700
ok "zones that are full are left" wait_for 10 at_least checkpoints 2
isnt "$(zones "$store")" "$before" "others are named in their places"
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
put_scattered /dev/mapper/o "$TEST_TMP/now" 700 760
cut_off switched
ok "after a crash the store is opened" opened switched
ok "after a crash the snapshot is as it was" same /dev/mapper/y "$TEST_TMP/old"
closed

# A version that has become private since is not made a copy again.
put /dev/mapper/s "$TEST_TMP/old" $((37 * 4096)) 512 $((2 * 37 * 4096)) 4096
put_scattered /dev/mapper/o "$TEST_TMP/now" 760 780
put /dev/mapper/s "$TEST_TMP/old" $((770 * 37 % 2048 * 4096)) 4096
cut_off private
ok "with private versions: the store is opened" opened private
ok "a copy of the log that became private stays so" same /dev/mapper/y "$TEST_TMP/old"
closed
# The map may be right while the tables are written wrong: that shows the next time.
ok "the store is opened once more" origin_up x "$cut_base" store "$cut_store"
snap_up y "$cut_base" "$cut_store" P "$chunk" id 1
ok "it stays so in the tables" same /dev/mapper/y "$TEST_TMP/old"
closed

ok "the log is turned off" dm message s 0 set log off
ok "then its zones are left" wait_for 10 has_zones "$store" 0
commits=$(key_of s commits)
put_scattered /dev/mapper/o "$TEST_TMP/now" 780 800
isnt "$(key_of s commits)" "$commits" "without it copies go by the tables"
cut_off off
ok "and on again" dm message s 0 set log on
ok "then zones are named" wait_for 10 has_zones "$store" 2
commits=$(key_of s commits)
put_scattered /dev/mapper/o "$TEST_TMP/now" 800 805
is "$(key_of s commits)" "$commits" "and copies go there"
cut_off newer
tool dump "$TEST_TMP/off.store" >"$TEST_TMP/dump"
dd if=/dev/zero of="$TEST_TMP/newer.store" bs=512 count=2 conv=notrunc status=none
like "$(tool restore -i "$TEST_TMP/dump" "$TEST_TMP/newer.store" 2>&1)" \
	'the store is newer than the dump' \
	"without superblocks, restore sees that the store is newer than a dump"
ok "the snapshot is as it was all the time" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- deleted and used again ----

up 512 8 24M
dmreload o "$(origin_table "$base" store /dev/mapper/cow)"
wait_for 10 has_zones "$store" 2
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 60
dmremove s
dm message o 0 create 2
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 60
ok "a snapshot is deleted whose copies are in the log" dm message o 0 delete 1
snap_up s "$base" /dev/mapper/cow P 8 id 2
ok "its chunks are freed" wait_for 10 at_least freed 60
put_scattered /dev/mapper/o "$TEST_TMP/now" 60 200
ok "the other one is as it was" same /dev/mapper/s "$TEST_TMP/old2"
cut_off deleted
after deleted
ok "after a crash the store is opened" origin_up x "$cut_base" store "$cut_store"
ok "and the snapshot that is left" snap_up y "$cut_base" "$cut_store" P 8 id 2
ok "it is as it was" same /dev/mapper/y "$TEST_TMP/old2"
not_ok "the deleted one is not there" snap_up z "$cut_base" "$cut_store" P 8 id 1
closed
down

# ---- zones where dead versions were ----

up 512 8 4M
dmreload o "$(origin_table "$base" store /dev/mapper/cow)"
wait_for 10 has_zones "$store" 2
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 300
dmremove s
dm message o 0 create 2
dm message o 0 delete 1
snap_up s "$base" /dev/mapper/cow P 8 id 2
ok "all that a snapshot had is freed" wait_for 10 at_least freed 300
cp "$TEST_TMP/now" "$TEST_TMP/old"
# One after the other, so that zones go round.
for ((n = 300; n < 700; n += 20)); do
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$n" $((n + 20))
	wait_for 2 has_zones "$store" 2
done
ok "zones have been left" at_least checkpoints 12
cut_off again
after again
origin_up x "$cut_base" store "$cut_store"
ok "after a crash the snapshot is opened" snap_up y "$cut_base" "$cut_store" P 8 id 2
ok "dead slots of tables do not stand against records" same /dev/mapper/y "$TEST_TMP/old"
closed
down

# ---- a full store ----

# 4 MiB are four tables of one chunk each, and 1020 chunks.
up 512 8 4M
wait_for 10 has_zones "$store" 2
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 1020
is "$(used_sectors s)" 8192 "a store with a log holds as much as one without"
ok "its zones have been given back" has_zones "$store" 0
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
put_scattered /dev/mapper/o "$TEST_TMP/now" 1020 1021
is "$(status s)" Invalid "one more, and it is full"
ok "the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
down

# put_long MIB KIB: one write, there.
put_long()
{
	head -c "$(($2 << 10))" /dev/urandom >"$TEST_TMP/piece"
	dd if="$TEST_TMP/piece" of=/dev/mapper/o bs="$2K" seek="$(($1 << 20))" \
		oflag=direct,seek_bytes status=none
	dd if="$TEST_TMP/piece" of="$TEST_TMP/now" bs="$2K" seek="$(($1 << 20))" \
		oflag=seek_bytes conv=notrunc status=none
}

# Long copies go by the tables, so that zones have nothing and keep back all they have.
up 512 8 4M
wait_for 10 has_zones "$store" 2
for mib in 0 1 2 3 4 5 6; do
	put_long "$mib" 512
done
ok "nothing has gone to the zones" has_zones "$store" 2
put_long 7 496
is "$(used_sectors s)" 8192 "room that zones keep back is given before a store is full"
ok "and the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- what is refused ----

expect_log 'log on is for persistent stores'
echo 1 >"$PARAMETERS/log"
base=$(mkloop 8M)
store=$(mkloop 8M)
origin_up o "$base"
not_ok "a transient store has no log" snap_up s "$base" "$store" N 8 log on
snap_up s "$base" "$store" P 8
is "$(key_of s log)" on "a new store begins with the module's parameter"
dmremove s
dmremove o
