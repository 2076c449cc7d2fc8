#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# lvcreate --type cowsnap, shortly: a snapshot is made, keeps the old content, is shown by
# lvs, merged and removed, and is not redirected; and an lvm2 that does not know the type leaves such
# volumes alone.

. "$(dirname "$0")/../lvm-type/common.sh"

MIB=1048576
need_command
plan 21

mkvg vg 128M
ok "an LV is made" lvcreate -qq -y -Wn -L 20M -n lv vg
fill /dev/vg/lv "$TEST_TMP/old"
cp "$TEST_TMP/old" "$TEST_TMP/now"
ok "a snapshot of the LV is made" lvcreate --type cowsnap -s -L 12M -n s vg/lv
is "$(target vg-s) $(target vg-lv)" "cowsnap cowsnap-origin" \
	"the targets of LV and snapshot are the module's"
is "$(lv lv_attr,origin vg/s)" "swi-a-s---lv" "lvs shows the snapshot as one"
put /dev/vg/lv "$TEST_TMP/now" 0 $MIB $((5 * MIB)) 65536
ok "the snapshot keeps the old content" same /dev/vg/s "$TEST_TMP/old"
ok "the origin has the new content" same /dev/vg/lv "$TEST_TMP/now"
like "$(lv data_percent vg/s)" '^(8|9|1[0-3])\.' "lvs shows how full its store is"

refuses "$tool" 'LVM.s, which names no store' "its origin is not redirected" set vg/lv redirect 50

ok "the group is deactivated" vgchange -qq -an vg
not_ok "the stock lvm2 does not activate the origin" stock lvchange -ay vg/lv
diag <"$TEST_TMP/out"
not_ok "the stock lvm2 does not activate the snapshot" stock lvchange -ay vg/s
is "$(dmsetup ls 2>/dev/null | grep -c '^vg-')" 0 "the stock lvm2 leaves no device behind"
not_ok "the stock lvm2 does not remove the origin" stock lvremove -y vg/lv
ok "the group is activated again" vgchange -qq -ay vg
ok "the snapshot is as it was when activated again" same /dev/vg/s "$TEST_TMP/old"
not_ok "a snapshot of the stock type beside it is refused" lvcreate -qq -s -L 8M -n t vg/lv
like "$(<"$TEST_TMP/out")" 'snapshots of type cowsnap' \
	"the reason why a stock snapshot is refused is given"

ok "the snapshot is merged" lvconvert --merge -i 1 vg/s
ok "the origin has its old content" same /dev/vg/lv "$TEST_TMP/old"
is "$(lvs --noheadings -o name vg | tr -d ' \n')" lv "the merged snapshot is gone"
is "$(lv lv_attr vg/lv)" "-wi-a-----" "the origin is a plain LV"
