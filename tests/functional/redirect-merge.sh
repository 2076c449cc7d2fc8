# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034,SC2154
#
# What tests of merges into a redirected origin share.

. "$(dirname "${BASH_SOURCE[0]}")/redirected.sh"

MIB=1048576

# begin CHUNK LOG: a sealed origin with snapshot 1 of it, in use; first writes are redirected.
begin()
{
	begin_sealed "$1" old1 id 1 create log "$2"
	up
	redirect_now
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
	cut_now
	exact_copies
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
