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

ok "a snapshot is made with a size in extents" lvcreate -qq --type cowsnap -s -l 3 -n s1 vg/lv
is "$(lv lv_size vg/s1)" 12.00m "the snapshot has as many extents"
ok "a snapshot is made with a size in percent of the origin" \
	lvcreate -qq --type cowsnap -s -l 100%ORIGIN -n s2 vg/lv
like "$(lv lv_size vg/s2)" '^28.00m' "a size of 100%ORIGIN is all of the origin, and tables"
ok "a snapshot is made with a size in percent of what is free" \
	lvcreate -qq --type cowsnap -s -l 20%FREE -n s3 vg/lv
ok "a snapshot is made with chunks of 64 KiB" \
	lvcreate -qq --type cowsnap -s -L 12M --chunksize 64k -n s4 vg/lv
is "$(lv chunk_size vg/s4)" 64.00k "lvs shows the chunk size"
like "$(dmsetup table vg-s4)" ' P 128$' "the table has the chunk size"
ok "a snapshot is made without -s" lvcreate -qq --type cowsnap -L 12M -n s5 vg/lv
ok "a snapshot is made without a name" lvcreate -qq --type cowsnap -L 12M vg/lv
is "$(lvs --noheadings -o name -S 'origin=lv' vg | wc -l)" 6 "lvs shows all six snapshots"
is "$(lv lv_modules vg/s4 | tr ',' '\n' | grep -c cowsnap)" 1 "lvs shows the module"
is "$(lv lv_role vg/s1)" "public,snapshot,thicksnapshot" "lvs shows the role"
cp "$TEST_TMP/now" "$TEST_TMP/old"
put /dev/vg/lv "$TEST_TMP/now" 0 $((3 * MIB)) $((20 * MIB)) 4096
ok "all five snapshots keep the content" all_same
ok "five snapshots are removed" lvremove -qq -y vg/s2 vg/s3 vg/s4 vg/s5 vg/lvol0

# ---- names, disks, backups

ok "the snapshot is renamed" lvrename -qq vg/s1 vg/snap
ok "the origin is renamed" lvrename -qq vg/lv vg/data
ok "the renamed snapshot keeps its content" same /dev/vg/snap "$TEST_TMP/old"
is "$(lv origin vg/snap)" data "lvs knows the origin's new name"
ok "the group is renamed" vgrename -qq vg wg
ok "the snapshot keeps its content in the renamed group" same /dev/wg/snap "$TEST_TMP/old"
at_exit _rmvg wg
vgrename -qq wg vg
lvrename -qq vg/snap vg/s
lvrename -qq vg/data vg/lv
ok "the store moves to another disk" pvmove -qq -i 1 -n s "${PVS[0]}" "${PVS[1]}"
put /dev/vg/lv "$TEST_TMP/now" $((5 * MIB)) $MIB
ok "the snapshot keeps its content when its store has moved" same /dev/vg/s "$TEST_TMP/old"
ok "the origin moves to another disk" pvmove -qq -i 1 -n lv "${PVS[0]}" "${PVS[1]}"
put /dev/vg/lv "$TEST_TMP/now" $((7 * MIB)) $MIB
ok "the snapshot keeps its content when its origin has moved" same /dev/vg/s "$TEST_TMP/old"
ok "the moved origin keeps its content" same /dev/vg/lv "$TEST_TMP/now"
lvcreate -qq --type cowsnap -s -n s2 --store s vg/lv
cp "$TEST_TMP/now" "$TEST_TMP/old2"
vgchange -qq -an vg
ok "a disk with nothing of it is split off the group" vgsplit -qq vg wg "${PVS[0]}"
is "$(lvs --noheadings -o name vg | tr -d ' \n')" "lvss2" "all LVs stay in their group"
vgmerge -qq vg wg
ok "a disk with all of it is split off the group" vgsplit -qq vg wg "${PVS[1]}"
vgchange -qq -ay wg
ok "the snapshot keeps its content in the group split off" same /dev/wg/s "$TEST_TMP/old"
ok "the second snapshot in its store keeps its content in the group split off" \
	same /dev/wg/s2 "$TEST_TMP/old2"
