#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# lvchange --sealed: origins whose first sectors, and whose redirected writes, are in the store of
# their snapshots. LVM names the store, keeps it as long as it is needed, and refuses what would part
# the two; an lvm2 that knows no seals activates nothing of it and changes nothing.

. "$(dirname "$0")/common.sh"

MIB=1048576
need_command
plan 194
# Commands of LVM run it.
PATH=$(dirname "$tool"):$PATH

# is_sealed WHERE: what the metadata says of vg/lv.
is_sealed()
{
	vgcfgbackup -qq -f "$TEST_TMP/backup" vg
	grep -q 'striped+COWSNAP+SEALED' "$TEST_TMP/backup" && grep -q 'sealed = 1' "$TEST_TMP/backup"
}

up()
{
	lvchange -qq -ay vg/lv
}

down()
{
	lvchange -qq -an vg/lv
}

devices()
{
	dmsetup ls 2>/dev/null | grep -o '^vg-[^[:space:]]*' | sort | tr '\n' ' '
}

# redirect: writes go to the store, and stay there.
redirect()
{
	dmsetup message vg-lv 0 set settle off
	dmsetup message vg-lv 0 set redirect 60
}

unsettled()
{
	dmsetup message vg-lv 0 list | grep -o 'unsettled [0-9]*'
}

# begins_with DEVICE: what blkid, mount and LVM would look at.
begins_with()
{
	dd if="$1" bs=4096 count=1 iflag=direct status=none | head -c 15
}

exact_copies
mkvg vg 160M 2
lvcreate -qq -y -Wn -L 16M -n lv vg "${PVS[1]}"
fill /dev/vg/lv "$TEST_TMP/now"

# ---- what is refused, and what fails

down
refused 'has no snapshot of type cowsnap' "sealing without a snapshot" lvchange --sealed y vg/lv
up
lvcreate -qq --type cowsnap -s -L 40M -n s vg/lv "${PVS[0]}"
cp "$TEST_TMP/now" "$TEST_TMP/old"
refused 'vg/lv is active.*lvchange -an vg/lv' "sealing an origin in use" lvchange --sealed y vg/lv
lvcreate -qq --type cowsnap -s -L 8M -n other vg/lv "${PVS[0]}"
down
refused 'in the stores of (s and other|other and s)' "sealing with two stores" lvchange --sealed y vg/lv
lvremove -qq -y vg/other

# A command that cannot, and one after which LVM is killed.
mkdir "$TEST_TMP/bin"
stand_in()
{
	printf '#!/bin/bash\n%s\n' "$1" >"$TEST_TMP/bin/cowsnap"
	chmod +x "$TEST_TMP/bin/cowsnap"
}

stand_in 'exit 2'
refused 'vg/lv is not sealed' "sealing by a command that fails" env PATH="$TEST_TMP/bin:$PATH" lvchange --sealed y vg/lv
not_ok "sealing by a command that fails: the metadata says nothing of it" is_sealed
is "$(devices)" "" "sealing by a command that fails: no device is left"
# shellcheck disable=SC2016  # for that script
stand_in 'kill -KILL $PPID; sleep 1'
not_ok "LVM is killed before it is sealed" env PATH="$TEST_TMP/bin:$PATH" lvchange --sealed y vg/lv
ok "killed before it is sealed: the metadata names the seal" is_sealed
ok "killed before it is sealed: so does the backup" grep -q 'sealed = 1' "$LVM_SYSTEM_DIR/backup/vg"
ok "killed before it is sealed: the origin is activated" up
ok "killed before it is sealed: the origin is right" same /dev/vg/lv "$TEST_TMP/now"
ok "killed before it is sealed: the snapshot is right" same /dev/vg/s "$TEST_TMP/old"
down
is "$(devices)" "" "killed before it is sealed: no device is left once it was active"

# ---- sealed

