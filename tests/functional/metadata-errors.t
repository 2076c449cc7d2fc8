#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a persistent store says after a crash is what was reported before it, whichever write
# of its superblocks and records fails; and one bad superblock costs that copy alone.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

need_target delay flakey
MIB=1048576

exact_copies

# store_table [FROM COUNT]...: the store is "cow"; these sectors of it are bad. (The target error
# gets no flush, so that the others still can be flushed.)
store_table()
{
	local at=0 from count

	while (($#)); do
		from=$1 count=$2
		shift 2
		((from == at)) || printf '%d %d linear %s %d\n' "$at" $((from - at)) "$store" "$at"
		printf '%d %d error\n' "$from" "$count"
		at=$((from + count))
	done
	((at == $(sectors "$store"))) ||
		printf '%d %d linear %s %d\n' "$at" $(($(sectors "$store") - at)) "$store" "$at"
}

# up SECTOR [ID...]: an origin with two snapshots, and these before the second of them; blocks of
# metadata as large as a SECTOR.
up()
{
	local id

	block=$(($1 / 512))
	base=$(mkloop 8M --sector "$1")
	store=$(mkloop 24M --sector "$1")
	fill "$base" "$TEST_TMP/now"
	dmcreate cow "$(store_table)"
	origin_up o "$base"
	cp "$TEST_TMP/now" "$TEST_TMP/old0"
	snap_up s "$base" /dev/mapper/cow P
	for id in "${@:2}"; do
		dmsetup message o 0 create "$id"
		ln -sf old0 "$TEST_TMP/old$id"
	done
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	ok "$1: a second snapshot is made" dm message o 0 create 2
	put /dev/mapper/o "$TEST_TMP/now" $((MIB / 2)) $MIB
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

# A machine that stops now: what the devices have, on others.
cut_up()
{
	cut_base=$(mkloop 8M --sector $((block * 512)))
	cut_store=$(mkloop 24M --sector $((block * 512)))
	cp "$(loop_file "$base")" "$(loop_file "$cut_base")"
	cp "$(loop_file "$store")" "$(loop_file "$cut_store")"
	origin_up x "$cut_base" store "$cut_store"
}

# all_right WHAT ID...: after a crash these are there, each with its image; no others.
all_right()
{
	local what=$1 id wrong=''

	shift
	ok "$what: after a crash the store is opened" cut_up
	is "$(key_of x snapshots)" $# "$what: there are as many snapshots as were reported"
	for id; do
		dmsetup create y --table "$(snap_table "$cut_base" "$cut_store" P 8 id "$id")" ||
			wrong+=" $id:missing"
		same /dev/mapper/y "$TEST_TMP/old$id" >/dev/null 2>&1 || wrong+=" $id"
		dmsetup remove --retry y
	done
	is "$wrong" "" "$what: each snapshot is right"
	dmremove x
}

# super COPY OFFSET BYTES: a value of a superblock on the disk.
super()
{
	od -An -v -t "u$3" -N "$3" -j $((($1 * block * 512) + $2)) "$(loop_file "$store")" | tr -d ' '
}

one_copy()
{
	local copy=$1 sector=$2

	up "$sector"
	swap_table cow "$(store_table $((copy * block)) "$block")"
	cp "$TEST_TMP/now" "$TEST_TMP/old5"
	ok "$sector, copy $copy bad: a snapshot is made" dm message o 0 create 5
	ok "$sector, copy $copy bad: an option is set" dm message o 0 set low_water 77
	isnt "$(super "$copy" 64 8)" "$(super $((1 - copy)) 64 8)" \
		"$sector, copy $copy bad: the other copy is newer"
	# At 4096 bytes its slots cannot be written, so nothing is copied here.
	((sector > 512)) || put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	all_right "$sector, copy $copy bad: made" 0 2 5
	ok "$sector, copy $copy bad: a snapshot is deleted" dm message o 0 delete 5
	all_right "$sector, copy $copy bad: deleted" 0 2
	is "$(status s | grep -o Invalid)" "" "$sector, copy $copy bad: the store lives on"
	down
}

# Neither can be written: what the failed message may have left must not come to light.
both_copies()
{
	up "$1"
	swap_table cow "$(store_table 0 $((2 * block)))"
	not_ok "$1, both bad: no snapshot is made" dm message o 0 create 5
	swap_table cow "$(store_table)"
	# Commits write the blocks that the superblocks share with slots.
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	wait_for 60 is_invalid s
	ok "$1, both bad: after a crash the store is opened" cut_up
	not_ok "$1, both bad: the snapshot that was not made is not there" \
		snap_up y "$cut_base" "$cut_store" P 8 id 5
	dmremove x
	is "$(status s)" Invalid \
		"$1, both bad: what could not be undone makes the snapshots Invalid"
	down
}

# A fails, then B; meanwhile A has come back: what was there is written to it again.
undone()
{
	local sequence

	up 512
	# Nothing else is to write superblocks meanwhile.
	wait_for 60 noted
	dmcreate bad_a "0 1 error"
	dmcreate bad_b "0 1 error"
	dmcreate late_b "0 1 delay /dev/mapper/bad_b 0 0 /dev/mapper/bad_b 0 120000"
	sequence=$(super 0 64 8)
	swap_table cow "0 1 linear /dev/mapper/bad_a 0
1 1 linear /dev/mapper/late_b 0
2 $(($(sectors "$store") - 2)) linear $store 2"
	dm message o 0 create 5 >"$TEST_TMP/create" 2>&1 &
	wait_for 60 writes_are_delayed late_b 1
	dmreload bad_a "0 1 linear $store 0"
	dmreload late_b "0 1 error"
	wait $!
	isnt $? 0 "undone: no snapshot is made"
	is "$(super 0 64 8)" $((sequence + 2)) \
		"undone: the superblock that was there has been written again"
	swap_table cow "$(store_table)"
	dmremove bad_a
	dmremove late_b
	dmremove bad_b
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	all_right "undone" 0 2
	ok "undone: a snapshot can be made again" dm message o 0 create 5
	like "$(status s)" '^[0-9]+/' "undone: the snapshot is valid"
	down
}

cowsnap()
{
	"$TESTS_DIR/../tools/cowsnap" "$@"
}

# With twelve more snapshots, for which a superblock has no records.
many_up()
{
	local id

	up 512
	for id in {11..22}; do
		dmsetup message o 0 create "$id"
	done
}

# not_invalid BASE STORE ID...: those of these snapshots that are not Invalid.
not_invalid()
{
	local base=$1 store=$2 id

	shift 2
	for id; do
		dmsetup create y --table "$(snap_table "$base" "$store" P 8 id "$id")"
		[[ $(status y) = Invalid ]] || printf ' %s' "$id"
		dmsetup remove --retry y
	done
}

# Everything but superblock A fails.
invalid_in_one()
{
	many_up
	swap_table cow "$(store_table 1 $(($(sectors "$store") - 1)))"
	ok "invalid: the origin goes on" put /dev/mapper/o "$TEST_TMP/now" $((4 * MIB)) $MIB
	is "$(status s)" Invalid "invalid: the snapshots are Invalid"
	cp "$(loop_file "$store")" "$TEST_TMP/image"
	is "$(super 0 40 8)" 2 "invalid: the superblock overrules the records"
	if cowsnap --version >/dev/null 2>&1; then
		is "$(cowsnap dump "$TEST_TMP/image" | grep -c 'state.*live')" 0 \
			"invalid: the tools know that the snapshots are invalid"
	else
		skip "invalid: the tools know that the snapshots are invalid" \
			"no cowsnap command that runs here"
	fi
	ok "invalid: after a crash the store is opened" cut_up
	is "$(not_invalid "$cut_base" "$cut_store" 0 2 {11..22})" "" "invalid: after a crash all snapshots are Invalid"
	dmremove x
	swap_table cow "$(store_table)"
	down
	is "$(super 0 40 8) $(super 0 168 8)" "0 0" \
		"invalid: once written, the records say that the snapshots are invalid"
	dmcreate cow "$(store_table)"
	origin_up o "$base" store /dev/mapper/cow
	is "$(not_invalid "$base" /dev/mapper/cow 0 2 {11..22})" "" "invalid: opened again all snapshots are Invalid"
	dmremove o
	dmremove cow
}

# The store refuses the mark "invalid". The next write that it takes brings it, even one that
# needs no superblock of itself.
told_later()
{
	many_up
	swap_table cow "$(no_writes_table "$store")"
	put /dev/mapper/o "$TEST_TMP/now" $((4 * MIB)) $MIB
	ok "told later: the snapshots are Invalid" wait_for 60 is_invalid s
	wait_for 60 mark_is_refused
	swap_table cow "$(linear_table "$store")"
	ok "told later: a snapshot that has no record in a superblock is deleted" \
		dm message o 0 delete 22
	ok "told later: after a crash the store is opened" cut_up
	is "$(not_invalid "$cut_base" "$cut_store" 0 2 {11..21})" "" "told later: after a crash all snapshots are Invalid"
	dmremove x
	down
}

# At least once in told_later(), which comes before others that have it in the log.
mark_is_refused()
{
	kernel_log | grep -q 'does not take the mark that its snapshots are invalid'
}

# The last commit is known to be durable soon after the store has become idle.
noted()
{
	[[ $(super 0 104 8) = "$(key_of s commits)" ]]
}

idle()
{
	up 512
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	ok "idle: the last commit is noted" wait_for 60 noted
	down
}

note_has_failed()
{
	[[ $(kernel_log | grep -c 'superblock at sector .* cannot be written') -gt $failures ]]
}

# The note itself fails at first. Commits write no superblock.
idle_later()
{
	local failures

	up 512
	failures=$(kernel_log | grep -c 'superblock at sector .* cannot be written')
	swap_table cow "$(store_table 0 2)"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	ok "idle, both bad: the note fails" wait_for 60 note_has_failed
	swap_table cow "$(store_table)"
	ok "idle, then good: the last commit is noted" wait_for 60 noted
	down
}

# ---- changes that neither superblock takes ----

# The one that should have gone is kept.
neither_deletes()
{
	up 512
	swap_table cow "$(store_table 0 2)"
	not_ok "delete, both bad: no snapshot is deleted" dm message o 0 delete 2
	all_right "delete, both bad" 0 2
	swap_table cow "$(store_table)"
	put /dev/mapper/o "$TEST_TMP/now" 0 $((3 * MIB))
	all_right "delete, then good" 0 2
	like "$(status s)" '^[0-9]+/' "delete, then good: the snapshots are valid"
	ok "delete, then good: it is deleted" dm message o 0 delete 2
	all_right "deleted, then good" 0
	down
}

neither_sets()
{
	local had

	up 512
	had=$(super 0 140 4)
	swap_table cow "$(store_table 0 2)"
	not_ok "set, both bad: no option is set" dm message o 0 set low_water 77
	all_right "set, both bad" 0 2
	swap_table cow "$(store_table)"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	cp "$TEST_TMP/now" "$TEST_TMP/old5"
	ok "set, then good: a snapshot is made" dm message o 0 create 5
	is "$(super 0 140 4)" "$had" "set, then good: the option is what it was"
	all_right "set, then good" 0 2 5
	down
}

# ---- table blocks that are made ready, but not named ----

# The first tables end within this, and with them what superblocks name.
fill_tables()
{
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((6 * MIB))
}

tables_are_extended()
{
	(($(super "$1" 112 4) > $2))
}

one_names_blocks()
{
	local had

	up 512
	had=$(super 0 112 4)
	swap_table cow "$(store_table 0 1)"
	ok "extended, copy 0 bad: the origin goes on" fill_tables
	ok "extended, copy 0 bad: the other names more table blocks" \
		wait_for 60 tables_are_extended 1 "$had"
	all_right "extended, copy 0 bad" 0 2
	like "$(status s)" '^[0-9]+/' "extended, copy 0 bad: the snapshot is valid"
	down
}

neither_names_blocks()
{
	local had

	up 512
	had=$(super 0 112 4)
	swap_table cow "$(store_table 0 2)"
	ok "extended, both bad: the origin goes on" fill_tables
	ok "extended, both bad: the snapshots are Invalid" wait_for 60 is_invalid s
	is "$(super 0 112 4)" "$had" "extended, both bad: no superblock names more"
	swap_table cow "$(store_table)"
	ok "extended, then good: what is to be said comes with the next change" \
		dm message o 0 set low_water 66
	ok "extended, both bad: after a crash the store is opened" cut_up
	is "$(not_invalid "$cut_base" "$cut_store" 0 2)" "" \
		"extended, both bad: after a crash the snapshots are Invalid"
	ok "extended, both bad: after a crash the origin is right" same "$cut_base" "$TEST_TMP/now"
	dmremove x
	dmremove s
	dmremove o
	origin_up o "$base" store /dev/mapper/cow
	is "$(not_invalid "$base" /dev/mapper/cow 0 2)" "" \
		"extended, opened again: the snapshots are Invalid"
	dm message o 0 delete 0
	dm message o 0 delete 2
	cp "$TEST_TMP/now" "$TEST_TMP/old7"
	ok "extended, opened again: a snapshot is made" dm message o 0 create 7
	put /dev/mapper/o "$TEST_TMP/now" 0 $((8 * MIB))
	ok "extended, opened again: tables are extended" wait_for 60 tables_are_extended 0 "$had"
	all_right "extended, opened again" 7
	dmremove o
	dmremove cow
}

# ---- records in a block of their own ----

# own_records_up: $bad is the sector with the records of snapshots 22 and 2.
own_records_up()
{
	up 512 {15..22}
	bad=$(($(store_tool find-place "$(loop_file "$store")" $RECORDS) * 8))
}

own_record_creates()
{
	local what="create, its record bad"

	own_records_up
	swap_table cow "$(store_table "$bad" 1)"
	not_ok "$what: it is refused" dm message o 0 create 30
	ok "$what: what cannot be undone makes the snapshots Invalid" wait_for 60 is_invalid s
	ok "$what: the origin goes on" put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	ok "$what: after a crash the store is opened" cut_up
	not_ok "$what: after a crash it is not there" snap_up y "$cut_base" "$cut_store" P 8 id 30
	is "$(not_invalid "$cut_base" "$cut_store" 0 2 {15..22})" "" \
		"$what: after a crash the snapshots are there, and Invalid"
	ok "$what: after a crash the origin is right" same "$cut_base" "$TEST_TMP/now"
	dmremove x
	swap_table cow "$(store_table)"
	down
}

own_record_deletes()
{
	local what="delete, its record bad"

	own_records_up
	swap_table cow "$(store_table "$bad" 1)"
	not_ok "$what: it is refused" dm message o 0 delete 22
	ok "$what: the origin goes on" put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	all_right "$what" 0 2 {15..22}
	like "$(status s)" '^[0-9]+/' "$what: the snapshots are valid"
	swap_table cow "$(store_table)"
	ok "$what, then good: it is deleted" dm message o 0 delete 22
	all_right "$what, then good" 0 2 {15..21}
	down
}

# own_record_undone VERB ID: what was there is written again.
own_record_undone()
{
	local what="$1 $2, undone"

	own_records_up
	dmcreate bad "0 1 error"
	dmcreate late "0 1 delay /dev/mapper/bad 0 0 /dev/mapper/bad 0 120000"
	swap_table cow "$(partly_table "$store" "$bad" 1 linear /dev/mapper/late 0)"
	dm message o 0 "$1" "$2" >"$TEST_TMP/said" 2>&1 &
	wait_for 60 writes_are_delayed late 1
	# The write that waits still fails.
	dmreload late "0 1 linear $store $bad"
	wait $!
	isnt $? 0 "$what: it is refused"
	swap_table cow "$(store_table)"
	dmremove late
	dmremove bad
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $MIB
	all_right "$what" 0 2 {15..22}
	like "$(status s)" '^[0-9]+/' "$what: the snapshot is valid"
	down
}

told_later
neither_deletes
neither_sets
one_names_blocks
neither_names_blocks
own_record_creates
own_record_deletes
own_record_undone create 30
own_record_undone delete 22
for sector in 512 4096; do
	one_copy 0 "$sector"
	one_copy 1 "$sector"
	both_copies "$sector"
done
undone
invalid_in_one
idle
idle_later
done_testing
