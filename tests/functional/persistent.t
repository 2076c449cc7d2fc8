#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A persistent store: what was written to origin and snapshots is there again after all
# tables have gone and come back, and after the module was loaded anew.

. "$(dirname "$0")/common.sh"

plan 35

base=$(mkloop 16M)
store=$(mkloop 20M)
fill "$base" "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old"
origin_up o "$base"
ok "a snapshot is made in a new store" snap_up s "$base" "$store" P
put /dev/mapper/o "$TEST_TMP/now" 0 4096 1048576 1048576 5000192 512 16773120 4096
ok "the snapshot shows the old content" same /dev/mapper/s "$TEST_TMP/old"
ok "a second snapshot is made in the same store" snap_up s2 "$base" "$store" P 8 id 7 create
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put /dev/mapper/o "$TEST_TMP/now" 0 8192 2097152 65536
put /dev/mapper/s "$TEST_TMP/old" 12288 4096 8388608 1024 1048576 512
put /dev/mapper/s2 "$TEST_TMP/old2" 4096 4096 9437184 1048576
ok "the first snapshot has its content" same /dev/mapper/s "$TEST_TMP/old"
ok "the second snapshot has its content" same /dev/mapper/s2 "$TEST_TMP/old2"
ok "the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
used=$(used_sectors s)

remove_and_reload s s2 o
ok "the store is opened again" snap_up s "$base" "$store" P
origin_up o "$base"
ok "opened again, the first snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
is "$(used_sectors s)" "$used" "opened again, the store is as full as it was"
ok "the second snapshot is opened again" snap_up s2 "$base" "$store" P 8 id 7
ok "opened again, the second snapshot is as it was" same /dev/mapper/s2 "$TEST_TMP/old2"
put /dev/mapper/o "$TEST_TMP/now" 4194304 524288 12288 4096
ok "protection of the first snapshot goes on" same /dev/mapper/s "$TEST_TMP/old"
ok "protection of the second snapshot goes on" same /dev/mapper/s2 "$TEST_TMP/old2"

remove_and_reload s s2 o
ok "an origin opens the store itself" origin_up o "$base" store "$store"
put /dev/mapper/o "$TEST_TMP/now" 6291456 262144
ok "a snapshot is made by message" dm message o 0 create 9
cp "$TEST_TMP/now" "$TEST_TMP/old9"
put /dev/mapper/o "$TEST_TMP/now" 6291456 4096 0 4096
ok "the first snapshot is opened beside its origin" snap_up s "$base" "$store" P
ok "the first snapshot is whole although it had no device meanwhile" \
	same /dev/mapper/s "$TEST_TMP/old"
ok "the snapshot made by message is opened" snap_up s9 "$base" "$store" P 8 id 9
ok "the snapshot made by message is right" same /dev/mapper/s9 "$TEST_TMP/old9"
not_ok "a snapshot in use is not deleted" dm message o 0 delete 9
not_ok "a snapshot that is not there is not deleted" dm message o 0 delete 10
not_ok "a snapshot is not made twice" dm message o 0 create 9
dmremove s9
ok "a snapshot not in use is deleted" dm message o 0 delete 9
not_ok "a deleted snapshot cannot be opened" snap_up s9 "$base" "$store" P 8 id 9

not_ok "another chunk size is refused" snap_up s9 "$base" "$store" P 16 id 7
not_ok "N is refused in a persistent store" snap_up s9 "$base" "$store" N 8 id 7
not_ok "an id that is not there is refused" snap_up s9 "$base" "$store" P 8 id 8
remove_and_reload s o
not_ok "N is refused in a persistent store that is closed" snap_up s "$base" "$store" N
ok "the first snapshot can still be opened" snap_up s "$base" "$store" P

# What happens to the origin while no table names the store is noticed.
origin_up o "$base"
dmremove s
ok "a store that was away while its origin stayed unwritten is opened" snap_up s "$base" "$store" P
ok "a snapshot that was away while its origin stayed unwritten is as it was" \
	same /dev/mapper/s "$TEST_TMP/old"
dmremove s
put /dev/mapper/o "$TEST_TMP/now" 65536 4096
ok "a store that was away while its origin was written is opened" snap_up s "$base" "$store" P
is "$(status s)" "Invalid" "a snapshot that was away while its origin was written is Invalid"
dmremove s
ok "the store of an Invalid snapshot is opened again" snap_up s "$base" "$store" P
is "$(status s)" "Invalid" "the Invalid snapshot stays Invalid"
dmremove s
dmremove o
