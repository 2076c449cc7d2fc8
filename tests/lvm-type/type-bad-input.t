#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What cannot be done is refused in a sentence, with nothing half-made left: types mixed on
# one origin, snapshots of snapshots, a store too small or full, names in use, a disk
# missing or failing, the module missing or of another version.

. "$(dirname "$0")/common.sh"

MIB=1048576
plan 72

# whole ORIGIN IMAGE DESC: a plain LV that can be written.
whole()
{
	is "$(target "${1/\//-}")" linear "$3: the origin is a plain LV"
	put "/dev/$1" "$2" 0 4096
	ok "$3: the origin can be written" same "/dev/$1" "$2"
}

mkvg vg 96M 2
lvcreate -qq -y -Wn -L 16M -n lv vg "${PVS[0]}"
lvcreate -qq -y -Wn -L 16M -n other vg "${PVS[0]}"
fill /dev/vg/lv "$TEST_TMP/now"
lvcreate -qq --type cowsnap -s -L 12M -n s vg/lv "${PVS[1]}"

refused 'Snapshots of snapshots' "a snapshot of a snapshot" \
	lvcreate --type cowsnap -s -L 8M -n t vg/s
refused 'already exists' "a name in use" lvcreate --type cowsnap -s -L 8M -n s vg/lv
modprobe -q dm-snapshot
if dmsetup targets | grep -q '^snapshot '; then
	refused 'snapshots of type cowsnap' "a stock snapshot beside" lvcreate -s -L 8M -n t vg/lv
	lvcreate -qq -s -L 8M -n old vg/other
	refused 'snapshots of type snapshot' "a cowsnap beside stock ones" \
		lvcreate --type cowsnap -s -L 8M -n t vg/other
	lvremove -qq -y vg/old
	rmmod dm_snapshot
else
	for n in 1 2 3 4 5 6; do
		skip "types mixed" "no dm-snapshot in this kernel"
	done
fi
refused 'power of 2' "chunks of 3 KiB" lvcreate --type cowsnap -s -L 8M -c 3k -n t vg/lv
refused 'insufficient free space|Insufficient' "more than there is" \
	lvcreate --type cowsnap -s -l 1000 -n t vg/other "${PVS[1]}"
refused 'requires size|size or extents|Incorrect|No command' "no size" \
	lvcreate --type cowsnap -s -n t vg/lv
refused 'not of vg/other' "the store of another origin's snapshot" \
	lvcreate --type cowsnap -s -n t --store vg/s vg/other
ok "the snapshot is as it was after what was refused" same /dev/vg/s "$TEST_TMP/now"

# ---- a full store

put_letter /dev/vg/lv F 0 $((14 * MIB)) $MIB
image /dev/vg/lv "$TEST_TMP/now"
like "$(lv lv_attr vg/s)" '^swi-I-s' "a full snapshot is shown as invalid"
not_ok "a full snapshot is not merged" lvconvert --merge vg/s
ok "a snapshot can be made in the store of a full one" \
	lvcreate -qq --type cowsnap -s -n t --store s vg/lv
like "$(lv lv_attr vg/t)" '^swi-a-s' "the new snapshot in that store is valid"
ok "the new snapshot in that store is right" same /dev/vg/t "$TEST_TMP/now"
ok "the full snapshot and the new one are removed" lvremove -qq -y vg/s vg/t

write_for_ever()
{
	while :; do
		put_letter /dev/vg/lv W 0 $((16 * MIB)) $MIB
	done
}

write_for_ever &
writer=$!
ok "lvcreate succeeds although the store is full before it has ended" \
	lvcreate -qq --type cowsnap -s -L 4M -n s vg/lv
ok "a store full before lvcreate has ended makes an invalid snapshot" \
	wait_for 60 bash -c 'lvs --noheadings -o lv_attr vg/s | grep -q swi-I'
kill "$writer"
wait "$writer" 2>/dev/null
ok "the snapshot that was full at once is removed" lvremove -qq -y vg/s
image /dev/vg/lv "$TEST_TMP/now"
whole vg/lv "$TEST_TMP/now" "a store full at once"

# ---- what fails when all is made already is taken back

# Another device has the name that the store's is to have.
dmsetup create vg-t-cow --notable
refused 'is not made|Aborting' "a device's name in use" \
	lvcreate --type cowsnap -s -L 8M -n t vg/lv "${PVS[1]}"
dmsetup remove vg-t-cow
whole vg/lv "$TEST_TMP/now" "a device's name in use"
lvcreate -qq --type cowsnap -s -L 12M -n s vg/lv "${PVS[1]}"
dmsetup create vg-t --notable
refused 'is not made|Aborting' "a device's name in use, store shared" \
	lvcreate --type cowsnap -s -n t --store s vg/lv
dmsetup remove vg-t
is "$(dmsetup status vg-lv | grep -o 'snapshots [0-9]*')" "snapshots 1" \
	"a device's name in use, store shared: the store keeps no snapshot"
ok "a device's name in use, store shared: the other snapshot is right" \
	same /dev/vg/s "$TEST_TMP/now"
ok "a device's name free again: the snapshot is made" \
	lvcreate -qq --type cowsnap -s -n t --store s vg/lv
lvremove -qq -y vg/s vg/t

# A disk that takes the zeroes that LVM writes first, and then nothing more: of the two
# superblocks the second stands 4 KiB on. (2.03.31 writes more zeroes, and fails at that.)
good=$(mkloop 64M --sector 4096)
printf '%s\n' "0 2056 linear $good 0" "2056 $(($(sectors "$good") - 2056)) error" |
	dmsetup create bad
at_exit _dmremove bad
sed -i "s,\"a|^/dev/loop|\",\"r|^$good\$|\"\, \"a|^/dev/mapper/bad|\"\, &,
	s,use_devicesfile = 0,& allow_mixed_block_sizes = 1," \
	"$LVM_SYSTEM_DIR/lvm.conf"
vgextend -qq vg /dev/mapper/bad
refused 'is not made|Failed to wipe' "a disk that fails while the store is made" \
	lvcreate --type cowsnap -s -l 2 -n t vg/lv /dev/mapper/bad
whole vg/lv "$TEST_TMP/now" "a disk that fails while the store is made"
vgreduce -qq vg /dev/mapper/bad

# ---- a disk missing

lvcreate -qq --type cowsnap -s -L 12M -n s vg/lv "${PVS[1]}"
vgchange -qq -an vg
cp "$LVM_SYSTEM_DIR/lvm.conf" "$TEST_TMP/conf"
without_disk()
{
	sed -i "s,a|^/dev/loop|,a|^${PVS[0]}\$|," "$LVM_SYSTEM_DIR/lvm.conf"
}

without_disk
not_ok "without the store's disk the origin is not activated" lvchange -ay vg/lv
diag <"$TEST_TMP/out"
is "$(target vg-lv)" "" "without the store's disk the origin is not bare either"
dmsetup ls | grep vg- | diag
cp "$TEST_TMP/conf" "$LVM_SYSTEM_DIR/lvm.conf"
ok "with the store's disk the origin is activated" lvchange -qq -ay vg/lv
ok "with the store's disk the snapshot is right" same /dev/vg/s "$TEST_TMP/now"
lvcreate -qq --type cowsnap -s -n s2 --store s vg/lv
lvcreate -qq --type cowsnap -s -n s3 --store s vg/lv
lvremove -qq -y vg/s
is "$(lvs -a --noheadings -o name vg | tr -d ' ' | sort | tr '\n' ' ')" "[s_cstore0] lv other s2 s3 " \
	"a store stays, hidden, without its own snapshot"
vgchange -qq -an vg
without_disk
ok "a snapshot in a store whose disk is missing is removed" lvremove -qq -y vg/s2
ok "a disk missing for ever is taken out of the group" vgreduce -qq --removemissing --force vg
is "$(lvs -a --noheadings -o name vg | tr -d ' ' | sort | tr '\n' ' ')" "lv other " \
	"the hidden store on the missing disk is gone, with its snapshots"
is "$(dmsetup ls | grep -c '^vg-')" 0 "no device is left of the missing store"
ok "the origin is activated without the missing store" lvchange -qq -ay vg/lv
whole vg/lv "$TEST_TMP/now" "without the missing store"
cp "$TEST_TMP/conf" "$LVM_SYSTEM_DIR/lvm.conf"
dd if=/dev/zero of="${PVS[1]}" bs=1M count=1 status=none

# ---- the module

vgchange -qq -an vg
rmmod dm_cowsnap
mkdir -p "$TEST_TMP/none"
mount --bind "$TEST_TMP/none" /lib/modules
vgchange -qq -ay vg
refused 'not detected in your kernel' "the module missing" \
	lvcreate --type cowsnap -s -L 8M -n t vg/lv
# The module as it is but for the versions its targets have, which are 0.1.0.
perl -0777 -pe 's/(\0{16})\0{4}\x02\0{7}/$1\0\0\0\0\x01\0\0\0\0\0\0\0/g' "$COWSNAP_KO" >"$TEST_TMP/dm-cowsnap.ko"
insmod "$TEST_TMP/dm-cowsnap.ko"
like "$(dmsetup targets | tr -s ' \n' ' ')" 'cowsnap v0\.1\.0' "a module of another version is there"
refused 'version 0\.1\.0, and 0\.2\.0 is needed' "the module of another version" \
	lvcreate --type cowsnap -s -L 8M -n t vg/lv
rmmod dm_cowsnap
insmod "$COWSNAP_KO"
ok "with the right module the snapshot is made" lvcreate -qq --type cowsnap -s -L 8M -n t vg/lv
