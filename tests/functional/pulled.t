#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The origin's disk is pulled, or shrinks, in use: writes give errors, no snapshot shows zeroes for
# what cannot be read any more, and all can be removed.

. "$(dirname "$0")/common.sh"

modinfo scsi_debug >/dev/null 2>&1 || skip_all "no scsi_debug here"
plan 14
MIB=1048576

# ---- it shrinks: a chunk begins where it ends now, or behind that ----

# shrunk MIB: the first write after it has shrunk to 4 MiB is there.
shrunk()
{
	base=$(mkloop 8M)
	store=$(mkloop 16M)
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" P 8 id 1 create
	truncate -s 4M "$(loop_file "$base")"
	losetup -c "$base"
	is "$(sectors "$base")" 8192 "shrunk, $1 MiB: the origin has half of its sectors"
	not_ok "shrunk, $1 MiB: a write there gives an error" \
		put_letter /dev/mapper/o B $(($1 * MIB)) 4096
	not_ok "shrunk, $1 MiB: the snapshot does not show zeroes there" \
		get /dev/mapper/s $(($1 * MIB)) 4096
	ok "shrunk, $1 MiB: the snapshot is removed" dmremove s
	ok "shrunk, $1 MiB: the origin is removed" dmremove o
}

shrunk 4
shrunk 6

# ---- it is pulled ----

base=$(mkscsi dev_size_mb=8)
store=$(mkloop 16M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create
echo 1 >"/sys/block/$(basename "$base")/device/delete"
not_ok "pulled: the first write to a chunk gives an error" put_letter /dev/mapper/o B $MIB 4096
not_ok "pulled: the first write to the first chunk gives an error" put_letter /dev/mapper/o B 0 4096
ok "pulled: the snapshot is removed" dmremove s
ok "pulled: the origin is removed" dmremove o
