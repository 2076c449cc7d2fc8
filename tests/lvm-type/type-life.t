#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The life of a snapshot of type cowsnap: made in each way of saying its size, renamed, moved
# between disks, grown, restored from a backup of the metadata, merged at once or
# at the next activation, and its content right all along; and what help says of it.

. "$(dirname "$0")/common.sh"

MIB=1048576
plan 62

mkvg vg 192M 2
lvcreate -qq -y -Wn -L 24M -n lv vg "${PVS[0]}"
fill /dev/vg/lv "$TEST_TMP/now"

all_same()
{
	local n

	for n in 1 2 3 4 5; do
		same "/dev/vg/s$n" "$TEST_TMP/old" || return
	done
}

# ---- sizes

ok "in extents" lvcreate -qq --type cowsnap -s -l 3 -n s1 vg/lv
is "$(lv lv_size vg/s1)" 12.00m "it has them"
ok "in percent of the origin" lvcreate -qq --type cowsnap -s -l 100%ORIGIN -n s2 vg/lv
like "$(lv lv_size vg/s2)" '^28.00m' "all of it, and tables"
ok "in percent of what is free" lvcreate -qq --type cowsnap -s -l 20%FREE -n s3 vg/lv
ok "with chunks of 64 KiB" lvcreate -qq --type cowsnap -s -L 12M --chunksize 64k -n s4 vg/lv
is "$(lv chunk_size vg/s4)" 64.00k "lvs shows them"
like "$(dmsetup table vg-s4)" ' P 128$' "so does the table"
ok "without -s" lvcreate -qq --type cowsnap -L 12M -n s5 vg/lv
ok "without a name" lvcreate -qq --type cowsnap -L 12M vg/lv
is "$(lvs --noheadings -o name -S 'origin=lv' vg | wc -l)" 6 "six of them"
is "$(lv lv_modules vg/s4 | tr ',' '\n' | grep -c cowsnap)" 1 "lvs shows the module"
is "$(lv lv_role vg/s1)" "public,snapshot,thicksnapshot" "and the role"
cp "$TEST_TMP/now" "$TEST_TMP/old"
put /dev/vg/lv "$TEST_TMP/now" 0 $((3 * MIB)) $((20 * MIB)) 4096
ok "all keep the content" all_same
ok "five are removed" lvremove -qq -y vg/s2 vg/s3 vg/s4 vg/s5 vg/lvol0

# ---- names, disks, backups

