#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge that LVM began in the background leaves the volume right at every moment, beside
# other snapshots, while it is written and when the group is activated again; LVM removes
# the snapshot when it has ended. (tests/functional/merge.t breaks merges off.)

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 15
in_snapshots_place || bail_out "the module is not loaded"
vg_up 192M || bail_out "no volume group"
lv_up 32M || bail_out "no volume"
cp "$TEST_TMP/lv" "$TEST_TMP/old"
ok "a snapshot is made" lvcreate -q -s -L 33M -n s vg/lv "$pv2"
ok "a second snapshot beside it is made" lvcreate -q -s -c 64k -L 33M -n beside vg/lv "$pv2"
put /dev/vg/lv "$TEST_TMP/lv" 0 $((20 * MIB)) $((25 * MIB + 512)) 1536
cp "$TEST_TMP/lv" "$TEST_TMP/new"
ok "a third snapshot is made later" lvcreate -q -s -L 16M -n later vg/lv "$pv1"

ok "the merge begins, in the background" lvconvert -q -b -i 60 --merge vg/s
cp "$TEST_TMP/old" "$TEST_TMP/lv"
ok "the volume is what it was at once" same /dev/vg/lv "$TEST_TMP/lv"
put /dev/vg/lv "$TEST_TMP/lv" $((2 * MIB)) 8192 $((18 * MIB)) 65536
ok "the volume is written while it is merged" same /dev/vg/lv "$TEST_TMP/lv"
down
ok "the group is activated again in the midst of the merge" up
ok "activated again, the volume is right" same /dev/vg/lv "$TEST_TMP/lv"
ok "activated again, the snapshot beside it is right" same /dev/vg/beside "$TEST_TMP/old"
ok "activated again, the later snapshot is right" same /dev/vg/later "$TEST_TMP/new"
put /dev/vg/lv "$TEST_TMP/lv" $((10 * MIB)) $MIB

ok "LVM looks how far the merge is" lvchange -q --poll y vg/lv
ok "LVM removes the merged snapshot" wait_for 60 no_such_lv vg/s
ok "merged, the volume is right" same /dev/vg/lv "$TEST_TMP/lv"
ok "merged, the snapshot beside it is right" same /dev/vg/beside "$TEST_TMP/old"
ok "merged, the later snapshot is right" same /dev/vg/later "$TEST_TMP/new"
