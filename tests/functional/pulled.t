#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The origin's disk is pulled, or shrinks, in use: writes give errors, no snapshot shows zeroes for
# what cannot be read any more, and all can be removed.

. "$(dirname "$0")/common.sh"

modinfo scsi_debug >/dev/null 2>&1 || skip_all "no scsi_debug here"
plan 10
MIB=1048576

# ---- it shrinks: a chunk begins where it ends now ----

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create
truncate -s 4M "$(loop_file "$base")"
losetup -c "$base"
is "$(sectors "$base")" 8192 "shrunk: the origin has half of its sectors"
not_ok "shrunk: a write where it ends gives an error" put_letter /dev/mapper/o B $((4 * MIB)) 4096
not_ok "shrunk: a write behind its end gives an error" put_letter /dev/mapper/o B $((6 * MIB)) 4096
not_ok "shrunk: the snapshot does not show zeroes there" get /dev/mapper/s $((4 * MIB)) 4096
ok "shrunk: the snapshot is removed" dmremove s
ok "shrunk: the origin is removed" dmremove o

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
