#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A PostgreSQL under load is copied by LVM's snapshots, in dm-snapshot's place, and
# recovers from them, on the snapshot and after a rollback.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/database.sh"

in_snapshots_place || bail_out "the module is not loaded"
vg_up 320M || bail_out "no volume group"
lvcreate -q -y -Wn -L 224M -n lv vg "$pv1" >/dev/null || bail_out "no volume"

snapshot()
{
	lvcreate -q -s -L 144M -n "$1" vg/lv
}

database_is_kept
