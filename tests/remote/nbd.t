#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The guide to NBD: origin and store on a server that is killed and started again. Writers wait for
# it and lose nothing, the snapshot is what it was, then and when the store is opened anew. With a
# client that does not wait the snapshot becomes invalid, and is not believed.

. "$(dirname "$0")/../guides/common.sh"

need nbd-server nbd-client qemu-nbd
modprobe -q nbd || skip_all "no module nbd in this kernel"
guide remote.md "## NBD"

is_served()
{
	true >/dev/tcp/127.0.0.1/10809
}

# The server is killed, with the processes that serve its clients.
server_killed()
{
	pgrep -x nbd-server | xargs -r kill -9
}

_end()
{
	umount -q /srv/view
	umount -q /srv/data
	_origin_gone data
	qemu-nbd --disconnect /dev/nbd0 >/dev/null
	qemu-nbd --disconnect /dev/nbd1 >/dev/null
	server_killed
	rm -f /srv/base.img /srv/store.img
}

reads()
{
	dd if=/dev/nbd2 of=/dev/null bs=4k count=1 iflag=direct status=none
}

# writes FILE: some, each acknowledged by the disk; the same on both.
writes()
{
	dd if=/dev/urandom of="$1" bs=64k count=20 oflag=direct conv=notrunc status=none
}

state()
{
	cowsnap list | awk -v name="$1" '$1 == name { print $(NF - 1) }'
}

disconnect()
{
	qemu-nbd --disconnect /dev/nbd0 >/dev/null && qemu-nbd --disconnect /dev/nbd1 >/dev/null
}

truncate -s 32M /srv/base.img
truncate -s 32M /srv/store.img
mkdir -p /srv/view
grep -q storage /etc/hosts || echo '127.0.0.1 storage' >>/etc/hosts
ip link set lo up
at_exit _end
install_file /etc/nbd-server/config

ok "the server runs" run_block server
wait_for 60 is_served
ok "the machine has its disks" run_block client
ok "origin, filesystem and snapshot are made" run_block origin
is "$(state data@1)" live "the snapshot is there"

# ---- the server is killed and comes back ----

writes /srv/data/file
server_killed
writes /srv/data/more &
writer=$!
writes /srv/data/file &
other=$!
sleep 5
ok "while the server is gone writers wait" kill -0 "$writer"
ok "the server runs again" run_block server
wait "$writer"
is $? 0 "the writer has had no error"
wait "$other"
is $? 0 "the second writer has had no error"
is "$(state data@1)" live "the snapshot is still there"
ok "the snapshot can be mounted after the server came back" cowsnap mount data@1 /srv/view
is "$(ls /srv/view)" "lost+found" "the snapshot has its content after the server came back"
cowsnap umount /srv/view
sha256sum /srv/data/file /srv/data/more >"$TEST_TMP/sums"

# ---- opened anew ----

umount /srv/data
cowsnap remove --keep data
disconnect
server_killed
ok "the server runs, a third time" run_block server
wait_for 60 is_served
ok "the machine has its disks again" run_block client
ok "the store is opened" run_block again
is "$(state data@1)" live "the opened store has its snapshot"
ok "the origin of the opened store has all data" sha256sum --quiet -c "$TEST_TMP/sums"
ok "the snapshot can be mounted" cowsnap mount data@1 /srv/view
is "$(ls /srv/view)" "lost+found" "the snapshot of the opened store has its content"
cowsnap umount /srv/view
umount /srv/data
cowsnap remove --keep data
disconnect

# ---- a client that does not wait ----

expect_log 'I/O error'
wait_for 60 is_served
nbd-client -timeout 30 -N store 127.0.0.1 /dev/nbd2 >/dev/null
ok "nbd-client -timeout: the disk can be read" reads
server_killed
timeout 60 dd if=/dev/nbd2 of=/dev/null bs=4k count=1 iflag=direct status=none
is $? 1 "nbd-client -timeout: without the server a read gives an error"
nbd-client -d /dev/nbd2
ok "a server for the kernel's client" run_block server
wait_for 60 is_served
nbd-client -N store 127.0.0.1 /dev/nbd1 >/dev/null
base=$(mkloop 32M)
dd if=/srv/base.img of="$base" bs=1M status=none
ok "the store is opened through the kernel's client" \
	cowsnap create --existing --name=data "$base" /dev/nbd1
server_killed
ok "without the server the origin is written all the same" \
	dd if=/dev/urandom of=/dev/mapper/data bs=1M count=30 oflag=direct status=none
is "$(state data@1)" invalid "the snapshot is invalid then"
ok "the kernel's log says that the store does not know it" \
	sh -c "dmesg | grep 'does not take the mark that its snapshots are invalid'"
cowsnap remove --keep data
nbd-client -d /dev/nbd1
ok "the server runs, a fourth time" run_block server
wait_for 60 is_served
nbd-client -N store 127.0.0.1 /dev/nbd1 >/dev/null
not_ok "the store is not overwritten unasked" cowsnap create --name=data "$base" /dev/nbd1
ok "the store is made anew with --force, as the guide says" cowsnap create --force --name=data "$base" /dev/nbd1
is "$(state data@1)" "" "nothing of the snapshot is left"
cowsnap remove -f data
nbd-client -d /dev/nbd1
all_was_run
done_testing
