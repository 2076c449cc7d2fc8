#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# In whatever order origin and snapshot come, suspended or not, the snapshot is
# whole. Stock dm-snapshot stands beside it: with the origin first and nothing
# suspended it loses all but the first chunk of each larger write.

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 13

overwrite()
{
	put_letter /dev/mapper/o B $((2 * MIB)) $((4 * MIB)) $MIB
}

# What the snapshot lost, in chunks of 4 KiB.
lost_chunks()
{
	local bytes

	bytes=$(other_bytes /dev/mapper/s A) || echo "unreadable: "
	echo "${bytes//[!0-9]/} 4096" | awk '{ print $1 / $2 }'
}

# try WORDS COMMAND...: bring both up by COMMAND, overwrite, count.
try()
{
	local words=$1

	shift
	fill_letter "$base" A
	"$@" || diag "failed: $*"
	overwrite
	is "$(lost_chunks)" 0 "$words: nothing is lost"
	all_down
}

origin_first()
{
	origin_up o "$base" && snap_up s "$base" "$store" N 8
}

snapshot_first()
{
	snap_up s "$base" "$store" N 8 && origin_up o "$base"
}

as_lvm_does()
{
	origin_up o "$base" && dmsetup suspend o &&
		snap_up s "$base" "$store" N 8 && dmsetup resume o
}

written_before()
{
	origin_up o "$base" && put_letter /dev/mapper/o A 0 $((8 * MIB)) $MIB &&
		snap_up s "$base" "$store" N 8
}

resumed_later()
{
	origin_up o "$base" && dmsetup create --notable s &&
		dmsetup load s --table "$(snap_table "$base" "$store" N 8)" &&
		dmsetup resume s
}

after_larger_chunks()
{
	origin_up o "$base" && snap_up s2 "$base" "$store2" N 128 &&
		snap_up s "$base" "$store" N 8
}

after_reload()
{
	origin_first && dmreload o "$(origin_table "$base")" &&
		dmreload s "$(snap_table "$base" "$store" N 8)"
}

origin_remade()
{
	origin_first && dmremove o && origin_up o "$base"
}

protection_starts_at_resume()
{
	fill_letter "$base" A
	origin_up o "$base"
	dmsetup create --notable s
	dmsetup load s --table "$(snap_table "$base" "$store" N 8)"
	put_letter /dev/mapper/o C 0 $MIB
	dmsetup resume s
	overwrite
	ok "what was written before the snapshot's table resumed is in it" \
		all_letter /dev/mapper/s C 0 $MIB
	ok "nothing written after the snapshot's table resumed is in it" all_letter /dev/mapper/s AC
	all_down
}

# The same lines with dm-snapshot's names for the targets.
stock_up()
{
	dmcreate o "0 $(sectors "$base") snapshot-origin $base" &&
		dmcreate s "0 $(sectors "$base") snapshot $base $store N 8"
}

# Put both results on one screen; what stock does is reported, not demanded.
side_by_side()
{
	local cowsnap_lost stock_lost

	fill_letter "$base" A
	origin_first
	image /dev/mapper/s "$TEST_TMP/image"
	md5sum <"$TEST_TMP/image" >"$TEST_TMP/before"
	overwrite
	cowsnap_lost=$(lost_chunks)
	ok "4 MiB in 1 MiB writes, origin first, chunk 8: the snapshot's md5 stays" \
		md5_is "$TEST_TMP/before"
	all_down
	if ! have_target snapshot; then
		skip "dm-snapshot side by side" "no dm-snapshot in this kernel"
		return
	fi
	fill_letter "$base" A
	stock_up
	overwrite
	stock_lost=$(lost_chunks)
	diag "chunks lost of 1024: cowsnap $cowsnap_lost, dm-snapshot $stock_lost"
	ok "dm-snapshot side by side: ours loses $cowsnap_lost chunks, it loses $stock_lost" \
		[ "$cowsnap_lost" -le "$stock_lost" ]
	all_down
}

md5_is()
{
	image /dev/mapper/s "$TEST_TMP/image" && md5sum <"$TEST_TMP/image" | cmp -s - "$1"
}

base=$(mkloop 16M)
store=$(mkloop 32M)
store2=$(mkloop 32M)
try "origin, then snapshot" origin_first
try "snapshot, then origin" snapshot_first
try "origin suspended meanwhile" as_lvm_does
try "origin written before" written_before
try "snapshot loaded, then resumed" resumed_later
try "after a snapshot with larger chunks" after_larger_chunks
try "both reloaded" after_reload
try "origin removed and made again" origin_remade
protection_starts_at_resume
side_by_side
ok "the origin has only what was written" all_letter "$base" AB
