#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Records of a log with gaps between them: what a crash leaves of them is opened, whatever stands in
# the gaps; a gap is room again when its zone is left. Where nothing turns there are none. What
# zones leave behind, gaps or single chunks, does not keep the log from going on.
#
# Gaps are given here. That they are learned where they are of use is tests/host/gap.t's.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/log.sh"

exact_copies
plan 25

# up SIZE: snapshot 1, as s, with a log, of an origin of 8 MiB.
up()
{
	base=$(mkloop 8M)
	store=$(mkloop "$1")
	cut_base=$(mkloop 8M)
	cut_store=$(mkloop "$1")
	chunk=8
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P 8 id 1 create log on
	wait_for 10 has_zones "$store" 2
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

# gaps FILE: how many chunks stand free between one record's data and the next record, once each.
gaps()
{
	log_tool records "$1" | awk '{ if (zone == $1) print $2 - end; zone = $1; end = $2 + 1 + $4 }' |
		sort -nu | xargs
}

# ---- where it stands ----

up 32M
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 20
cut_off none
is "$(gaps "$TEST_TMP/none.store")" 0 "without a gap records stand one behind the other"
is "$(key_of s log_skipped)" 0 "nothing is skipped"
echo 12 >"$PARAMETERS/log_gap"
before=$(key_of s records)
put_scattered /dev/mapper/o "$TEST_TMP/now" 20 40
more=$(($(key_of s records) - before))
cut_off gaps
is "$(gaps "$TEST_TMP/gaps.store")" "0 3" "with a gap of 12 KiB three chunks are left free"
is "$(key_of s log_skipped)" $((more * 3 * 8)) "they are counted"
like "$(checked "$TEST_TMP/gaps.store")" 'clean, 1 snapshots' "cowsnap check knows the records"
ok "after a crash the store is opened" opened gaps
ok "the snapshot is as it was" same /dev/mapper/y "$TEST_TMP/old"
closed
echo -1 >"$PARAMETERS/log_gap"
skipped=$(key_of s log_skipped)
put_scattered /dev/mapper/o "$TEST_TMP/now" 40 200
is "$(key_of s log_gap) $(key_of s log_skipped)" "0 $skipped" "where nothing turns no gap is tried"
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- zones go on where no chunk has been used ----

up 64M
commits=$(key_of s commits)
for ((n = 0; n < 2000; n += 100)); do
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$n" $((n + 100))
	wait_for 3 has_zones "$store" 2
done
ok "a store with room for more zones has its copies in the log" \
	test "$(key_of s records)" -ge 1600
ok "and hardly any by the tables" test $(($(key_of s commits) - commits)) -le 200
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- a gap is room again ----

up 4M
echo 8 >"$PARAMETERS/log_gap"
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 1020
isnt "$(key_of s log_skipped)" 0 "a small store has gaps"
is "$(used_sectors s)" 8192 "it holds as much as one without"
ok "its zones have been given back" has_zones "$store" 0
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- old records stand in gaps ----

# Records are dense at first, so that later ones skip theirs.
up 4M
echo 0 >"$PARAMETERS/log_gap"
dmreload o "$(origin_table "$base" store /dev/mapper/cow)"
for ((n = 0; n < 400; n += 20)); do
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$n" $((n + 20))
	wait_for 2 has_zones "$store" 2
done
dmremove s
dm message o 0 create 2
dm message o 0 delete 1
snap_up s "$base" /dev/mapper/cow P 8 id 2
ok "all that a snapshot had is freed" wait_for 10 at_least freed 400
cp "$TEST_TMP/now" "$TEST_TMP/old"
echo 8 >"$PARAMETERS/log_gap"
for ((n = 400; n < 1000; n += 20)); do
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$n" $((n + 20))
	wait_for 2 has_zones "$store" 2
	cut_off old
	(($(log_tool old "$TEST_TMP/old.store") < 4)) || break
done
isnt "$(log_tool old "$TEST_TMP/old.store")" 0 "records of earlier zones stand in gaps"
like "$(checked "$TEST_TMP/old.store")" 'clean, 1 snapshots' "cowsnap check passes them over"
after old
ok "after a crash the store is opened" origin_up x "$cut_base" store "$cut_store"
ok "and its snapshot" snap_up y "$cut_base" "$cut_store" P 8 id 2
is "$(key_of y damaged)" 0 "nothing of it is lost"
ok "the snapshot is as it was" same /dev/mapper/y "$TEST_TMP/old"
ok "the origin is as it was" same /dev/mapper/x "$TEST_TMP/now"
ok "so is the snapshot in use" same /dev/mapper/s "$TEST_TMP/old"
closed
down
