# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests of the segment type "cowsnap" share. The patched lvm2 (see
# tools/lvm2/build) stands in a directory that the machine gets as a share; its files
# are put over the stock ones in a mount namespace of the test's own, so that
# no other process meets them. The stock lvm2 stays at hand as "stock".

LVM2_TREE=${LVM2_TREE:-/run/cowsnap/lvm2}
if [[ -z ${COWSNAP_LVM_NAMESPACE-} && -d $LVM2_TREE ]]; then
	export COWSNAP_LVM_NAMESPACE=1
	exec unshare --mount --propagation private bash "$0" "$@"
fi

# shellcheck source=../functional/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../functional/common.sh"

[[ -x $LVM2_TREE/sbin/lvm ]] ||
	skip_all "no patched lvm2 here: tools/lvm2/build makes it"

STOCK=$TEST_TMP/stock/lvm
export LVM_SYSTEM_DIR=$TEST_TMP/etc

use_patched_lvm2()
{
	local file place

	mkdir "$TEST_TMP/stock"
	cp "$(readlink -f /sbin/lvm)" "$STOCK"
	cp -r "$LVM2_TREE" "$TEST_TMP/tree"
	while read -r file; do
		place=/${file#"$TEST_TMP"/tree/}
		[[ ! -e $place ]] || mount --bind "$file" "$(readlink -f "$place")"
	done < <(find "$TEST_TMP/tree/sbin" "$TEST_TMP/tree/lib" -type f)
}

# Without udev lvm2 makes the nodes, and looks for disks itself. Monitoring: 0 or 1.
configure_lvm2()
{
	mkdir -p "$LVM_SYSTEM_DIR" /run/lvm /run/lock/lvm
	cat >"$LVM_SYSTEM_DIR/lvm.conf" <<-END
		devices {
			scan = [ "/dev" ]
			filter = [ "a|^/dev/loop|", "r|.*|" ]
			use_devicesfile = 0
			obtain_device_list_from_udev = 0
		}
		activation {
			udev_sync = 0
			udev_rules = 0
			monitoring = $1
			snapshot_autoextend_threshold = 70
			snapshot_autoextend_percent = 50
		}
		global {
			use_lvmpolld = 0
		}
		backup {
			backup_dir = "$LVM_SYSTEM_DIR/backup"
			archive_dir = "$LVM_SYSTEM_DIR/archive"
		}
	END
}

# mkvg NAME SIZE [COUNT]: a volume group on loop devices; their paths in $PVS.
mkvg()
{
	local n

	PVS=()
	for ((n = 0; n < ${3:-1}; n++)); do
		PVS+=("$(mkloop "$2")")
	done
	vgcreate -qq "$1" "${PVS[@]}" >&2 || bail_out "no volume group"
	at_exit _rmvg "$1"
}

_rmvg()
{
	! vgs "$1" >/dev/null 2>&1 || vgremove -qq -f -y "$1"
}

# lv FIELD LV: what lvs says.
lv()
{
	lvs --noheadings --all -o "$1" "$2" 2>/dev/null | tr -d ' '
}

# store_larger_than SECTORS
store_larger_than()
{
	(($(dmsetup status vg-s | sed 's,.*/\([0-9]*\) .*,\1,') > $1))
}

# stock COMMAND...: of the stock lvm2, which knows nothing of cowsnap.
stock()
{
	"$STOCK" "$@"
}

# target VG-LV: the first word of its table, said once for all its segments.
target()
{
	dmsetup table "$1" 2>/dev/null | cut -d' ' -f3 | uniq
}

# All LVs of vg, the hidden ones as well.
names()
{
	lvs --noheadings -a -o name vg 2>/dev/null | tr -d ' ' | sort | tr '\n' ' '
}

# refused SENTENCE DESC COMMAND...: fails, says so, and leaves LVs as they were.
refused()
{
	local sentence=$1 desc=$2 before

	shift 2
	before=$(names)
	not_ok "$desc: refused" "$@"
	like "$(<"$TEST_TMP/out")" "$sentence" "$desc: the reason is given"
	is "$(names)" "$before" "$desc: nothing has changed"
}

use_patched_lvm2
configure_lvm2 0
