#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Snapshots in one store, lvcreate --store: each keeps its own instant, the second costs no
# second copy, any of them can be removed or merged, and the store goes with the last.

. "$(dirname "$0")/common.sh"

MIB=1048576
plan 46

# store_writes: sectors written to the store's device so far.
store_writes()
{
	awk '{ print $7 }' "/sys/dev/block/$(dmsetup info -c --noheadings -o major,minor vg-s1-cow)/stat"
}

names()
{
	lvs --noheadings -o name "$@" vg | tr -d ' ' | sort | tr '\n' ' '
}

exact_copies
mkvg vg 256M
lvcreate -qq -y -Wn -L 20M -n lv vg
fill /dev/vg/lv "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old1"
ok "a first snapshot is made" lvcreate --type cowsnap -s -L 64M -n s1 vg/lv
put /dev/vg/lv "$TEST_TMP/now" 0 $MIB
cp "$TEST_TMP/now" "$TEST_TMP/old2"
ok "a second snapshot is made in the store of the first" \
	lvcreate --type cowsnap -s -n s2 --store vg/s1 vg/lv
like "$(dmsetup table vg-s2)" ' P 8 2 id 1$' "the second snapshot has a number in the store"
put /dev/vg/lv "$TEST_TMP/now" $((2 * MIB)) $MIB
cp "$TEST_TMP/now" "$TEST_TMP/old3"
ok "a third snapshot is made by the second's name" lvcreate --type cowsnap -s -n s3 --store s2 vg/lv
is "$(lv lv_attr,origin,pool_lv vg/s3)" "swi-a-s---lvs1" \
	"lvs shows the third's origin, and whose store it is in"
before=$(store_writes)
put /dev/vg/lv "$TEST_TMP/now" $((8 * MIB)) $((2 * MIB))
after=$(store_writes)
like "$((after - before))" '^4[0-9]{3}$' "a write under three snapshots is copied once"

all_same()
{
	local n

	for n in 1 2 3; do
		same "/dev/vg/s$n" "$TEST_TMP/old$n" || return
	done
}

ok "each of three snapshots has its content" all_same
is "$(lv data_percent vg/s2)" "$(lv data_percent vg/s1)" \
	"lvs shows for the second how full the store is"
vgchange -qq -an vg
is "$(dmsetup ls 2>/dev/null | grep -c '^vg-')" 0 "the group is deactivated"
ok "the group is activated again" vgchange -qq -ay vg
ok "each snapshot has its content when activated again" all_same
not_ok "the stock lvm2 activates nothing of it" stock vgchange -ay vg
ok "the store is extended by another snapshot's name" lvextend -qq -L +8M vg/s3
is "$(dmsetup status vg-s2 | sed 's,.*/\([0-9]*\) .*,\1,')" $((72 * 2048)) \
	"the extended store is larger"
vgchange -qq -an vg
ok "metadata is restored from its backup" vgcfgrestore -qq vg
ok "the restored group is activated" vgchange -qq -ay vg
ok "the first snapshot is renamed" lvrename -qq vg/s1 vg/first
ok "the origin is renamed" lvrename -qq vg/lv vg/data
ok "the renamed origin is refreshed" lvchange --refresh vg/data
is "$(lv pool_lv vg/s3)" first "the third is in the store of the renamed one"
lvrename -qq vg/first vg/s1
lvrename -qq vg/data vg/lv
ok "each snapshot has its content after renaming" all_same

ok "the snapshot that has the store is removed" lvremove -y vg/s1
is "$(names)" "lv s2 s3 " "the snapshot that had the store is gone"
like "$(names -a)" '\[s1_cstore0\]' "the store of the removed snapshot is hidden"
ok "the second snapshot has its content without the first" same /dev/vg/s2 "$TEST_TMP/old2"
ok "the name of the removed snapshot can be used again" \
	lvcreate --type cowsnap -s -n s1 --store s2 vg/lv
cp "$TEST_TMP/now" "$TEST_TMP/old1"
put /dev/vg/lv "$TEST_TMP/now" 0 65536 $((15 * MIB)) $MIB
ok "each snapshot has its content beside a new first" all_same
vgchange -qq -an vg
ok "the group with a hidden store is activated again" vgchange -qq -ay vg
ok "each snapshot in a hidden store has its content" all_same
ok "the hidden store grows" lvextend -qq -L +8M vg/s2
ok "the new first snapshot is removed while not active" \
	bash -c 'vgchange -qq -an vg && lvremove -y vg/s1 && vgchange -qq -ay vg'
like "$(dmsetup status vg-s2)" ' cowsnap [0-9]+/' "the other snapshots are valid"

ok "the third snapshot is merged" lvconvert --merge -i 1 vg/s3
ok "the merged origin is what it was" same /dev/vg/lv "$TEST_TMP/old3"
is "$(names)" "lv s2 " "the merged snapshot is gone"
ok "the second snapshot is what it was after the merge" same /dev/vg/s2 "$TEST_TMP/old2"
cp "$TEST_TMP/old3" "$TEST_TMP/now"
put /dev/vg/lv "$TEST_TMP/now" $((17 * MIB)) $MIB
ok "the second snapshot stays so when the origin is written" same /dev/vg/s2 "$TEST_TMP/old2"
ok "the last snapshot is removed" lvremove -y vg/s2
is "$(names -a)" "lv " "the store goes with the last snapshot"
is "$(target vg-lv)" linear "the origin is a plain LV"
ok "the plain LV has its content" same /dev/vg/lv "$TEST_TMP/now"

lvcreate -qq --type cowsnap -s -L 32M -n s1 vg/lv
lvcreate -qq --type cowsnap -s -n s2 --store s1 vg/lv
ok "the snapshot that has the store is merged" lvconvert --merge -i 1 vg/s1
is "$(names)" "lv s2 " "the other snapshot stays when the store's own was merged"
ok "the other snapshot has its content" same /dev/vg/s2 "$TEST_TMP/now"
not_ok "a snapshot that does not exist has no store" lvcreate -qq --type cowsnap -s -n x --store nix vg/lv
ok "origin and all snapshots are removed at once" lvremove -y vg/lv
