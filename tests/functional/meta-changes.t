#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What neither superblock takes, and what the block of a snapshot's own record does not take, was not
# done: a deletion, an option, more table blocks, a snapshot; also after a crash. A store whose
# tables cannot be extended is full when the rest is used up, and not before.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/metadata.sh"

need_target delay

exact_copies

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

failures()
{
	kernel_log | grep -c 'the superblock at sector 1 cannot be written'
}

have_failed()
{
	(($(failures) > $1))
}

# Tables are extended well ahead of need: as long as there is room, nothing is lost.
neither_names_blocks()
{
	local had failures

	up 512
	had=$(super 0 112 4)
	failures=$(failures)
	# What is written to it later needs no mark.
	put /dev/mapper/s "$TEST_TMP/old0" $MIB 4096
	swap_table cow "$(store_table 0 2)"
	ok "extended, both bad: the origin goes on" fill_tables
	ok "extended, both bad: that fails" wait_for 60 have_failed "$failures"
	all_right "extended, both bad" 0 2
	like "$(status s)" '^[0-9]+/' "extended, both bad: the snapshots are valid, there is room"
	is "$(super 0 112 4)" "$had" "extended, both bad: no superblock names more"
	cp "$TEST_TMP/old0" "$TEST_TMP/scratch"
	not_ok "extended, both bad: those that no superblock names are not used" \
		put /dev/mapper/s "$TEST_TMP/scratch" $((2 * MIB)) $((6 * MIB))
	image /dev/mapper/s "$TEST_TMP/old0"
	like "$(status s)" '^[0-9]+/' "extended, both bad: a snapshot's own write invalidates none"
	swap_table cow "$(store_table)"
	ok "extended, then good: what is to be said comes with the next change" \
		dm message o 0 set low_water 66
	ok "extended, both bad: after a crash the store is opened" cut_up
	is "$(not_invalid "$cut_base" "$cut_store" 0 2)" " 0 2" \
		"extended, both bad: after a crash the snapshots are valid"
	ok "extended, both bad: after a crash the origin is right" same "$cut_base" "$TEST_TMP/now"
	dmremove x
	dmremove s
	dmremove o
	origin_up o "$base" store /dev/mapper/cow
	all_right "extended, both bad, opened again" 0 2
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

# ---- table blocks that cannot be made ready ----

# tables_end_up WHAT ON_FULL: with a third snapshot. The write of the block that is made ready next
# ends when tables_fail says so.
tables_end_up()
{
	local next

	up 512
	dmreload s "$(snap_table "$base" /dev/mapper/cow PO)"
	cp "$TEST_TMP/now" "$TEST_TMP/old3"
	dm message o 0 create 3
	dm message o 0 set on_full "$2"
	dm message o 0 set wait_timeout 600
	# Segments have 8 blocks of tables, and 272 chunks behind these; the first one has 204.
	next=$(super 0 112 4)
	bad=$(((205 + (next / 8 - 1) * 273) * 8 + next % 8))
	dmcreate bad "0 1 error"
	dmcreate late "0 1 delay /dev/mapper/bad 0 0 /dev/mapper/bad 0 120000"
	swap_table cow "$(partly_table "$store" "$bad" 1 linear /dev/mapper/late 0)"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((5 * MIB))
	ok "$1: tables are extended, ahead of need" wait_for 60 writes_are_delayed late 1
}

# tables_fail TABLE: what is late fails. The block has this table from now on.
tables_fail()
{
	dmreload late "$1"
}

tables_end_down()
{
	down
	dmremove late
	dmremove bad
}

not_extended()
{
	kernel_log | grep -c 'its tables could not be extended (-5)'
}

not_extended_again()
{
	(($(not_extended) > $1))
}

# Who waits for something else meanwhile has nothing to do with it.
extension_fails()
{
	local what="no tables" failures writer setter

	failures=$(not_extended)
	tables_end_up "$what" invalidate
	put /dev/mapper/s "$TEST_TMP/old0" 0 4096 &
	writer=$!
	ok "$what: a snapshot is written to for the first time" wait_for 60 io_is_in_flight s write
	dm message o 0 set log on &
	setter=$!
	tables_fail "0 1 error"
	ok "$what: the extension fails" wait_for 60 not_extended_again "$failures"
	ok "$what: the snapshot's write ends well" wait "$writer"
	ok "$what: and so does the message" wait "$setter"
	like "$(status s)" '^[0-9]+/' "$what: the snapshots are valid"
	all_right "$what" 0 2 3
}

# It fails again, and now it is waited for.
extension_fails_again()
{
	local what="no tables again"

	cp "$TEST_TMP/old0" "$TEST_TMP/scratch"
	not_ok "$what: a snapshot's own write fails" \
		put /dev/mapper/s "$TEST_TMP/scratch" $((3 * MIB)) $((2 * MIB))
	image /dev/mapper/s "$TEST_TMP/old0"
	like "$(status s)" '^[0-9]+/' "$what: the snapshots are valid"
	all_right "$what" 0 2 3
	ok "$what: the origin goes on" put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB))
	is "$(status s)" Invalid "$what: the snapshots are lost, and not to a full store"
	ok "$what: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	ok "$what: after a crash the store is opened" cut_up
	is "$(not_invalid "$cut_base" "$cut_store" 0 2 3)" "" \
		"$what: after a crash the snapshots are invalid"
	dmremove x
	tables_end_down
}

# Who may wait for room goes on when the next try has succeeded.
extension_is_tried_again()
{
	local what="no tables at first" writer

	tables_end_up "$what" wait
	put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB)) &
	writer=$!
	wait_for 60 io_is_in_flight o write
	# All that is ready is used up.
	sleep 2
	tables_fail "0 1 linear $store $bad"
	ok "$what: a write waits until there are some" wait_for 60 has_ended "$writer"
	ok "$what: and ends well" wait "$writer"
	like "$(status s)" '^[0-9]+/' "$what: the snapshots are valid"
	all_right "$what" 0 2 3
	tables_end_down
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

neither_deletes
neither_sets
one_names_blocks
neither_names_blocks
extension_fails
extension_fails_again
extension_is_tried_again
own_record_creates
own_record_deletes
own_record_undone create 30
own_record_undone delete 22
done_testing