stand_in "\"$tool\" \"\$@\"; kill -KILL \$PPID; sleep 1"
not_ok "LVM is killed after it is sealed" env PATH="$TEST_TMP/bin:$PATH" lvchange --sealed y vg/lv
is "$(begins_with /dev/mapper/vg-lv-real)" "dm-cowsnap seal" "the device begins with a seal"
dd if=/dev/mapper/vg-lv-real of="$TEST_TMP/seal" bs=4096 skip=16 count=1 iflag=direct status=none
ok "the origin is sealed, asked for again" lvchange --sealed y vg/lv
like "$(<"$TEST_TMP/out")" 'vg/lv is sealed' "lvchange says that it is sealed"
ok "the metadata says that it is sealed" is_sealed
is "$(devices)" "" "no device is left of the sealing"
lvchange --test --sealed n vg/lv >/dev/null 2>&1
ok "the sealed origin is activated" up
like "$(dmsetup message vg-lv 0 list)" ' sealed 1 ' "--test opens nothing"
like "$(dmsetup table vg-lv)" "cowsnap-origin [0-9:]+ [0-9]+ store $(dmsetup info -c --noheadings -o major,minor vg-s-cow)" \
	"the table of the sealed origin names the store"
ok "the sealed origin is right" same /dev/vg/lv "$TEST_TMP/now"
is "$(lv pool_lv vg/lv)" s "lvs shows where the store of the sealed origin is"
redirect
put /dev/vg/lv "$TEST_TMP/now" $((2 * MIB)) $((3 * MIB))
is "$(unsettled)" "unsettled 768" "writes are redirected"
ok "the snapshot is right under redirected writes" same /dev/vg/s "$TEST_TMP/old"
down
ok "sealed and redirected: the group is activated" vgchange -qq -ay vg
ok "sealed and redirected: the origin is right" same /dev/vg/lv "$TEST_TMP/now"
is "$(unsettled)" "unsettled 768" "what was redirected is still in the store"
ok "the store of a sealed origin grows" lvextend -qq -L +8M vg/s
like "$(dmsetup status vg-s)" '/98304 ' "the module knows its new size"
refused 'store of vg/lv cannot be reduced' "reducing the store" lvreduce -y -f -L -8M vg/s
is "$(lv lv_size vg/s)" 48.00m "reducing the store: it has its size"
refused 'vg/lv is sealed, and active.*lvchange -an vg/lv' "splitting the store off by force, in use" \
	lvconvert -y --force --splitsnapshot vg/s
like "$(dmsetup table vg-lv)" ' store ' "splitting the store off by force, in use: the origin has it"
if modprobe -q dm-mirror; then
	ok "a sealed origin moves to another disk" pvmove -qq -i 1 -n lv "${PVS[1]}" "${PVS[0]}"
	ok "a sealed origin moves back" pvmove -qq -i 1 -n lv "${PVS[0]}" "${PVS[1]}"
else
	skip "a sealed origin moves to another disk" "no dm-mirror in this kernel"
	skip "a sealed origin moves back" "no dm-mirror in this kernel"
fi
ok "the origin is renamed" lvrename -qq vg/lv vg/data
lvrename -qq vg/data vg/lv
ok "moved, grown and renamed, the origin is right" same /dev/vg/lv "$TEST_TMP/now"

# ---- what takes the device below it for the volume

thin='global { thin_check_executable = "" }'
lvcreate -qq -y --config "$thin" -L 8M -T vg/pool
lvcreate -qq -y -Wn -L 8M -n fast vg
refused 'vg/lv is sealed: below its store' "a thin volume over it" \
	lvconvert -y --config "$thin" --type thin --thinpool pool vg/lv
