#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Whichever one sector of a store's metadata is bad while snapshots are made and deleted, an option
# is set and the origin is written: after a crash, and opened again, what was acknowledged is there,
# and each snapshot is right, or Invalid as it was before.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

exact_copies
MIB=1048576
KIB64=65536
# In sectors, with blocks of 512 bytes and chunks of 8 sectors: two superblocks and six blocks of
# 34 slots, a chunk for each slot, then the next table.
BLOCK_SLOTS=34
SUPERS=2
TABLE=8
TABLE_2=$(((1 + 6 * BLOCK_SLOTS) * 8))
# All sectors take longer than a short run has.
SCALE=${COWSNAP_SCALE:-50}

# images_up: 12 snapshots, four of which have their records in a chunk of these, and a changed chunk
# after each. All is kept in files.
images_up()
{
	local id

	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
	cp "$TEST_TMP/now" "$TEST_TMP/old1"
	snap_up s "$base" "$store" P 8 id 1 create
	dmreload o "$(origin_table "$base" store "$store")"
	dmremove s
	for id in {2..13}; do
		put /dev/mapper/o "$TEST_TMP/now" $((5 * MIB / 2 + id * 4096)) 4096
		((id < 13)) || break
		cp "$TEST_TMP/now" "$TEST_TMP/old$id"
		dmsetup message o 0 create "$id"
	done
	dmremove o
	cp "$TEST_TMP/now" "$TEST_TMP/now.kept"
	cp "$(loop_file "$base")" "$TEST_TMP/base.kept"
	cp "$(loop_file "$store")" "$TEST_TMP/store.kept"
}

# up CHUNKS: as it was kept, and so many chunks written since, which take as many slots.
up()
{
	cp "$TEST_TMP/now.kept" "$TEST_TMP/now"
	cp "$TEST_TMP/base.kept" "$(loop_file "$base")"
	cp "$TEST_TMP/store.kept" "$(loop_file "$store")"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base" store /dev/mapper/cow
	snap_up s "$base" /dev/mapper/cow P 8 id 6
	(($1 == 0)) || put /dev/mapper/o "$TEST_TMP/now" 0 $(($1 * 4096))
}

message()
{
	dmsetup message o 0 "$@" 2>"$TEST_TMP/said"
}

# change: what is acknowledged is noted in ${has[ID]}: yes, no, or "refused" for a snapshot that was
# not made.
change()
{
	local id failed=0

	has=()
	for id in {1..12}; do
		has[id]=yes
	done
	cp "$TEST_TMP/now" "$TEST_TMP/old13"
	has[13]=refused
	! message create 13 || has[13]=yes
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $KIB64 || failed=1
	! message delete 2 || has[2]=no
	! message delete 12 || has[12]=no
	message set low_water 77
	put /dev/mapper/o "$TEST_TMP/now" $((9 * MIB / 4)) $KIB64 || failed=1
	return "$failed"
}

# wrong_snap BASE STORE ID: what is wrong with it.
wrong_snap()
{
	if ! dmsetup create y --table "$(snap_table "$1" "$2" P 8 id "$3")" 2>/dev/null; then
		[[ ${has[$3]} != yes ]] || echo "$3 is not there"
		return
	fi
	if [[ ${has[$3]} == no ]]; then
		echo "$3 is still there"
	elif [[ $(status y) == Invalid ]]; then
		[[ $cost == Invalid ]] || echo "$3 is Invalid"
	elif [[ ${has[$3]} == refused ]]; then
		echo "$3 is there"
	else
		same /dev/mapper/y "$TEST_TMP/old$3" >/dev/null 2>&1 || echo "$3 is wrong"
	fi
	dmsetup remove --retry y
}

# wrong BASE STORE: what is wrong in these, opened anew.
wrong()
{
	local id

	dmsetup create x --table "$(origin_table "$1" store "$2")" || echo "the store is not opened"
	for id in "${checked[@]}"; do
		wrong_snap "$1" "$2" "$id"
	done
	same /dev/mapper/x "$TEST_TMP/now" || echo "the origin is wrong"
	dmsetup remove --retry x
}

down()
{
	dmremove s
	dmremove o
	swap_table cow "$(linear_table "$store")"
}

# one_bad CRASH SECTOR CHUNKS COST WORDS: after a crash (1), or opened again (0). The target error
# gets no flush, so that all else still can be flushed. COST is Invalid, or "none", as the snapshots
# are valid then.
one_bad()
{
	local crash=$1 sector=$2 cost what="sector $2, $5"

	up "$3"
	swap_table cow "$(partly_table "$store" "$sector" 1 error)"
	ok "$what: the origin goes on" change
	cp "$(loop_file "$base")" "$(loop_file "$cut_base")"
	cp "$(loop_file "$store")" "$(loop_file "$cut_store")"
	cost=$(status s | grep -o Invalid || echo none)
	is "$cost" "$4" "$what: what it costs the snapshots"
	if ((crash)); then
		is "$(wrong "$cut_base" "$cut_store")" "" "$what: after a crash all is right"
		down
	else
		down
		is "$(wrong "$base" /dev/mapper/cow)" "" "$what: opened again, all is right"
	fi
	dmremove cow
}

base=$(mkloop 3M)
store=$(mkloop 4M)
cut_base=$(mkloop 3M)
cut_store=$(mkloop 4M)
# These have the first and the last record in a superblock, and the first in a chunk; and those that
# change.
checked=(1 8 9 2 12 13)
((SCALE <= 100)) || checked=({1..13})
images_up
records=$(($(store_tool find-place "$(loop_file "$store")" $RECORDS) * 8))

# For a block of slots: so many are written before that the next ones go there.
cases=()
for ((i = 0; i < SUPERS; i++)); do
	cases+=("$i 0 none a superblock")
done
for ((i = 0; i < TABLE - SUPERS; i++)); do
	cases+=("$((SUPERS + i)) $((i * BLOCK_SLOTS)) Invalid the first table")
done
for ((i = 0; i < TABLE; i++)); do
	cases+=("$((TABLE_2 + i)) $(((TABLE - SUPERS + i) * BLOCK_SLOTS)) Invalid the second table")
done
# All records are in the first block. The others, which hold none, are written with it at most.
cases+=("$records 0 Invalid the records" "$((records + 1)) 0 none other records")
# All of them, or every so many.
nr=$((${#cases[@]} * SCALE / 100))
nr=$((nr < ${#cases[@]} ? nr : ${#cases[@]}))
nr=$((nr > 0 ? nr : 1))
plan $((3 * nr))
for ((i = 0; i < nr; i++)); do
	read -r sector chunks cost words <<<"${cases[i * ${#cases[@]} / nr]}"
	one_bad $((i % 2)) "$sector" "$chunks" "$cost" "$words"
done
