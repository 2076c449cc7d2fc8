#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# In dm-snapshot's place an LVM that knows nothing of us makes, activates, extends, fills,
# merges and removes its snapshots, of every chunk size, and their data is right. Beside
# dm-snapshot nothing is registered; what does not fit is refused, and the log says why; so is an
# origin that is sealed and has data in its store.

. "$(dirname "$0")/../lvm/common.sh"

need_command
MIB=1048576
SIZES=(4 8 16 32 64 128 256 512)

plan 75

targets()
{
	dmsetup targets | awk '{ print $1, $2 }' | grep -E 'snap' | sort | tr '\n' ' '
}

# refused TABLE: does not load, and the log says why.
refused()
{
	local rc

	dmsetup create refused --table "$1" 2>/dev/null
	rc=$?
	((rc)) || dmsetup remove refused
	dmesg | grep 'table: .*snapshot' | tail -n 1
	((rc))
}

# ---- the names

rmmod dm_cowsnap
if modprobe dm-snapshot; then
	not_ok "with its names claimed the module is not loaded beside dm-snapshot" \
		insmod "$COWSNAP_KO" claim_snapshot=1
	like "$(kernel_log)" 'snapshot-origin is there already: unload dm-snapshot first' \
		"the log says why the module is not loaded"
	unlike=$(targets)
	like "$unlike" '^snapshot v' "what is registered is dm-snapshot's"
	is "${unlike//cowsnap/}" "$unlike" "no target of ours is registered"
	ok "without the names claimed the module is loaded" reload_module
	rmmod dm_cowsnap
	modprobe dm-snapshot
	insmod "$COWSNAP_KO"
	like "$(targets)" 'cowsnap v.* snapshot v' "dm-snapshot and the module stand side by side"
else
	for number in {1..6}; do
		skip "beside dm-snapshot, $number" "no dm-snapshot in this kernel"
	done
fi
ok "the module takes dm-snapshot's place" in_snapshots_place
like "$(targets)" 'snapshot v1\.16\.0 snapshot-merge v1\.5\.0 snapshot-origin v1\.9\.0 $' \
	"the module's targets have dm-snapshot's versions"

# ---- every chunk size, all at once on one origin

vg_up 96M || bail_out "no volume group"
lv_up 8M || bail_out "no volume"
cp "$TEST_TMP/lv" "$TEST_TMP/old"
for size in "${SIZES[@]}"; do
	ok "a snapshot with chunks of ${size}K is made" \
		lvcreate -q -s -c "${size}K" -L 6M -n "s$size" vg/lv "$pv2"
done
is "$(dmsetup table vg-s8)" "0 16384 snapshot $(dmsetup table vg-s8 | awk '{ print $4, $5 }') P 16" \
	"a table is dm-snapshot's"
like "$(line vg/s8)" '^[0-9]+/12288 [0-9]+$' "a status is dm-snapshot's"
is "$(line vg/lv)" "" "the origin's status is dm-snapshot's"
is "$(column vg/s64 origin,chunk_size,lv_attr --units k)" "lv64.00kswi-a-s---" \
	"lvs shows origin, chunk size, attributes"
is "$(column vg/s4 data_percent)" 0.00 "lvs shows that nothing is kept yet"
put /dev/vg/lv "$TEST_TMP/lv" 0 512 4096 4096 $((MIB + 512)) 1024 $((2 * MIB - 4096)) $((MIB + 8192)) \
	$((8 * MIB - 4096)) 4096
isnt "$(column vg/s4 data_percent)" 0.00 "lvs shows that something is kept after a write"
put_letter /dev/vg/s16 P $((5 * MIB)) $((MIB / 4)) 65536
cp "$TEST_TMP/old" "$TEST_TMP/s16"
letters P $((MIB / 4)) | dd of="$TEST_TMP/s16" bs=64K seek=$((5 * 16)) conv=notrunc status=none