refused 'vg/lv is sealed: below its store' "a cache over it" lvconvert -y --type cache --cachevol fast vg/lv
lvchange -qq -an vg/fast
refused 'vg/lv is sealed: below its store' "a writecache over it" lvconvert -y --type writecache --cachevol fast vg/lv
lvremove -qq -y vg/fast
ok "after all that the origin is right" same /dev/vg/lv "$TEST_TMP/now"
lvcreate -qq --config "$thin" -V 4M --thinpool pool -n thin vg
lvcreate -qq --type cowsnap -s -L 8M -n t vg/thin "${PVS[0]}"
lvchange -qq -an vg/thin
refused 'vg/thin is of type thin, and cannot be sealed' "sealing a thin volume" lvchange --sealed y vg/thin
lvremove -qq -y --config "$thin" vg/thin
lvremove -qq -y --config "$thin" vg/pool
is "$(names)" "lv s " "nothing is left of it"

# ---- an lvm2 that knows no seals

vgchange -qq -an vg
is_sealed
not_ok "the stock lvm2 does not activate it" stock lvchange -ay vg/lv
not_ok "the stock lvm2 removes no snapshot of it" stock lvremove -y vg/s
like "$(<"$TEST_TMP/out")" 'unknown segments' "the stock lvm2 changes nothing in the group"
# One with the type cowsnap that knows no seals takes the one flag away, and meets the other.
cp "$TEST_TMP/backup" "$TEST_TMP/sealed"
sed 's/+COWSNAP//' "$TEST_TMP/sealed" >"$TEST_TMP/without"
stock vgcfgrestore -qq --force -f "$TEST_TMP/without" vg >"$TEST_TMP/out" 2>&1
not_ok "an lvm2 that knows no seals does not activate it" stock lvchange -ay vg/lv
like "$(<"$TEST_TMP/out")" 'flag(\(s\))? SEALED' "an lvm2 that knows no seals meets their flag"
# It drops what it does not know, and writes the flags that it does in its own order.
sed -e 's/+COWSNAP+SEALED/+SEALED+COWSNAP/' -e '/sealed = 1/d' "$TEST_TMP/sealed" >"$TEST_TMP/turned"
vgcfgrestore -qq --force -f "$TEST_TMP/turned" vg
ok "flags that such an lvm2 wrote name the seal" is_sealed
vgcfgrestore -qq --force -f "$TEST_TMP/sealed" vg
ok "the metadata is as it was" is_sealed

# ---- snapshots of a sealed origin

up
refused 'sealed, and has one store.*--store vg/s' "a store of its own" lvcreate --type cowsnap -s -L 8M -n t vg/lv
ok "a snapshot is made in the store" lvcreate -qq --type cowsnap -s -n t --store s vg/lv
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put /dev/vg/lv "$TEST_TMP/now" $((4 * MIB)) $((3 * MIB))
ok "the second snapshot is right" same /dev/vg/t "$TEST_TMP/old2"
refused 'sealed origin vg/lv. Run lvchange --sealed n vg/lv first' "merging" lvconvert --merge vg/t
ok "the snapshot that has the store is removed" lvremove -qq -y vg/s
is "$(names)" "[s_cstore0] lv t " "the store stays"
refused 'from others in its store' "splitting the store off" \
	lvconvert -y --splitsnapshot vg/s_cstore0
refused 'there are snapshots in it' "removing the store of a snapshot" lvremove -y vg/s_cstore0
ok "the last snapshot is removed" lvremove -qq -y vg/t
is "$(names)" "[s_cstore0] lv " "the store stays without snapshots"
is "$(lv pool_lv vg/lv)" "[s_cstore0]" "lvs shows the hidden store"
ok "the origin is right without snapshots" same /dev/vg/lv "$TEST_TMP/now"
refused 'its origin is sealed. Run lvchange --sealed n vg/lv' "removing the store" lvremove -y vg/s_cstore0
refused 'store of vg/lv cannot be reduced' "reducing the hidden store" lvreduce -y -f -L -8M vg/s_cstore0
is "$(lv lv_size vg/s_cstore0)" 48.00m "reducing the hidden store: it has its size"
down
ok "without snapshots the origin is activated" up
ok "without snapshots the activated origin is right" same /dev/vg/lv "$TEST_TMP/now"
# As if the store could not be told that it is no more.
dmsetup message vg-lv 0 create 0 "$(dmsetup info -c --noheadings -o major,minor vg-s_cstore0-cow)"
ok "a snapshot is made in the hidden store" \
	lvcreate -qq --type cowsnap -s -n u --store s_cstore0 vg/lv
