#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# dmeventd extends a snapshot that fills, so that it holds more than it was made for, and
# takes one that could not be extended in time for what it is.

. "$(dirname "$0")/common.sh"

MIB=1048576
need dmeventd

stop_dmeventd()
{
	local pid

	pid=$(pidof dmeventd) && kill "$pid"
}

plan 9
in_snapshots_place || bail_out "the module is not loaded"
vg_up 96M || bail_out "no volume group"
lvm_config 'monitoring = 1' 'snapshot_autoextend_threshold = 50' 'snapshot_autoextend_percent = 100'
lv_up 32M || bail_out "no volume"
cp "$TEST_TMP/lv" "$TEST_TMP/old"
# It goes by itself only when nothing is watched.
at_exit stop_dmeventd
ok "a snapshot of 4 MiB is made" lvcreate -q -s -L 4M -n s vg/lv "$pv2"
is "$(column vg/s seg_monitor)" monitored "the snapshot is monitored"
put /dev/vg/lv "$TEST_TMP/lv" 0 $((5 * MIB / 2))

larger()
{
	(($(column vg/s lv_size --units k | cut -d. -f1) > $1))
}

ok "the snapshot is extended when it is half full" wait_for 60 larger 4096
put /dev/vg/lv "$TEST_TMP/lv" $((8 * MIB)) $((2 * MIB))
ok "the snapshot is extended once more" wait_for 60 larger 8192
put /dev/vg/lv "$TEST_TMP/lv" $((16 * MIB)) $((5 * MIB))
ok "the snapshot holds more than it was made for" same /dev/vg/s "$TEST_TMP/old"
ok "a second snapshot is made" lvcreate -q -s -l 16 -n late vg/lv "$pv2"
put /dev/vg/lv "$TEST_TMP/lv" 0 $((6 * MIB))
is "$(line vg/late)" Invalid "a snapshot that is filled at once is Invalid"
ok "the first snapshot is right" same /dev/vg/s "$TEST_TMP/old"
ok "both snapshots are removed with the origin" lvremove -q -ff vg/lv
