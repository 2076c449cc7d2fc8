#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# All that LVM does with volumes that have snapshots: sizes in every form, several volumes,
# names, a store moved to another disk, a grown origin, backup and restore of the
# metadata, origins that are not there, a filesystem; and the data stays right.

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 48
in_snapshots_place || bail_out "the module is not loaded"
vg_up 192M || bail_out "no volume group"
lv_up 16M || bail_out "no volume"
lv_up 8M other || bail_out "no second volume"
cp "$TEST_TMP/lv" "$TEST_TMP/old"
cp "$TEST_TMP/other" "$TEST_TMP/old.other"

# ---- sizes, names

ok "a size in extents" lvcreate -q -s -l 16 -n extents vg/lv
is "$(column vg/extents lv_size --units m)" 4.00m "is that size"
ok "in percent of the origin" lvcreate -q -s -l 50%ORIGIN -n half vg/lv "$pv2"
is "$(column vg/half lv_size --units m)" 8.25m "is that size, and what tables take"
ok "in percent of what is free" lvcreate -q -s -l 5%FREE -n free -c 64k vg/other
ok "in percent of the group" lvcreate -q -s -l 3%VG -n vgpart vg/other
not_ok "a name in use is refused" lvcreate -q -s -l 4 -n half vg/lv
not_ok "a snapshot of a snapshot too" lvcreate -q -s -l 4 -n twice vg/half
ok "nothing is left of it" no_such_lv vg/twice
not_ok "and a store of less than three chunks" lvcreate -q -s -l 1 -c 512k -n tiny vg/lv
ok "nothing is left of that" no_such_lv vg/tiny
ok "a name that needs quoting" lvcreate -q -s -l 8 -n a-b.c+d_e vg/lv
ok "it is the origin" same /dev/vg/a-b.c+d_e "$TEST_TMP/old"
ok "a snapshot is renamed" lvrename -q vg/a-b.c+d_e renamed
ok "an origin is renamed" lvrename -q vg/other second
put /dev/vg/lv "$TEST_TMP/lv" 4096 4096 $((3 * MIB)) 200704
put /dev/vg/second "$TEST_TMP/other" $MIB $MIB

data_is_right()
{
	local snap

	same /dev/vg/lv "$TEST_TMP/lv" && same /dev/vg/second "$TEST_TMP/other" || return
	for snap in extents half renamed; do
		same "/dev/vg/$snap" "$TEST_TMP/old" || return
	done
	for snap in free vgpart; do
		same "/dev/vg/$snap" "$TEST_TMP/old.other" || return
	done
}

ok "all of them are right" data_is_right
ok "a snapshot that may only be read" lvcreate -q -s -pr -l 8 -n readonly vg/second
like "$(column vg/readonly lv_attr)" '^sri-a-s' "LVM knows"
not_ok "is not written" put /dev/vg/readonly - 0 4096
ok "the group is renamed" vgrename -q vg vg2
ok "and back" vgrename -q vg2 vg
ok "all are right" data_is_right

# ---- another disk below

ok "a store is moved to another disk" pvmove -q -i 1 -n half "$pv2" "$pv1"
like "$(column vg/half devices)" "^$pv1" "there it is"
ok "all are right" data_is_right
put /dev/vg/lv "$TEST_TMP/lv" $((9 * MIB)) $MIB
ok "also after more writes" data_is_right
ok "the origin is moved while it is written" pvmove -q -i 1 -n lv "$pv1" "$pv2"
ok "all are right" data_is_right
ok "refreshed" lvchange -q --refresh vg/lv
ok "all are right" data_is_right

# ---- metadata

ok "vgcfgbackup" vgcfgbackup -q -f "$TEST_TMP/backup" vg
down
vgremove -q -ff vg
# Only the metadata of the group was removed: lvremove would not discard either.
ok "vgcfgrestore" vgcfgrestore -q -f "$TEST_TMP/backup" vg
ok "the group is activated" up
ok "all are right" data_is_right
down
like "$(lvextend -L +4M vg/lv 2>&1)" 'successfully resized' "an origin that is not active is extended"
up
ok "its snapshots keep their length, and are right" same /dev/vg/half "$TEST_TMP/old"
truncate -s 20M "$TEST_TMP/lv"
dd if=/dev/vg/lv of="$TEST_TMP/lv" bs=1M skip=16 seek=16 conv=notrunc status=none
put /dev/vg/lv "$TEST_TMP/lv" $((16 * MIB - 65536)) 131072 $((19 * MIB)) $MIB
ok "and stay so when the new part is written" data_is_right
ok "a snapshot as long as the origin is now" lvcreate -q -s -l 16 -n longer vg/lv
ok "has its data" same /dev/vg/longer "$TEST_TMP/lv"
ok "all volumes are removed" lvremove -q -ff vg

# ---- no origin at all

ok "a volume of 1 TiB in 8 MiB" lvcreate -q -s --virtualsize 1T -L 8M -n sparse vg
ok "takes a filesystem" mkfs.ext4 -q -F -E nodiscard /dev/vg/sparse 4M
put_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB
is "$(not_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB)" 0 "is written at 900 GiB"
down
up
is "$(not_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB)" 0 "and has it when activated again"
ok "it is removed" lvremove -q -ff vg/sparse

# ---- a filesystem

sums()
{
	(cd "$1" && find . -type f -exec sha256sum {} + | sort)
}

lvcreate -q -y -L 32M -n lv vg "$pv1" >/dev/null
dir=$(mkmount /dev/vg/lv ext4)
cp -r "$TESTS_DIR/functional" "$dir/"
sums "$dir" >"$TEST_TMP/sums"
ok "a snapshot of a mounted filesystem" lvcreate -q -s -L 16M -n backup vg/lv "$pv2"
rm -rf "$dir/functional/"[a-l]*
head -c 4M /dev/urandom >"$dir/new"
sync
snapdir=$(domount /dev/vg/backup -o ro)
ok "has every file as it was" diff "$TEST_TMP/sums" <(sums "$snapdir")
umount "$snapdir"
umount "$dir"
lvconvert -q --merge vg/backup
dir=$(domount /dev/vg/lv)
ok "and after the merge so has the volume" diff "$TEST_TMP/sums" <(sums "$dir")
