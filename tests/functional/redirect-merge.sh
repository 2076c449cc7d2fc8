# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What tests of merges into a redirected origin share.

need_command
need_target flakey delay error
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

MIB=1048576
U=131072
cow=/dev/mapper/cow
home=/dev/mapper/home

# begin CHUNK LOG: a sealed origin with snapshot 1 of it, in use; first writes are redirected.
begin()
{
	chunk=$1
	bytes=$((chunk * 512))
	all_down
	dd if=/dev/zero of="$store" bs=1M count=8 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$home" "$TEST_TMP/now"
	snap_up s "$home" "$cow" P "$chunk" id 1 create log "$2"
	cp "$TEST_TMP/now" "$TEST_TMP/old1"
	all_down
	# shellcheck disable=SC2154  # need_command sets it
	"$tool" seal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	up
	dm message o 0 set settle off
	dm message o 0 set redirect 60
}

up()
{
	origin_up o "$home" store "$cow"
}

# snapshot ID: one of what the origin has now.
snapshot()
{
	dm message o 0 create "$1"
	cp "$TEST_TMP/now" "$TEST_TMP/old$1"
}

# Sealed, changed in part (copied), redirected here and there and at the end.
change()
{
	put /dev/mapper/o "$TEST_TMP/now" 4096 4096 $((U + $1 * 1024)) 512 $((2 * U)) "$bytes" \
		$((3 * U)) $((3 * bytes)) $((5 * MIB + $1 * bytes)) $((2 * bytes)) \
		$((7 * MIB + $1 * U)) $((4 * bytes)) $((10 * MIB - bytes)) "$bytes"
}

merge_table()
{
	echo "0 $(sectors "$home") cowsnap-merge $home $cow P $chunk 2 id $1"
}

# merge ID: it begins, and what the origin shows from now on is in this file.
merge()
{
	dm suspend o && dmload o "$(merge_table "$1")" && dm resume o || return
	cp "$TEST_TMP/old$1" "$TEST_TMP/now"
}

# end_merge: the table of before.
end_merge()
{
	wait_for 60 merged || return
	dmreload o "$(origin_table "$home" store "$cow")"
}

unsettled()
{
	"$tool" status o | awk '$1 == "unsettled" { print $2; exit }'
}

unsettled_is()
{
	[[ $(unsettled) == "$1" ]]
}

# right WORDS ID...: the origin and these snapshots are.
right()
{
	local what=$1 id

	shift
	ok "$what: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	for id; do
		snap_up s "$home" "$cow" P "$chunk" id "$id"
		ok "$what: snapshot $id is right" same /dev/mapper/s "$TEST_TMP/old$id"
		dmremove s
	done
}

# crash: what a power cut now would leave.
crash()
{
	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	cp "$(loop_file "$store")" "$TEST_TMP/store.cut"
	all_down
	remove_and_reload
	exact_copies
	dd if="$TEST_TMP/base.cut" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
}

is_clean()
{
	all_down
	ok "$1: check finds nothing" "$tool" check "$cow"
}

# All tests use these.
devices_up()
{
	base=$(mkloop 10M)
	store=$(mkloop 32M)
	dmcreate cow "$(linear_table "$store")"
	dmcreate home "$(linear_table "$base")"
}

devices_down()
{
	all_down
	dmremove cow
	dmremove home
}
