# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the two machines of tests/remote/two share: their network, ssh between them, DRBD, and the
# disks that the host serves.
#
# COWSNAP_KEY is a key for ssh, COWSNAP_PORT the first of two ports of the host: the disk of an
# origin, and that of its store.

# shellcheck source=../guides/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../guides/common.sh"

LINK_MAC=52:54:00:c0:00
HOST_MAC=52:54:00:c0:01

# interface MAC: its name.
interface()
{
	local dir

	for dir in /sys/class/net/*; do
		[[ $(<"$dir/address") != "$1"* ]] || basename "$dir"
	done
}

# net_up NAME: this machine is called so.
net_up()
{
	local link host

	modprobe -a virtio_net nbd drbd || return
	link=$(interface "$LINK_MAC")
	host=$(interface "$HOST_MAC")
	hostname "$1"
	printf '%s\n' '127.0.0.1 localhost' '10.0.0.1 alpha' '10.0.0.2 beta' >/etc/hosts
	ip link set lo up
	ip addr add "$(awk -v name="$1" '$2 == name { print $1 }' /etc/hosts)/24" dev "$link"
	ip link set "$link" up
	ip addr add 10.0.2.15/24 dev "$host"
	ip link set "$host" up
}

ssh_up()
{
	# The machine's root cannot be written everywhere.
	mountpoint -q /root || mount -t tmpfs tmpfs /root
	mkdir -p /root/.ssh /run/sshd
	# sshd believes no keys where others may write, and anybody may in a tmpfs.
	chmod 700 /root /root/.ssh
	base64 -d <<<"$COWSNAP_KEY" >/root/.ssh/id_ed25519
	chmod 600 /root/.ssh/id_ed25519
	ssh-keygen -y -f /root/.ssh/id_ed25519 >/root/.ssh/authorized_keys
	printf '%s\n' 'StrictHostKeyChecking no' 'ConnectTimeout 10' 'LogLevel ERROR' >/root/.ssh/config
	ln -sf "$(command -v cowsnap)" /usr/local/bin/cowsnap
	/usr/sbin/sshd
}

# connect NUMBER: /dev/nbdNUMBER is what the host serves at that port.
connect()
{
	qemu-nbd --fork --connect="/dev/nbd$1" --image-opts "driver=raw,file.driver=nbd,\
file.server.type=inet,file.server.host=10.0.2.2,file.server.port=$((COWSNAP_PORT + $1)),\
file.reconnect-delay=600"
}

connect_both()
{
	connect 0 && connect 1
}

# drbd_is STATE: cs: or ds: of both volumes.
drbd_is()
{
	[[ $(grep -c "$1" /proc/drbd) == 2 ]]
}
