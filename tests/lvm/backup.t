#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# With an LVM that knows nothing of us, cowsnap lists, mounts, clones and compares its snapshots,
# and sends them in full and by what has changed, though each has a store of its own.

. "$(dirname "$0")/common.sh"
# shellcheck source=backup.sh
. "$(dirname "$0")/backup.sh"

plan $((STORY_POINTS + TOLD_POINTS))
in_snapshots_place || bail_out "the module is not loaded"
vg_up 192M || bail_out "no volume group"
lvcreate -qq -y -Wn -L 16M -n lv vg

make_snapshot()
{
	lvcreate -qq -s -L 20M -n "$1" vg/lv
}

backup_story
told_by "$TESTS_DIR/../docs/lvm.md"