is "$(dmsetup message vg-lv 0 list | grep -c '^snapshot 0 ')" 0 "a snapshot that no LV has goes then"
cp "$TEST_TMP/now" "$TEST_TMP/old"
put /dev/vg/lv "$TEST_TMP/now" $MIB $((2 * MIB)) $((9 * MIB)) $MIB
ok "the new snapshot is right" same /dev/vg/u "$TEST_TMP/old"

# ---- opened again

refused 'vg/lv is active' "opening an origin in use" lvchange --sealed n vg/lv
like "$(unsettled)" 'unsettled [1-9]' "there is something to bring home"
down
stand_in "[[ \$1 != unseal ]] || exit 2; exec \"$tool\" \"\$@\""
refused 'vg/lv is still sealed' "opening by a command that fails" env PATH="$TEST_TMP/bin:$PATH" lvchange --sealed n vg/lv
ok "the origin is opened" lvchange --sealed n vg/lv
not_ok "the metadata says nothing of a seal" is_sealed
up
ok "the opened origin is right" same /dev/vg/lv "$TEST_TMP/now"
ok "the opened origin's snapshot is right" same /dev/vg/u "$TEST_TMP/old"
ok "the opened origin's last snapshot is removed" lvremove -qq -y vg/u
is "$(names)" "lv " "the store goes with the last snapshot"
is "$(target vg-lv)" linear "the origin is a plain LV"
ok "the plain LV is right" same /dev/vg/lv "$TEST_TMP/now"

# begin: sealed, with a snapshot and something redirected, and not active.
begin()
{
	lvcreate -qq --type cowsnap -s -L 40M -n s vg/lv "${PVS[0]}"
	down
	lvchange --sealed y vg/lv >/dev/null
	up
	redirect
	put /dev/vg/lv "$TEST_TMP/now" $((6 * MIB)) $MIB
}

begin
lvremove -qq -y vg/s
down
ok "an origin without snapshots is opened" lvchange --sealed n vg/lv
is "$(names)" "lv " "opened, its store goes"
up
ok "opened without snapshots the origin is right" same /dev/vg/lv "$TEST_TMP/now"

# ---- metadata from before it was sealed

begin
is_sealed
sed -e 's/+SEALED//' -e '/sealed = 1/d' "$TEST_TMP/backup" >"$TEST_TMP/before"
lvextend -qq -L +8M vg/s
down
refused 'vg/lv is sealed.*has nothing.*--force' "restoring metadata from before the seal" \
	vgcfgrestore -f "$TEST_TMP/before" vg
refused 'vg/lv is sealed.*has a part.*--force' "restoring metadata with a smaller store" \
	vgcfgrestore -f "$TEST_TMP/backup" vg
is_sealed
sed -e 's/+SEALED//' -e '/sealed = 1/d' "$TEST_TMP/backup" >"$TEST_TMP/before"
vgcfgrestore -qq --force -f "$TEST_TMP/before" vg
unknown='vg/lv is sealed, and of no use without its store.*lvchange --sealed y vg/lv'
refused "$unknown" "with metadata from before the seal, removing the store" lvremove -y vg/s
refused "$unknown" "with metadata from before the seal, splitting it off" lvconvert -y --splitsnapshot vg/s
refused "$unknown" "with metadata from before the seal, merging" lvconvert -y --merge vg/s
refused "$unknown" "with metadata from before the seal, another store" \
	lvcreate --type cowsnap -s -L 8M -n t vg/lv
