#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What cannot be done is refused in a sentence, with nothing half-made left: types mixed on
# one origin, snapshots of snapshots, a store too small, names in use, a disk
# missing, the module missing.

. "$(dirname "$0")/common.sh"

MIB=1048576
plan 36

names()
{
	lvs --noheadings -a -o name vg 2>/dev/null | tr -d ' ' | sort | tr '\n' ' '
}

# refused SENTENCE DESC COMMAND...: fails, says so, and leaves LVs as they were.
refused()
{
	local sentence=$1 desc=$2 before

	shift 2
	before=$(names)
	not_ok "$desc: refused" "$@"
	like "$(<"$TEST_TMP/out")" "$sentence" "$desc: the reason is given"
	is "$(names)" "$before" "$desc: nothing is left"
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
ok "the snapshot is as it was" same /dev/vg/s "$TEST_TMP/now"

# ---- full, damaged, missing

put_letter /dev/vg/lv F 0 $((14 * MIB)) $MIB
like "$(lv lv_attr vg/s)" '^swi-I-s' "a full one is shown as invalid"
not_ok "and not merged" lvconvert --merge vg/s
ok "but removed" lvremove -qq -y vg/s

# ---- a disk missing

lvcreate -qq --type cowsnap -s -L 12M -n s vg/lv "${PVS[1]}"
vgchange -qq -an vg
cp "$LVM_SYSTEM_DIR/lvm.conf" "$TEST_TMP/conf"
sed -i "s,a|^/dev/loop|,a|^${PVS[0]}\$|," "$LVM_SYSTEM_DIR/lvm.conf"
not_ok "without the store's disk the origin is not activated" lvchange -ay vg/lv
diag <"$TEST_TMP/out"
is "$(target vg-lv)" "" "and not bare"
dmsetup ls | grep vg- | diag
cp "$TEST_TMP/conf" "$LVM_SYSTEM_DIR/lvm.conf"
ok "with it it is" lvchange -qq -ay vg/lv
ok "and the snapshot right" cmp /dev/vg/s /dev/vg/lv
lvremove -qq -y vg/s

# ---- the module

vgchange -qq -an vg
rmmod dm_cowsnap
mkdir -p "$TEST_TMP/none"
mount --bind "$TEST_TMP/none" /lib/modules
vgchange -qq -ay vg
refused 'not detected in your kernel' "the module missing" \
	lvcreate --type cowsnap -s -L 8M -n t vg/lv
insmod "$COWSNAP_KO"
ok "with the module it is made" lvcreate -qq --type cowsnap -s -L 8M -n t vg/lv
