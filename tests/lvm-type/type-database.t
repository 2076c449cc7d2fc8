#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A PostgreSQL under load is copied by snapshots of type cowsnap that share a store, and
# recovers from them, on the snapshot and after a rollback.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../lvm/database.sh"

mkvg vg 640M
lvcreate -qq -y -Wn -L 224M -n lv vg

# The second in the store of the first.
snapshot()
{
	if [[ $1 == s1 ]]; then
		lvcreate -qq --type cowsnap -s -L 320M -n s1 vg/lv
	else
		lvcreate -qq --type cowsnap -s -n "$1" --store s1 vg/lv
	fi
}

database_is_kept
