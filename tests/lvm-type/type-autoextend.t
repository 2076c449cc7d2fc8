#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# dmeventd watches snapshots of type cowsnap as it does others, and extends a store as
# lvm.conf says before it is full.

. "$(dirname "$0")/common.sh"

MIB=1048576
need dmeventd
plan 8

configure_lvm2 1
at_exit pkill -x dmeventd
mkvg vg 256M
lvcreate -qq -y -Wn -L 64M -n lv vg
fill /dev/vg/lv "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old"
ok "a snapshot is made" lvcreate --type cowsnap -s -L 16M -n s vg/lv
is "$(lv seg_monitor vg/s)" monitored "dmeventd watches the snapshot"
put /dev/vg/lv "$TEST_TMP/now" 0 $((13 * MIB))
ok "the store is extended at 70 percent" wait_for 60 store_larger_than 32768
is "$(lv lv_size vg/s)" 24.00m "the store is extended by half"
put /dev/vg/lv "$TEST_TMP/now" $((20 * MIB)) $((6 * MIB))
ok "the store is extended again" wait_for 60 store_larger_than 49152
ok "the snapshot's content stays" same /dev/vg/s "$TEST_TMP/old"
ok "monitoring is turned off" lvchange -qq --monitor n vg/lv
is "$(lv seg_monitor vg/s)" "notmonitored" "lvs says that the snapshot is not monitored"
