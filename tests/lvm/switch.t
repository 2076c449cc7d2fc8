#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The moment of the change: snapshots that dm-snapshot has made are left as they are, and
# said so, as are ours by dm-snapshot; the script that makes the change sees them first.

. "$(dirname "$0")/common.sh"

rmmod dm_cowsnap
modprobe dm-snapshot || skip_all "no dm-snapshot in this kernel"
plan 25
at_exit reload_module

# use_module COMMAND...: the whole group down, and the other module in place.
use_module()
{
	down && rmmod dm_snapshot dm_cowsnap 2>/dev/null
	"$@"
}

use_cowsnap()
{
	use_module insmod "$COWSNAP_KO" claim_snapshot=1
}

use_dm_snapshot()
{
	use_module modprobe dm-snapshot
}

# All of both disks: any write would show.
disks()
{
	cat "$(loop_file "$pv1")" "$(loop_file "$pv2")" | sha256sum
}

place()
{
	"$TESTS_DIR/../etc/lvm-place" "$@"
}

vg_up 96M || bail_out "no volume group"
lv_up 16M || bail_out "no volume"
lv_up 4M plain || bail_out "no second volume"
cp "$TEST_TMP/lv" "$TEST_TMP/old"
ok "dm-snapshot makes a snapshot" lvcreate -q -s -L 12M -n s vg/lv "$pv2"
put /dev/vg/lv "$TEST_TMP/lv" 4096 $((3 * 1048576))
not_ok "the script does not change places then" place install
like "$(<"$TEST_TMP/out")" 'cannot serve these snapshots.*vg/s' \
	"the script names dm-snapshot's snapshot"
ok "our module takes the place" use_cowsnap
before=$(disks)
not_ok "a volume with dm-snapshot's snapshot is not activated" vgchange -ay vg
like "$(kernel_log)" 'holds a snapshot of dm-snapshot: ' \
	"the log says why the volume is not activated"
ok "a volume without snapshots is activated" same /dev/vg/plain "$TEST_TMP/plain"
down
is "$(disks)" "$before" "nothing was written anywhere"
ok "dm-snapshot is back" use_dm_snapshot
up
ok "under dm-snapshot the volume is right" same /dev/vg/lv "$TEST_TMP/lv"
ok "under dm-snapshot its snapshot is right" same /dev/vg/s "$TEST_TMP/old"
ok "dm-snapshot merges its snapshot" lvconvert -q --merge vg/s
ok "then the script changes places" env DESTDIR="$TEST_TMP/root" "$TESTS_DIR/../etc/lvm-place" install
ok "the script has written what modprobe and initramfs-tools need" \
	test -s "$TEST_TMP/root/etc/modprobe.d/dm-cowsnap.conf" \
	-a -x "$TEST_TMP/root/usr/share/initramfs-tools/hooks/dm-cowsnap"
use_cowsnap
up
ok "a snapshot is made by our module" lvcreate -q -s -L 12M -n s vg/lv "$pv2"
cp "$TEST_TMP/old" "$TEST_TMP/lv"
put /dev/vg/lv "$TEST_TMP/lv" 8192 $((2 * 1048576))
not_ok "the script does not change back" place remove
like "$(<"$TEST_TMP/out")" 'cannot serve these snapshots.*vg/s' "the script names our snapshot"
use_dm_snapshot
before=$(disks)
not_ok "dm-snapshot does not activate our snapshot" vgchange -ay vg
down
is "$(disks)" "$before" "dm-snapshot writes nothing to our snapshot's disks"
use_cowsnap
ok "with our module the volume is activated" up
ok "with our module the volume is right" same /dev/vg/lv "$TEST_TMP/lv"
ok "with our module its snapshot is right" same /dev/vg/s "$TEST_TMP/old"
ok "all snapshots are removed" lvremove -q -y vg/s
use_dm_snapshot
ok "dm-snapshot has its place again" up
ok "under dm-snapshot the volume is right again" same /dev/vg/lv "$TEST_TMP/lv"
