#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The guide to backups of the disks of virtual machines: QEMU's tools write to an origin as QEMU
# would; an image in full and one of what has changed are what the snapshots showed, and so is what
# is restored.

. "$(dirname "$0")/common.sh"

need qemu-img qemu-nbd qemu-io
guide integration.md "## Disks of virtual machines"

# As QEMU has its disk: from another process, without the page cache.
guest_writes()
{
	local words=() n

	for ((n = 0; n < $1; n++)); do
		words+=(-c "write -P $((RANDOM % 255 + 1)) $((RANDOM % 8000 * 4))k $((RANDOM % 5 * 4 + 4))k")
	done
	qemu-io -f raw -t none "${words[@]}" /dev/mapper/vm
}

# has_image IMAGE FILE: does the image, with what it is made on, show these bytes?
has_image()
{
	qemu-img compare -f qcow2 -F raw "$1" "$2"
}

# extents_agree: the two forms of the list.
extents_agree()
{
	diff <(cowsnap diff --extents vm@2 now) <(cowsnap diff --json vm@2 now |
		perl -MJSON::PP -0777 -ne 'print "$_->{offset} $_->{length}\n" for @{decode_json($_)->{extents}}')
}

_end()
{
	qemu-nbd --disconnect /dev/nbd0 >/dev/null 2>&1
	umount -q /srv/view
	umount -q /srv/images
	_origin_gone vm
	_origin_gone images
}

disk sdb1 32M
disk sdd1 40M
disk sde1 32M
at_exit _end
mkdir -p /srv/images
fill /dev/sdb1 "$TEST_TMP/filled"

ok "the disk gets an origin" run_block vm-setup
ok "the machine writes" guest_writes 20
image /dev/mapper/vm "$TEST_TMP/first"
ok "an image in full" run_block vm-full
ok "the full image is what the disk was" has_image /srv/backup/vm-1.qcow2 "$TEST_TMP/first"
not_ok "the full image lacks what is written later" has_image /srv/backup/vm-1.qcow2 "$TEST_TMP/filled"
ok "the machine writes on" guest_writes 60
image /dev/mapper/vm "$TEST_TMP/second"
modprobe -q nbd || skip_all "no module nbd in this kernel"
install_file /usr/local/sbin/vm-backup
ok "an image of what has changed" run_block vm-changed
ok "the image of changes is what the disk was then" has_image /srv/backup/vm-2.qcow2 "$TEST_TMP/second"
ok "the full image is as it was" has_image /srv/backup/vm-1.qcow2 "$TEST_TMP/first"
ok "qemu-img finds nothing wrong with the image of changes" qemu-img check -q /srv/backup/vm-2.qcow2
ok "the image of changes is less than a third of the full one" \
	test "$(stat -c %s /srv/backup/vm-2.qcow2)" -lt "$(($(stat -c %s /srv/backup/vm-1.qcow2) / 3))"
not_ok "vm-backup leaves no nbd, no part and no device" \
	test -s /sys/block/nbd0/pid -o -e /srv/backup/vm-2.qcow2.part -o -b /dev/mapper/vm@2
ok "the chain of images is restored to another disk" run_block vm-restore
ok "the restored disk has every byte" cmp /dev/sde1 "$TEST_TMP/second"

cowsnap snapshot vm >"$TEST_TMP/name"
guest_writes 30 >/dev/null
ok "JSON has the same extents" extents_agree
not_ok "a backup whose base is not there fails" \
	vm-backup "$(<"$TEST_TMP/name")" vm@2 /srv/backup/vm-3.qcow2 /srv/backup/none.qcow2
not_ok "a failed backup leaves nothing that could be taken for an image" test -e /srv/backup/vm-3.qcow2
cowsnap remove -f vm

base=$(mkloop 64M)
store=$(mkloop 32M)
cowsnap create --name=images "$base" "$store"
mkfs.ext4 -q /dev/mapper/images
mount /dev/mapper/images /srv/images
qemu-img convert -f qcow2 -O qcow2 /srv/backup/vm-2.qcow2 /srv/images/web.qcow2
ok "image files are copied from a snapshot of their filesystem" run_block vm-files
ok "the copy is what the machine had" has_image /srv/backup/web.qcow2 "$TEST_TMP/second"
all_was_run
done_testing
