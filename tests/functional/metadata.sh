# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests share in which metadata cannot be written: a store with sectors that are bad, and
# what a machine that stops leaves of it.

MIB=1048576

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
	dmcreate cow "$(linear_table "$store")"
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