is "$(devices)" "" "with metadata from before the seal no device is left of that"
expect_log 'is sealed by store'
not_ok "with metadata from before the seal it is not activated" up
ok "it is sealed anew" lvchange --sealed y vg/lv
ok "sealed anew it is activated" up
ok "sealed anew the origin is right" same /dev/vg/lv "$TEST_TMP/now"
vgcfgrestore -qq -y --force -f "$TEST_TMP/before" vg
refused "$unknown" "restored while it is active, removing the store" lvremove -y vg/s
vgcfgrestore -qq -y --force -f "$TEST_TMP/backup" vg
ok "restored while it is active, and again, the origin is right" same /dev/vg/lv "$TEST_TMP/now"

# ---- an origin that was written without its store

lvcreate -qq --type cowsnap -s -n t --store s vg/lv
down
range=$(lv seg_pe_ranges vg/lv)
dd if=/dev/urandom of="${range%:*}" bs=4096 count=1 conv=notrunc status=none \
	seek=$((256 + 1024 * $(cut -d: -f2 <<<"$range" | cut -d- -f1)))
blockdev --flushbufs "${range%:*}"
expect_log 'was written without its store'
not_ok "written without its store it is not activated" up
is "$(devices)" "" "written without its store: no device is left of that"
refused 'cowsnap settle.*vg/lv is still sealed, and cannot be activated.*--splitsnapshot --force' "written without its store: opening" lvchange --sealed n vg/lv
ok "written without its store: a snapshot is removed" lvremove -qq -y vg/t
refused 'which is sealed. Run lvchange --sealed n' "written without its store: splitting" \
	lvconvert -y --splitsnapshot vg/s
ok "written without its store: the store is split off by force" lvconvert -y --force --splitsnapshot vg/s
like "$(<"$TEST_TMP/out")" 'not whole without vg/s' "splitting by force: a warning says what that means"
refused 'has a seal.*lvconvert --type cowsnap -Zn vg/lv' "taking what was split off for a new store" \
	lvconvert -y --type cowsnap vg/lv vg/s
ok "what was split off is rejoined" lvconvert -y --type cowsnap -Zn vg/lv vg/s
ok "rejoined: the metadata says that it is sealed" is_sealed
not_ok "rejoined: it is not activated, as before" up
ok "rejoined: the store is split off again" lvconvert -y --force --splitsnapshot vg/s
vgchange -qq -ay vg
"$tool" settle -q --keep-store /dev/vg/lv /dev/vg/s >"$TEST_TMP/said" 2>&1
"$tool" unseal --keep-store /dev/vg/lv /dev/vg/s >>"$TEST_TMP/said" 2>&1
diag <"$TEST_TMP/said"
ok "split off, and opened by cowsnap unseal, the origin is right" same /dev/vg/lv "$TEST_TMP/now"
lvremove -qq -y vg/s

# ---- a store that is lost

lvcreate -qq --type cowsnap -s -L 40M -n s vg/lv "${PVS[0]}"
down
lvchange --sealed y vg/lv >/dev/null
up
cp "$LVM_SYSTEM_DIR/lvm.conf" "$TEST_TMP/conf"
sed -i "s,a|^/dev/loop|,a|^${PVS[1]}\$|," "$LVM_SYSTEM_DIR/lvm.conf"
refused 'vg/lv is sealed, and active.*lvchange -an vg/lv' "taking the store's disk out, in use" \
	vgreduce --removemissing --force vg