vgchange -qq -an wg
vgmerge -qq vg wg
vgchange -qq -ay vg
lvremove -qq -y vg/s2
ok "the store grows" lvextend -qq -L +8M vg/s
like "$(dmsetup status vg-s)" '/40960 ' "the module knows the store's new size"
ok "a backup of the metadata is made" vgcfgbackup -qq -f "$TEST_TMP/backup" vg
like "$(<"$TEST_TMP/backup")" 'striped\+COWSNAP' "the backup says who may activate the LVs"
vgchange -qq -an vg
ok "the backup is restored" vgcfgrestore -qq --force -f "$TEST_TMP/backup" vg
ok "the restored group is activated" vgchange -qq -ay vg
ok "the restored snapshot keeps its content" same /dev/vg/s "$TEST_TMP/old"
vgchange -qq -an vg
ok "the origin grows, while it is not active" lvextend -qq -L +4M vg/lv
vgchange -qq -ay vg
ok "the snapshot does not grow with its origin" same /dev/vg/s "$TEST_TMP/old"
truncate -s 28M "$TEST_TMP/now" "$TEST_TMP/old"
put /dev/vg/lv "$TEST_TMP/now" $((24 * MIB)) $((4 * MIB)) $((23 * MIB)) $MIB
ok "the snapshot does not change with the grown origin" \
	cmp -n $((24 * MIB)) /dev/vg/s "$TEST_TMP/old"
ok "the snapshot is made read only" lvchange -qq -p r vg/s
ok "the origin is refreshed" lvchange -qq --refresh vg/lv
ok "the read-only snapshot keeps its content" cmp -n $((24 * MIB)) /dev/vg/s "$TEST_TMP/old"
lvchange -qq -p rw vg/s

# ---- merging

exec {held}<>/dev/vg/lv
ok "a merge can be asked for while the origin is in use" lvconvert --merge vg/s
like "$(<"$TEST_TMP/out")" 'next activation' "the merge is put off while the origin is in use"
is "$(target vg-s)" cowsnap "the snapshot stays until the merge"
ok "the origin keeps its content until the merge" same /dev/vg/lv "$TEST_TMP/now"
exec {held}>&-
ok "the group is activated again" bash -c 'vgchange -qq -an vg && vgchange -qq -ay vg'
is "$(target vg-lv)" cowsnap-merge "the merge begins at the next activation"
ok "the origin is at once what it was" cmp -n $((24 * MIB)) /dev/vg/lv "$TEST_TMP/old"
ok "polling brings the merge to its end" lvchange -qq --poll y vg/lv
ok "the merged snapshot is gone" wait_for 90 bash -c '! lvs vg/s'
ok "the merged origin is what it was" cmp -n $((24 * MIB)) /dev/vg/lv "$TEST_TMP/old"
is "$(target vg-lv)" linear "the merged origin is a plain LV"

# ---- back and forth

ok "an LV is made a snapshot's store" bash -c '
	lvcreate -qq -y -Wn -L 12M -n c vg && lvconvert -qq -y --type cowsnap vg/lv vg/c'
is "$(target vg-c)" cowsnap "the snapshot made of an LV is of type cowsnap"
ok "a snapshot is split off its origin" lvconvert -qq -y --splitsnapshot vg/c

# ---- what is said of it

like "$(lvm help lvcreate)" 'lvcreate --type cowsnap --store LV LV' \
	"lvm help lvcreate knows the type"
like "$(lvcreate --longhelp)" 'in the store of another one' \
	"lvcreate --longhelp knows shared stores"
like "$(lvconvert --help)" 'lvconvert --type cowsnap' "lvconvert --help knows the type"
like "$(sed 's/[\]//g' "$LVM2_TREE/usr/share/man/man8/lvcreate.8")" \
	'Snapshots of type cowsnap.*Make the snapshot in the store of this other' \
	"the manual page of lvcreate knows type and shared stores"
