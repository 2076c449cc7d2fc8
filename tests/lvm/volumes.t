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

ok "a snapshot is made with a size in extents" lvcreate -q -s -l 16 -n extents vg/lv
is "$(column vg/extents lv_size --units m)" 4.00m "a size in extents is that size"
ok "a snapshot is made with a size in percent of the origin" \
	lvcreate -q -s -l 50%ORIGIN -n half vg/lv "$pv2"
is "$(column vg/half lv_size --units m)" 8.25m \
	"a size in percent of the origin is that size, and what tables take"
ok "a snapshot is made with a size in percent of what is free" \
	lvcreate -q -s -l 5%FREE -n free -c 64k vg/other
ok "a snapshot is made with a size in percent of the group" \
	lvcreate -q -s -l 3%VG -n vgpart vg/other
not_ok "a name in use is refused" lvcreate -q -s -l 4 -n half vg/lv
not_ok "a snapshot of a snapshot is refused" lvcreate -q -s -l 4 -n twice vg/half
ok "nothing is left of a snapshot of a snapshot" no_such_lv vg/twice
not_ok "a store of less than three chunks is refused" lvcreate -q -s -l 1 -c 512k -n tiny vg/lv
ok "nothing is left of a store of less than three chunks" no_such_lv vg/tiny
ok "a snapshot is made with a name that needs quoting" lvcreate -q -s -l 8 -n a-b.c+d_e vg/lv
ok "the snapshot with a name that needs quoting shows the origin" \
	same /dev/vg/a-b.c+d_e "$TEST_TMP/old"
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

ok "all volumes and snapshots are right" data_is_right
ok "a snapshot that may only be read is made" lvcreate -q -s -pr -l 8 -n readonly vg/second
like "$(column vg/readonly lv_attr)" '^sri-a-s' "LVM knows that the snapshot may only be read"
not_ok "a snapshot that may only be read is not written" put /dev/vg/readonly - 0 4096
ok "the group is renamed" vgrename -q vg vg2
ok "the group is renamed back" vgrename -q vg2 vg
ok "all are right after the group was renamed" data_is_right

# ---- another disk below

ok "a store is moved to another disk" pvmove -q -i 1 -n half "$pv2" "$pv1"
like "$(column vg/half devices)" "^$pv1" "the moved store is on the other disk"
ok "all are right after the store was moved" data_is_right
put /dev/vg/lv "$TEST_TMP/lv" $((9 * MIB)) $MIB
ok "all are right after writes beside the moved store" data_is_right
ok "the origin is moved while it is written" pvmove -q -i 1 -n lv "$pv1" "$pv2"
ok "all are right after the origin was moved" data_is_right
ok "the origin is refreshed" lvchange -q --refresh vg/lv
ok "all are right after the origin was refreshed" data_is_right

# ---- metadata

ok "vgcfgbackup makes a backup" vgcfgbackup -q -f "$TEST_TMP/backup" vg
down
vgremove -q -ff vg
# Only the metadata of the group was removed: lvremove would not discard either.
ok "vgcfgrestore restores the group" vgcfgrestore -q -f "$TEST_TMP/backup" vg
ok "the group is activated" up
ok "all are right after the group was restored" data_is_right
down
like "$(lvextend -L +4M vg/lv 2>&1)" 'successfully resized' "an origin that is not active is extended"
up
ok "a snapshot of the extended origin keeps its length, and is right" \
	same /dev/vg/half "$TEST_TMP/old"
truncate -s 20M "$TEST_TMP/lv"
dd if=/dev/vg/lv of="$TEST_TMP/lv" bs=1M skip=16 seek=16 conv=notrunc status=none
put /dev/vg/lv "$TEST_TMP/lv" $((16 * MIB - 65536)) 131072 $((19 * MIB)) $MIB
ok "all are right when the new part of the origin is written" data_is_right
ok "a snapshot of the extended origin is made" lvcreate -q -s -l 16 -n longer vg/lv
ok "the snapshot of the extended origin has its data" same /dev/vg/longer "$TEST_TMP/lv"
ok "all volumes are removed" lvremove -q -ff vg

# ---- no origin at all

ok "a volume of 1 TiB is made in 8 MiB" lvcreate -q -s --virtualsize 1T -L 8M -n sparse vg
ok "a volume of 1 TiB takes a filesystem" mkfs.ext4 -q -F -E nodiscard /dev/vg/sparse 4M
put_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB
ok "a volume of 1 TiB is written at 900 GiB" all_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB
down
up
ok "a volume of 1 TiB has what was written when activated again" \
	all_letter /dev/vg/sparse Z $((900 * 1024 * MIB)) $MIB
ok "a volume of 1 TiB is removed" lvremove -q -ff vg/sparse

# ---- a filesystem

sums()
{
	(cd "$1" && find . -type f -exec sha256sum {} + | sort)
}

lvcreate -q -y -L 32M -n lv vg "$pv1" >/dev/null
dir=$(mkmount /dev/vg/lv ext4)
cp -r "$TESTS_DIR/functional" "$dir/"
sums "$dir" >"$TEST_TMP/sums"
ok "a snapshot of a mounted filesystem is made" lvcreate -q -s -L 16M -n backup vg/lv "$pv2"
rm -rf "$dir/functional/"[a-l]*
head -c 4M /dev/urandom >"$dir/new"
sync
snapdir=$(domount /dev/vg/backup -o ro)
ok "the snapshot's filesystem has every file as it was" diff "$TEST_TMP/sums" <(sums "$snapdir")
umount "$snapdir"
umount "$dir"
lvconvert -q --merge vg/backup
dir=$(domount /dev/vg/lv)
ok "the merged volume's filesystem has every file as it was" diff "$TEST_TMP/sums" <(sums "$dir")
