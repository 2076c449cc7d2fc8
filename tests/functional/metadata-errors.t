#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a persistent store says after a crash is what was reported before it, whichever write
# of its superblocks and records fails; and one bad superblock costs that copy alone.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/metadata.sh"

need_target delay flakey
exact_copies

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

told_later
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
