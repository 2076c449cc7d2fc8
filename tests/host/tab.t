#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# /etc/cowsnaptab as far as it goes without a module: each wrong line gets a sentence with its
# number, the units of systemd are as they should be, udev gets the right answers, and the file
# is whole wherever a change of it is interrupted.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C
# shellcheck source=tap.sh
. "$top/tests/host/tap.sh"

for header in libdevmapper.h json-c/json.h blkid/blkid.h zstd.h; do
	if ! echo "#include <$header>" | cc -E - >/dev/null 2>&1; then
		echo "1..0 # SKIP no $header"
		exit
	fi
done
mkdir "$work/docs"
cp -r "$top/tools" "$top/include" "$work/"
cp "$top/docs/reference.md" "$work/docs/"
make -C "$work/tools" clean >/dev/null
ok "the command can be built" make -s -C "$work/tools" cowsnap
tab=$work/tab
cowsnap=$work/tools/cowsnap

tab()
{
	"$cowsnap" tab --file="$tab" "$@"
}

# ---- wrong lines ----

# wrong REGEX LINE...: the last of the lines is wrong, with one sentence that has REGEX in it; and
# nothing in the file changes.
wrong()
{
	local regex=$1 sum rc=0

	shift
	printf '%b\n' "$@" >"$tab"
	sum=$(sha256sum <"$tab")
	tab check >"$work/said" 2>&1 || rc=$?
	if ((rc == 2)) && [[ $(wc -l <"$work/said") == 1 ]] && [[ $sum == "$(sha256sum <"$tab")" ]] &&
		grep -qE "^cowsnap: $tab:$#: .*$regex" "$work/said"; then
		point ok "wrong: ${*: -1}"
	else
		point 'not ok' "wrong: ${*: -1} (status $rc)" "$work/said"
	fi
}

good='a UUID=1 /dev/sdb1'
long=$(printf 'n%.0s' {1..101})
wrong 'device and store are missing; a line is' 'x'
wrong 'the store is missing; a line is' 'x UUID=1'
wrong '"y" is a word too many; write options with commas' 'x UUID=1 /dev/sdb1 nofail y'
wrong 'the name "n*" is too long; use at most 100' "$long UUID=1 /dev/sdb1"
wrong '"a/b" is no name for an origin; use letters' 'a/b UUID=1 /dev/sdb1'
wrong '"\.\." is no name for an origin' '.. UUID=1 /dev/sdb1'
wrong '"a@1" is no name for an origin' 'a@1 UUID=1 /dev/sdb1'
wrong '"a-home" is a name that cowsnap uses itself' 'a-home UUID=1 /dev/sdb1'
wrong '"a-setup" is a name that cowsnap uses itself' 'a-setup UUID=1 /dev/sdb1'
wrong '"-x" begins as an option does' '-x UUID=1 /dev/sdb1'
wrong '"a" stands in line 1 already; give each origin a name' "$good" 'a UUID=2 /dev/sdb2'
wrong 'device "UID=1" has an unknown tag; use UUID=' 'x UID=1 /dev/sdb1'
wrong 'device "UUID=" lacks what comes after the =; blkid' 'x UUID= /dev/sdb1'
wrong 'device "UUID="1"" has quotes; write it without' 'x UUID="1" /dev/sdb1'
wrong 'device "sda1" is no path in /dev' 'x sda1 /dev/sdb1'
wrong 'device "/dev/" is no path in /dev' 'x /dev/ /dev/sdb1'
wrong 'device "/tmp/x" is no path in /dev' 'x /tmp/x /dev/sdb1'
wrong 'device "/dev/../tmp/x" goes up with \.\.' 'x /dev/../tmp/x /dev/sdb1'
wrong 'device "/dev/disk/by-uuid/1" is a link that only the origin has; write UUID=' \
	'x /dev/disk/by-uuid/1 /dev/sdb1'
wrong 'device "/dev/disk/by-label/1" is a link that only the origin has; write LABEL=' \
	'x /dev/disk/by-label/1 /dev/sdb1'
