# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests of LVM share: the module in dm-snapshot's place, an LVM that sees
# nothing but the test's loop devices, and volumes with a copy in a file.
#
# The volume group is vg, on $pv1 and $pv2; its usual volume is lv.

# shellcheck source=../functional/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../functional/common.sh"

need lvm dmsetup
# So that what was said last is what a line of the log is looked for in.
export LVM_SYSTEM_DIR=$TEST_TMP/lvm DM_DISABLE_UDEV=1

# reload_module [PARAMETER...]: our module anew, alone with its names.
reload_module()
{
	rmmod dm_snapshot 2>/dev/null
	[[ ! -d /sys/module/dm_cowsnap ]] || rmmod dm_cowsnap || return
	insmod "${COWSNAP_KO:?}" "$@"
}

# The other tests want it as it was, and without the names.
in_snapshots_place()
{
	at_exit reload_module
	reload_module claim_snapshot=1
}

# lvm_config LINE...: an lvm.conf; LINEs go into its section activation.
lvm_config()
{
	mkdir -p "$LVM_SYSTEM_DIR" /run/lock/lvm /run/lvm
	cat >"$LVM_SYSTEM_DIR/lvm.conf" <<-END
		devices {
			dir = "/dev"
			scan = [ "/dev" ]
			filter = [ "a|^/dev/loop|", "r|.*|" ]
			use_devicesfile = 0
			obtain_device_list_from_udev = 0
			external_device_info_source = "none"
		}
		global {
			use_lvmpolld = 0
		}
		activation {
			udev_sync = 0
			udev_rules = 0
			verify_udev_operations = 0
			$(printf '%s\n' "$@")
		}
	END
}

pv1='' pv2=''

# vg_up SIZE [ARG...]: the group, on two devices of that size each.
vg_up()
{
	local size=$1

	shift
	lvm_config "monitoring = 0"
	pv1=$(mkloop "$size")
	pv2=$(mkloop "$size")
	pvcreate -q "$pv1" "$pv2" && vgcreate -q -s 256K "$@" vg "$pv1" "$pv2" || return
	at_exit _vg_down
}

_vg_down()
{
	vgs vg >/dev/null 2>&1 || return 0
	vgchange -q -an vg && vgremove -q -ff vg
}

# lv_up SIZE [NAME]: a volume of random data, and the same in a file of its name.
lv_up()
{
	local name=${2-lv}

	lvcreate -q -Zn -Wn -L "$1" -n "$name" vg "$pv1" >/dev/null &&
		fill "/dev/vg/$name" "$TEST_TMP/$name"
}

# column VOLUME COLUMN [ARG...]: what lvs says.
column()
{
	lvs --noheadings -a -o "$2" "${@:3}" "$1" 2>/dev/null | tr -d ' '
}

# line VOLUME: the status that LVM reads.
line()
{
	status "${1//\//-}"
}

no_such_lv()
{
	! lvs "$1" >/dev/null 2>&1
}

# up, down: all of the group.
up()
{
	vgchange -q -ay --poll n vg
}

down()
{
	vgchange -q -an vg
}