all_right()
{
	local size

	same /dev/vg/lv "$TEST_TMP/lv" || return
	for size in "${SIZES[@]}"; do
		if ((size == 16)); then
			same /dev/vg/s16 "$TEST_TMP/s16" || return
		else
			same "/dev/vg/s$size" "$TEST_TMP/old" || return
		fi
	done
}

ok "origin and snapshots have their data" all_right
ok "vgchange -an" down
is "$(dmsetup ls | grep -c vg)" 0 "vgchange -an leaves no device"
ok "vgchange -ay" up
ok "origin and snapshots have their data again" all_right

# ---- larger, smaller, full

ok "a snapshot is extended" lvextend -q -L +1M vg/s32
like "$(line vg/s32)" '/14336 ' "the extended snapshot uses its new room"
ok "five snapshots are removed" lvremove -q -y vg/s64 vg/s128 vg/s256 vg/s512 vg/s8
ok "a small snapshot is made" lvcreate -q -s -l 4 -n small vg/lv "$pv2"
put_letter /dev/vg/lv F 0 $((4 * MIB)) $MIB
letters F $((4 * MIB)) | dd of="$TEST_TMP/lv" bs=1M conv=notrunc status=none
is "$(line vg/small)" Invalid "the small snapshot is Invalid when it is full"
like "$(column vg/small lv_attr)" '^swi-I-s' "LVM sees that the small snapshot is invalid"
ok "the origin is right beside a full snapshot" same /dev/vg/lv "$TEST_TMP/lv"
ok "another snapshot is right beside a full one" same /dev/vg/s4 "$TEST_TMP/old"
ok "another small snapshot is made" lvcreate -q -s -l 4 -n small2 vg/lv "$pv2"
not_ok "writes to a small snapshot fail when it is full" \
	put_letter /dev/vg/small2 F 0 $((4 * MIB)) $MIB
is "$(line vg/small2)" Invalid "a snapshot filled by writes to it is Invalid, as with dm-snapshot"
ok "the origin is as it was beside a snapshot filled by writes to it" same /dev/vg/lv "$TEST_TMP/lv"
ok "the snapshot filled by writes to it is removed" lvremove -q -y vg/small2
down
ok "with a full snapshot the group is activated" up
like "$(column vg/small lv_attr)" '^swi-I-s' \
	"the full snapshot is still invalid when activated again"
ok "the full snapshot is removed" lvremove -q -y vg/small

# ---- back to a snapshot

ok "a snapshot is merged" lvconvert -q --merge vg/s16
ok "the merged origin is what it was" same /dev/vg/lv "$TEST_TMP/s16"
ok "the merged snapshot is gone" no_such_lv vg/s16
ok "another snapshot is right after the merge" same /dev/vg/s4 "$TEST_TMP/old"
exec {user}</dev/vg/lv
like "$(lvconvert --merge vg/s4 2>&1)" 'next activation' \
	"a snapshot of an origin in use is merged at the next activation"
ok "the origin stays as it is until the next activation" same /dev/vg/lv "$TEST_TMP/s16"
exec {user}<&-
down
ok "the group is activated, with a merge to begin" up
ok "the origin is at once what it was" same /dev/vg/lv "$TEST_TMP/old"
ok "the rest of the merge is done in the background" lvchange -q --poll y vg/lv
ok "the snapshot merged in the background is gone" wait_for 200 no_such_lv vg/s4
ok "the origin is right after the merge in the background" same /dev/vg/lv "$TEST_TMP/old"
ok "the last two snapshots are removed with the origin" lvremove -q -ff vg/lv

# ---- what does not fit

base=$(mkloop 8M)
store=$(mkloop 4M)
table="0 $(sectors "$base") snapshot $base $store"
dmcreate x "$table P 8"
dmremove x
like "$(refused "$table N 8")" 'is persistent, the table says N' \
	"N on a persistent store is refused"
like "$(refused "$table P 16")" 'has chunks of 8 sectors, the table says 16' \
	"another chunk size is refused"