ok "it is renamed" lvrename -qq vg/s1 vg/snap
ok "its origin too" lvrename -qq vg/lv vg/data
ok "the content stays" same /dev/vg/snap "$TEST_TMP/old"
is "$(lv origin vg/snap)" data "lvs knows"
ok "the group is renamed" vgrename -qq vg wg
ok "the content stays" same /dev/wg/snap "$TEST_TMP/old"
at_exit _rmvg wg
vgrename -qq wg vg
lvrename -qq vg/snap vg/s
lvrename -qq vg/data vg/lv
ok "the store moves to another disk" pvmove -qq -i 1 -n s "${PVS[0]}" "${PVS[1]}"
put /dev/vg/lv "$TEST_TMP/now" $((5 * MIB)) $MIB
ok "the content stays" same /dev/vg/s "$TEST_TMP/old"
ok "the origin moves" pvmove -qq -i 1 -n lv "${PVS[0]}" "${PVS[1]}"
put /dev/vg/lv "$TEST_TMP/now" $((7 * MIB)) $MIB
ok "the content stays" same /dev/vg/s "$TEST_TMP/old"
ok "and the origin's" same /dev/vg/lv "$TEST_TMP/now"
lvcreate -qq --type cowsnap -s -n s2 --store s vg/lv
cp "$TEST_TMP/now" "$TEST_TMP/old2"
vgchange -qq -an vg
ok "a disk with nothing of it is split off the group" vgsplit -qq vg wg "${PVS[0]}"
is "$(lvs --noheadings -o name vg | tr -d ' \n')" "lvss2" "all stay"
vgmerge -qq vg wg
ok "a disk with all of it is" vgsplit -qq vg wg "${PVS[1]}"
vgchange -qq -ay wg
ok "the content stays" same /dev/wg/s "$TEST_TMP/old"
ok "in the shared store too" same /dev/wg/s2 "$TEST_TMP/old2"
vgchange -qq -an wg
vgmerge -qq vg wg
vgchange -qq -ay vg
lvremove -qq -y vg/s2
ok "the store grows" lvextend -qq -L +8M vg/s
like "$(dmsetup status vg-s)" '/40960 ' "the module knows"
ok "a backup of the metadata" vgcfgbackup -qq -f "$TEST_TMP/backup" vg
like "$(<"$TEST_TMP/backup")" 'striped\+COWSNAP' "says who may activate them"
vgchange -qq -an vg
ok "it is restored" vgcfgrestore -qq --force -f "$TEST_TMP/backup" vg
ok "and activates" vgchange -qq -ay vg
ok "the content stays" same /dev/vg/s "$TEST_TMP/old"
vgchange -qq -an vg
ok "the origin grows, while it is not active" lvextend -qq -L +4M vg/lv
vgchange -qq -ay vg
ok "the snapshot does not" same /dev/vg/s "$TEST_TMP/old"
truncate -s 28M "$TEST_TMP/now" "$TEST_TMP/old"
put /dev/vg/lv "$TEST_TMP/now" $((24 * MIB)) $((4 * MIB)) $((23 * MIB)) $MIB
ok "nor does it change with it" cmp -n $((24 * MIB)) /dev/vg/s "$TEST_TMP/old"
ok "permission: read only" lvchange -qq -p r vg/s
ok "refreshed" lvchange -qq --refresh vg/lv
ok "the content stays" cmp -n $((24 * MIB)) /dev/vg/s "$TEST_TMP/old"
lvchange -qq -p rw vg/s

# ---- merging

exec {held}<>/dev/vg/lv
ok "merged, while the origin is in use" lvconvert --merge vg/s
like "$(<"$TEST_TMP/out")" 'next activation' "which is put off"
is "$(target vg-s)" cowsnap "the snapshot stays"
ok "the content stays" same /dev/vg/lv "$TEST_TMP/now"
exec {held}>&-
ok "at the next activation" bash -c 'vgchange -qq -an vg && vgchange -qq -ay vg'
is "$(target vg-lv)" cowsnap-merge "it begins"
ok "the origin is what it was at once" cmp -n $((24 * MIB)) /dev/vg/lv "$TEST_TMP/old"
ok "and ends" lvchange -qq --poll y vg/lv
ok "with the snapshot gone" wait_for 90 bash -c '! lvs vg/s'
ok "the origin is what it was" cmp -n $((24 * MIB)) /dev/vg/lv "$TEST_TMP/old"
is "$(target vg-lv)" linear "and a plain LV"

# ---- back and forth

ok "an LV is made a snapshot's store" bash -c '
	lvcreate -qq -y -Wn -L 12M -n c vg && lvconvert -qq -y --type cowsnap vg/lv vg/c'
is "$(target vg-c)" cowsnap "of this type"
ok "and split off" lvconvert -qq -y --splitsnapshot vg/c

# ---- what is said of it

like "$(lvm help lvcreate)" 'lvcreate --type cowsnap --store LV LV' "help knows the type"
like "$(lvcreate --longhelp)" 'in the store of another one' "long help too"
like "$(lvconvert --help)" 'lvconvert --type cowsnap' "and lvconvert's"
like "$(sed 's/[\]//g' "$LVM2_TREE/usr/share/man/man8/lvcreate.8")" \
	'Snapshots of type cowsnap.*Make the snapshot in the store of this other' "the manual page too"