wrong 'device "/dev/mapper/a@1" is a snapshot' 'x /dev/mapper/a@1 /dev/sdb1'
wrong 'device "/dev/.*" is too long; use UUID=' "x /dev/$long$long$long /dev/sdb1"
wrong 'store "PARTUID=1" has an unknown tag' 'x UUID=1 PARTUID=1'
wrong 'store "sdb1" is no path in /dev' 'x UUID=1 sdb1'
wrong 'device and store are both /dev/sda1; a store needs' 'x /dev/sda1 /dev/sda1'
wrong 'UUID=1 is the device of line 1 already; remove one' "$good" 'x UUID=1 /dev/sdb2'
wrong '/dev/sdb1 is the store of line 1 already; each origin' "$good" 'x UUID=2 /dev/sdb1'
wrong '/dev/sdb1 is in line 1 already, as store; a device is one' "$good" 'x /dev/sdb1 /dev/sdb2'
wrong 'UUID=1 is in line 1 already, as device; a device is one' "$good" 'x UUID=2 UUID=1'
wrong 'option "fail" is unknown; cowsnaptab\(5\)' "$good fail"
wrong 'an option is empty; remove a comma' "$good nofail,,initramfs"
wrong 'an option is empty; remove a comma' "$good nofail,"
wrong 'option nofail takes no value; remove "=1"' "$good nofail=1"
wrong 'option snapshot lacks its value; write snapshot=VALUE' "$good snapshot"
wrong 'option snapshot lacks its value' "$good snapshot="
wrong 'option nofail is there twice; remove one' "$good nofail,nofail"
wrong '"x" is no number of a snapshot; cowsnap list' "$good snapshot=x"
wrong '"65535" is no number of a snapshot' "$good snapshot=65535"
wrong 'snapshot=3 is there twice; remove one' "$good snapshot=3,snapshot=3"
wrong '"1m" is no time for x-systemd.device-timeout; use seconds' "$good x-systemd.device-timeout=1m"
wrong '"0" is no time for x-systemd.device-timeout' "$good x-systemd.device-timeout=0"
wrong '"12" is no uuid of a store; cowsnap dump prints it' "$good store-uuid=12"
wrong 'discard="all" is none of skip, preserve, none' "$good discard=all"
wrong 'invalid="soon" is no time in seconds since 1970' "$good invalid=soon"
wrong 'died="soon" is no time in seconds since 1970' "$good died=soon"
wrong 'noauto and initramfs contradict each other' "$good noauto,initramfs"
wrong 'it ends as lines of Windows do; remove the carriage return' "$good\r"
wrong 'there is a control character; write the line anew' "$good\001"
wrong 'there is a zero byte; write the line anew' "$good\0000x"
wrong 'the line is too long; use at most 4095' "$(printf '#%.0s' {1..4100})"

printf '%s\n' 'x' "$good fail" 'y UUID=3 sdb3' >"$tab"
ok "three wrong lines get three sentences" test "$(tab check 2>&1 | grep -c "^cowsnap: $tab:")" = 3
rm "$tab"
ok "no file is no mistake" tab check
mkdir "$tab"
ok "a directory is one" grep -q 'no file; it has to be one of lines NAME DEVICE STORE' <(tab check 2>&1)
rmdir "$tab"
ok "an unknown verb gets a sentence" grep -q '"go" is none of check, start' <(tab go 2>&1)
printf '# comment\n\n  \t\n%s defaults\nb\tLABEL=b\tPARTUUID=2\t-\n' "$good" >"$tab"
ok "comments, blanks and tabs are no mistake" grep -q ': 2 lines, nothing wrong' <(tab check)

# ---- units ----

cat >"$tab" <<-'END'
	root UUID=0a-1 PARTUUID=2f-01 nofail,initramfs
	my.data LABEL=my\x20data /dev/disk/by-id/x_y+z x-systemd.device-timeout=5s
	off /dev/sdc /dev/sdd1 noauto
	wrong /dev/sde
END
mkdir "$work/units"
tab units "$work/units" 2>"$work/said"
ok "a wrong line gets its sentence, and no unit" \
	test "$(wc -l <"$work/said")" = 1 -a ! -e "$work/units/cowsnap@wrong.service"
cat >"$work/expected" <<-'END'
	cowsnap-settle.service
	cowsnap@my.data.service
	cowsnap@off.service
	cowsnap@root.service
	dev-cowsnap-my.data.device.d/40-cowsnap.conf
	dev-cowsnap-off.device.d/40-cowsnap.conf
	dev-cowsnap-root.device.d/40-cowsnap.conf
	dev-disk-by\x2did-x_y\x2bz.device.d/40-cowsnap.conf
	dev-disk-by\x2dlabel-my\x5cx5cx20data.device.requires/cowsnap@my.data.service
	dev-disk-by\x2dpartuuid-2f\x2d01.device.d/40-cowsnap.conf
	dev-disk-by\x2duuid-0a\x2d1.device.requires/cowsnap@root.service
	dev-mapper-my.data.device.requires/cowsnap@my.data.service
	dev-mapper-off.device.requires/cowsnap@off.service
	dev-mapper-root.device.requires/cowsnap@root.service
	dev-sdd1.device.d/40-cowsnap.conf
	multi-user.target.wants/cowsnap-settle.service
	sysinit.target.wants/cowsnap@my.data.service
	sysinit.target.wants/cowsnap@root.service
END
ok "each line has a unit, wanted at boot but for noauto, and required by its devices" \
	diff "$work/expected" <(cd "$work/units" && find . -type f -o -type l | sed 's/^..//' | sort)
