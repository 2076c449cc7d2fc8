#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# With LVM's segment type cowsnap, cowsnap lists, mounts, clones and compares the snapshots, and
# sends them in full and by what has changed: they are in one store.

. "$(dirname "$0")/common.sh"
# shellcheck source=../lvm/backup.sh
. "$(dirname "$0")/../lvm/backup.sh"

plan $((STORY_POINTS + TOLD_POINTS))
mkvg vg 192M
lvcreate -qq -y -Wn -L 16M -n lv vg

make_snapshot()
{
	if [[ $1 == before ]]; then
		lvcreate -qq --type cowsnap -s -L 48M -n before vg/lv
	else
		lvcreate -qq --type cowsnap -s -n "$1" --store before vg/lv
	fi
}

backup_story
told_by "$TESTS_DIR/../docs/lvm-type.md"