like "$(refused "$table P 8 2 id 1")" 'Unknown feature "id"' "a feature of our own is refused"
like "$(refused "0 $(sectors "$base") snapshot-origin $base 2 discard none")" \
	'Unknown feature "discard"' "a feature of our own origin is refused"
dmcreate x "$table P 8 2 discard_zeroes_cow discard_passdown_origin"
like "$(dmsetup table x)" ' P 8 2 discard_zeroes_cow discard_passdown_origin$' \
	"dm-snapshot's own features are taken"
dmremove x
dmcreate x "$table P 8"
dmcreate o "0 $(sectors "$base") snapshot-origin $base"
put_letter /dev/mapper/o N 0 65536
dmload o "${table/snapshot/snapshot-merge} P 8"
dmsetup suspend o
not_ok "a snapshot that an active device shows is not merged" dmsetup resume o
like "$(kernel_log)" 'snapshot 0 has a device: suspend it before' \
	"the log says why an active snapshot is not merged"
dmsetup suspend x
ok "the snapshot of a suspended device is taken over and merged" dmsetup resume o
dmsetup resume x
not_ok "the device whose snapshot is merged reads nothing from then on" get /dev/mapper/x 0 4096
dmremove x
dmremove o
mkfs.ext4 -q -F "$store"
like "$(refused "$table P 8")" 'holds something else' "a store with a filesystem in it is refused"
small=$(mkloop 4K)
like "$(refused "0 $(sectors "$base") snapshot $base $small P 8")" 'is too small' \
	"a store too small is refused"

# ---- a sealed origin, of which the store has data

home=$(mkloop 8M)
keep=$(mkloop 4M)
fill "$home" "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old"
snap_up x "$home" "$keep" P 8
dmremove x
"$tool" seal "$home" "$keep" >/dev/null
origin_up o "$home" store "$keep"
dm message o 0 set settle off
dm message o 0 set redirect 50
put /dev/mapper/o "$TEST_TMP/now" $MIB 65536
dmremove o
origin="0 $(sectors "$home") snapshot-origin $home"
table="0 $(sectors "$home") snapshot $home $keep"
kernel_refuses 'is sealed by store .*: name that .* or run cowsnap unseal' \
	"a sealed origin is refused under dm-snapshot's name" dmcreate o "$origin"
dmcreate x "$table P 8"
ok "its snapshot is what it was" same /dev/mapper/x "$TEST_TMP/old"
kernel_refuses 'is sealed by a store in use' "beside its snapshot the origin is refused too" \
	dmcreate o "$origin"
dmremove x
kernel_refuses 'redirects: settle it first, snapshot 0 cannot be merged' "it is not merged" \
	dmcreate o "${table/snapshot/snapshot-merge} P 8"
origin_up o "$home" store "$keep"
is "$("$tool" status o | awk '$1 == "unsettled" { print $2 }')" 16 "the store still has its data"
ok "nothing of it is lost" same /dev/mapper/o "$TEST_TMP/now"
dmremove o
home=$(mkloop 8M)
keep=$(mkloop 4M)
cp "$TEST_TMP/old" "$TEST_TMP/now"
dd if="$TEST_TMP/old" of="$home" bs=1M conv=fsync status=none
snap_up x "$home" "$keep" P 8
dmremove x
"$tool" seal "$home" "$keep" >/dev/null
origin_up o "$home" store "$keep"
dm message o 0 set settle off
dmload o "0 $(sectors "$home") snapshot-merge $home $keep P 8"
dm message o 0 set redirect 50
put /dev/mapper/o "$TEST_TMP/now" $MIB 65536
kernel_refuses 'redirects: settle it first, snapshot 0 cannot be merged' \
	"it is not merged if it redirects since the table was loaded" dm resume o
dmload o "$(origin_table "$home" store "$keep")"
dm resume o
is "$("$tool" status o | awk '$1 == "unsettled" { print $2 }')" 16 "the store has its data"
ok "nothing of it is lost by that" same /dev/mapper/o "$TEST_TMP/now"