cat >"$work/expected" <<-END
	# Written by cowsnap-generator
	[Unit]
	Description=Origin root of dm-cowsnap
	Documentation=man:cowsnaptab(5)
	SourcePath=$tab
	DefaultDependencies=no
	IgnoreOnIsolate=true
	Wants=dev-cowsnap-root.device dev-disk-by\\x2dpartuuid-2f\\x2d01.device
	After=dev-cowsnap-root.device dev-disk-by\\x2dpartuuid-2f\\x2d01.device systemd-modules-load.service
	Conflicts=umount.target
	Before=umount.target

	[Service]
	Type=oneshot
	RemainAfterExit=yes
	TimeoutStartSec=infinity
	ExecStart=/usr/sbin/cowsnap tab start root
	ExecStop=-/usr/sbin/cowsnap tab stop root
END
ok "the unit waits for device and store" diff "$work/expected" "$work/units/cowsnap@root.service"
ok "settle runs after all origins' units" \
	grep -qx 'After=local-fs.target cowsnap@root.service cowsnap@my.data.service cowsnap@off.service' \
	"$work/units/cowsnap-settle.service"
ok "the time a device is waited for stands in the line" \
	grep -qx JobRunningTimeoutSec=5s "$work/units/dev-cowsnap-my.data.device.d/40-cowsnap.conf"
ok "the time a device is waited for is 30 seconds by default" \
	grep -qx JobRunningTimeoutSec=30s "$work/units/dev-cowsnap-root.device.d/40-cowsnap.conf"
if command -v systemd-analyze >/dev/null; then
	ok "systemd finds nothing wrong with the units" \
		test -z "$(systemd-analyze verify "$work/units/cowsnap@root.service" 2>&1 |
			grep -F cowsnap@root | grep -vE 'Command /usr/sbin/cowsnap|man cowsnaptab')"
else
	point ok "systemd finds nothing wrong with them # SKIP no systemd-analyze"
fi

# ---- udev ----

# owns EXPECTED ENV...: what udev is told; "no": not ours.
owns()
{
	local expected=$1 said

	shift
	said=$(env "$@" "$cowsnap" tab --file="$tab" owns 2>/dev/null) || said=no
	[[ $said == "$expected" ]] || { echo "$said" && return 1; }
}

links='/dev/disk/by-id/a /dev/disk/by-uuid/0a-1 /dev/disk/by-label/L /dev/disk/by-partuuid/7'
ok "the device below keeps no link by UUID or label" \
	owns 'cowsnap/root disk/by-id/a disk/by-partuuid/7' DEVNAME=/dev/sda2 ID_FS_UUID=0A-1 DEVLINKS="$links"
ok "the origin keeps all links" owns no DEVNAME=/dev/dm-0 DM_NAME=root ID_FS_UUID=0a-1 DEVLINKS="$links"
ok "a snapshot keeps no link by UUID or label" \
	owns ' disk/by-id/a disk/by-partuuid/7' DEVNAME=/dev/dm-1 DM_NAME=root@1 ID_FS_UUID=0a-1 DEVLINKS="$links"
ok "the device that a taken-over volume left is below" \
	owns 'cowsnap/root' DEVNAME=/dev/dm-1 DM_NAME=root-home DEVLINKS=
ok "another device is left alone" owns no DEVNAME=/dev/sda3 ID_FS_UUID=0a-2 DEVLINKS="$links"
ok "a device by its path" owns 'cowsnap/off disk/by-id/c' DEVNAME=/dev/sdc DEVLINKS=/dev/disk/by-id/c
ok "a device whose path begins like that is left alone" owns no DEVNAME=/dev/sdc1 DEVLINKS=/dev/disk/by-id/c1

# A line with a mistake, of which it is clear whose it is: its device is not used as it is.
for mistake in 'nofial' 'nofail, initramfs' 'nofail\r' 'nofail\001'; do
	printf 'typo /dev/sde /dev/sdf %b\n' "$mistake" >>"$tab"
	ok "a device in a line with the mistake \"$mistake\" is below" owns 'cowsnap/typo' DEVNAME=/dev/sde DEVLINKS=
	rm -rf "$work/units"
	mkdir "$work/units"
	tab units "$work/units" 2>/dev/null
	ok "a line with the mistake \"$mistake\" has a unit" test -e "$work/units/cowsnap@typo.service"
	sed -i '$d' "$tab"
done
printf 'root /dev/sde /dev/sdf\n' >>"$tab"
ok "a device whose line has another's name is nobody's" owns no DEVNAME=/dev/sde DEVLINKS=

# ---- changes ----

cat >"$tab" <<-'END'
	# first
	a UUID=1 /dev/sdb1 nofail
	b UUID=2 /dev/sdb2
END
chmod 640 "$tab"
ok "disable without such a line gets a sentence" \
	grep -q 'there is no line of that name' <("$cowsnap" disable --file="$tab" c 2>&1)
ok "enable without a store gets a sentence" \
	grep -q -- '--store is missing' <("$cowsnap" enable --file="$tab" /dev/null 2>&1)
ok "refused enable and disable leave the file as it was" test "$(wc -l <"$tab") $(stat -c %a "$tab")" = "3 640"
printf '1..%d\n' "$count"