like "$(dmsetup table vg-lv)" ' store ' "taking the store's disk out, in use: the origin has it"
down
not_ok "without the store's disk the sealed origin is not activated" up
lvremove -qq -y vg/s
is "$(names)" "[s_cstore0] lv " "without its disk the store of a sealed origin stays"
ok "the disk is taken out of the group" vgreduce --removemissing --force vg
like "$(<"$TEST_TMP/out")" 'vg/lv was sealed.*unseal --without-store' "what is lost is said"
is "$(names)" "lv " "the lost store is gone"
up
"$tool" unseal --without-store /dev/vg/lv >"$TEST_TMP/said" 2>&1
diag <"$TEST_TMP/said"
ok "what was not in the lost store is right" cmp -i 69632 /dev/vg/lv "$TEST_TMP/now"
cp "$TEST_TMP/conf" "$LVM_SYSTEM_DIR/lvm.conf"

# ---- all of it goes

mkvg wg 96M
lvcreate -qq -y -Wn -L 16M -n lv wg
fill /dev/wg/lv "$TEST_TMP/now"
lvcreate -qq --type cowsnap -s -L 40M -n s wg/lv
lvcreate -qq --type cowsnap -s -n t --store s wg/lv
lvchange -qq -an wg/lv
lvchange --sealed y wg/lv >/dev/null
ok "a sealed origin grows, while it is not active" lvextend -qq -L +4M wg/lv
lvchange -qq -ay wg/lv
ok "the grown origin is right" cmp -n $((16 * MIB)) /dev/wg/lv "$TEST_TMP/now"
ok "the grown origin's snapshot is right" cmp -n $((16 * MIB)) /dev/wg/t "$TEST_TMP/now"
lvremove -qq -y wg/s
ok "a sealed origin is removed with its snapshots and the store" lvremove -qq -y wg/lv
is "$(lvs --noheadings -a wg)" "" "nothing is left of a sealed origin that was removed"
lvcreate -qq -y -Wn -Zn -L 16M -n lv wg
ok "a volume in its place can have snapshots" lvcreate -qq --type cowsnap -s -L 40M -n s wg/lv
lvremove -qq -y wg/s
# One that nobody knows, as a disk may have it that was used elsewhere.
dd if="$TEST_TMP/seal" of=/dev/wg/lv bs=4096 seek=16 count=1 oflag=direct status=none
not_ok "a volume with an unknown seal gets no snapshot" lvcreate --type cowsnap -s -L 40M -n s wg/lv
like "$(<"$TEST_TMP/out")" 'has a seal of dm-cowsnap in sector 128.*unseal --without-store' \
	"an unknown seal: the reason is given"
is "$(target wg-lv)" linear "an unknown seal: the volume is as it was"
lvcreate -qq -y -Wn -L 40M -n s wg
not_ok "a volume with an unknown seal gets no other volume as a snapshot" \
	lvconvert -y --type cowsnap wg/lv wg/s
like "$(<"$TEST_TMP/out")" 'has a seal of dm-cowsnap' "an unknown seal, with lvconvert: the reason is given"
lvremove -qq -y wg/s
"$tool" unseal --without-store /dev/wg/lv >/dev/null
ok "without it, a snapshot is made" lvcreate -qq --type cowsnap -s -L 40M -n s wg/lv
lvchange -qq -an wg/lv
lvchange --sealed y wg/lv >/dev/null
lvremove -qq -y wg/s
yes | lvremove --config 'devices { issue_discards = 1 }' wg/lv >"$TEST_TMP/said" 2>&1
is "$(grep -c 'remove.*logical volume wg/lv' "$TEST_TMP/said")" 1 "once its seal is gone nothing is asked any more"
is "$(lvs --noheadings -a wg)" "" "it is removed"
lvcreate -qq -y -Wn -Zn -L 16M -n lv wg
lvcreate -qq --type cowsnap -s -L 40M -n s wg/lv
lvchange -qq -an wg/lv
lvchange --sealed y wg/lv >/dev/null
lvremove -qq -y wg/s
ok "a group is removed that has a sealed origin without snapshots" vgremove -qq -f -y wg

like "$(lvchange --help)" "lvchange --sealed y.n LV" "lvchange --help knows seals"
