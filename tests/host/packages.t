#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Debian and RPM packages can be built of the checkout, lintian finds nothing in them, they have
# what they should, a removal is refused while /etc/cowsnaptab has lines, and a kernel that the
# module does not fit is told so before anything is compiled.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C
# shellcheck source=tap.sh
. "$top/tests/host/tap.sh"

skip()
{
	point ok "$1 # SKIP $2"
}

# fits DIR: what DKMS asks before it builds.
fits()
{
	sh "$top/etc/dkms-fits" 1.2.3 "$1"
}

# says REGEX DIR: it does not fit, with one sentence.
says()
{
	local said rc=0

	said=$(fits "$2" 2>&1) || rc=$?
	echo "$said"
	((rc == 1)) && [[ $(wc -l <<<"$said") == 1 ]] &&
		grep -qE "^dm-cowsnap cannot be built for 1.2.3: $1" <<<"$said"
}

# says_above DIR: what is kept in a log comes to who started it as well, as DKMS does it in Debian 13.
# shellcheck disable=SC2016  # the inner shell's
says_above()
{
	bash -c '(eval "cd / && sh $1 1.2.3 $2; rc=\$?") >>"$3" 2>&1; true' - "$top/etc/dkms-fits" "$1" "$work/make.log" \
		2>&1 | tee "$work/above"
	cat "$work/make.log"
	grep -q "^dm-cowsnap cannot be built for 1.2.3: " "$work/make.log" &&
		grep -q "^dm-cowsnap cannot be built for 1.2.3: " "$work/above"
}

# refuses SCRIPT: with lines in the tab, a removal; an upgrade never.
refuses()
{
	sed "s|/etc/cowsnaptab|$work/tab|g; /^#DEBHELPER#/d" "$1" >"$work/script"
	printf '# a comment\n\n' >"$work/tab"
	sh "$work/script" remove || return
	echo 'data UUID=1 /dev/sdb1' >>"$work/tab"
	sh "$work/script" upgrade || return
	! sh "$work/script" remove
}

# ---- what the kernel has to have ----

mkdir -p "$work/old/include/linux" "$work/new/include/linux"
ok "a kernel without headers is told so" says 'its headers are not in .*; install' "$work/none"
touch "$work/old/Makefile" "$work/new/Makefile" "$work/new/include/linux/maple_tree.h"
ok "a kernel without headers is told so where dkms keeps a log" says_above "$work/none"
ok "a kernel that is too old is told so" says 'it is too old, with neither' "$work/old"
mkdir -p "$work/latch/include/linux"
touch "$work/latch/Makefile"
printf 'typedef struct {\n\tseqcount_t seqcount;\n} seqcount_latch_t;\n' \
	>"$work/latch/include/linux/seqlock.h"
ok "a kernel without the maple tree, but with a latch, fits" fits "$work/latch"
printf 'CONFIG_BLK_DEV_DM=m\n' >"$work/new/.config"
ok "a kernel of 32 bits is told so" says 'it is not a 64-bit kernel' "$work/new"
printf 'CONFIG_64BIT=y\n' >"$work/new/.config"
ok "a kernel without device mapper is told so" says 'it has no device mapper' "$work/new"
printf 'CONFIG_64BIT=y\nCONFIG_BLK_DEV_DM=m\n' >"$work/new/.config"
ok "a kernel that fits is told nothing" fits "$work/new"
for dir in /lib/modules/*/build; do
	[[ ! -e $dir/Makefile ]] || ok "$(basename "$(dirname "$dir")") fits" fits "$dir"
done
ok "DKMS asks" grep -q '^PRE_BUILD="etc/dkms-fits ' "$top/dkms.conf"

# ---- maintainer scripts ----

for package in cowsnap-tools dm-cowsnap-dkms; do
	ok "$package is not removed while /etc/cowsnaptab has lines" \
		refuses "$top/packaging/debian/$package.prerm"
done

# ---- Debian ----

deb_has()
{
	local file package

	package=$(echo "$work/dist/$1"_*.deb)
	shift
	dpkg-deb -c "$package" >"$work/list" || return
	for file; do
		grep -qE " \./$file\$" "$work/list" || { echo "no $file" && return 1; }
	done
}

if command -v dh_dkms >/dev/null && command -v dh_python3 >/dev/null &&
	command -v dpkg-buildpackage >/dev/null; then
	ok "make deb" make -s -C "$top" deb OUT="$work/dist"
	ok "cowsnap-tools has command, pages, and what starts origins at boot" deb_has cowsnap-tools \
		usr/sbin/cowsnap usr/share/man/man5/cowsnaptab.5.gz usr/share/man/man8/cowsnap.8.gz \
		usr/lib/systemd/system-generators/cowsnap-generator usr/lib/udev/rules.d/65-cowsnap.rules \
		usr/share/initramfs-tools/hooks/cowsnap \
		usr/share/initramfs-tools/scripts/local-top/cowsnap \
		usr/lib/dracut/modules.d/90cowsnap/module-setup.sh
	ok "dm-cowsnap-dkms has the module's source" deb_has dm-cowsnap-dkms \
		usr/src/dm-cowsnap-[0-9.]*/dkms.conf usr/src/dm-cowsnap-[0-9.]*/Kbuild \
		usr/src/dm-cowsnap-[0-9.]*/dm-cowsnap.c usr/src/dm-cowsnap-[0-9.]*/etc/dkms-fits
	ok "libcowsnap1 has the library" deb_has libcowsnap1 'usr/lib/[^/]*/libcowsnap.so.1'
	ok "libcowsnap-dev has the header" deb_has libcowsnap-dev usr/include/cowsnap.h
	ok "python3-cowsnap has the module" deb_has python3-cowsnap \
		usr/lib/python3/dist-packages/cowsnap.py
	if command -v lintian >/dev/null; then
		lintian --allow-root "$work/dist"/*.changes >"$work/lintian" 2>&1
		ok "lintian finds nothing" test ! -s "$work/lintian"
		sed 's/^/# /' "$work/lintian"
	else
		skip "lintian finds nothing" "no lintian"
	fi
	if command -v dkms >/dev/null; then
		dpkg-deb -x "$work/dist"/dm-cowsnap-dkms_*.deb "$work/root"
		mkdir -p "$work/tree" "$work/modules"
		ok "dkms takes the package's source" dkms add --dkmstree "$work/tree" \
			--sourcetree "$work/root/usr/src" --installtree "$work/modules" \
			-m "dm-cowsnap/$(basename "$work/root/usr/src"/dm-cowsnap-* | sed 's/.*-//')"
	else
		skip "dkms takes the package's source" "no dkms"
	fi
else
	skip "make deb" "no debhelper, dh-dkms or dh-python"
fi

# ---- RPM ----

# rpm_file PACKAGE
rpm_file()
{
	echo "$work/dist/$1"-[0-9]*.rpm
}

rpm_has()
{
	local file

	rpm -qpl "$(rpm_file "$1")" >"$work/list" || return
	shift
	for file; do
		grep -qxE "$file" "$work/list" || { echo "no $file" && return 1; }
	done
}

rpm_lacks()
{
	rpm -qpl "$(rpm_file "$1")" >"$work/list" || return
	! grep -E "$2" "$work/list"
}

# rpm_refuses PACKAGE: a removal (0 are left), not an upgrade. There is no dkms where it looks.
rpm_refuses()
{
	rpm -qp --qf '%{PREUN}\n' "$(rpm_file "$1")" | sed "s|/etc/cowsnaptab|$work/tab|g" >"$work/script"
	printf '# a comment\n\n' >"$work/tab"
	PATH=/usr/bin:/bin sh "$work/script" 0 || return
	echo 'data UUID=1 /dev/sdb1' >>"$work/tab"
	PATH=/usr/bin:/bin sh "$work/script" 1 || return
	! PATH=/usr/bin:/bin sh "$work/script" 0
}

# In the words that DKMS is called with; that it does as they say, dkms.t shows.
rpm_builds()
{
	local version

	version=$(sed -n 's/^#define COWSNAP_VERSION[[:space:]]*"\(.*\)"/\1/p' "$top/include/dm-cowsnap.h")
	rpm -qp --qf '%{POSTIN}\n' "$(rpm_file dm-cowsnap-dkms)" >"$work/script"
	cat "$work/script"
	sh -n "$work/script" && grep -q "^dkms add -m dm-cowsnap -v $version " "$work/script" &&
		grep -q "^dkms build -m dm-cowsnap -v $version " "$work/script"
}

if command -v rpmbuild >/dev/null; then
	ok "make rpm" make -s -C "$top" rpm OUT="$work/dist"
	ok "cowsnap-tools.rpm has command, pages, and what starts origins at boot" rpm_has cowsnap-tools \
		/usr/sbin/cowsnap /usr/share/man/man5/cowsnaptab.5 /usr/share/man/man8/cowsnap.8 \
		/usr/lib/systemd/system-generators/cowsnap-generator \
		/usr/lib/udev/rules.d/65-cowsnap.rules \
		/usr/lib/dracut/modules.d/90cowsnap/module-setup.sh
	ok "cowsnap-tools.rpm has nothing of initramfs-tools" rpm_lacks cowsnap-tools initramfs-tools
	ok "dm-cowsnap-dkms.rpm has the module's source" rpm_has dm-cowsnap-dkms \
		'/usr/src/dm-cowsnap-[0-9.]*/dkms.conf' '/usr/src/dm-cowsnap-[0-9.]*/Kbuild' \
		'/usr/src/dm-cowsnap-[0-9.]*/dm-cowsnap.c' '/usr/src/dm-cowsnap-[0-9.]*/etc/dkms-fits' \
		'/usr/src/dm-cowsnap-[0-9.]*/include/old/maple_tree.c'
	ok "its source has nothing that was built" rpm_lacks dm-cowsnap-dkms '\.(o|ko|cmd)$'
	ok "libcowsnap.rpm has the library" rpm_has libcowsnap '/usr/lib(64)?/libcowsnap.so.1'
	ok "libcowsnap-devel.rpm has the header" rpm_has libcowsnap-devel /usr/include/cowsnap.h
	ok "python3-cowsnap.rpm has the module" rpm_has python3-cowsnap '.*/site-packages/cowsnap.py'
	for package in cowsnap-tools dm-cowsnap-dkms; do
		ok "$package.rpm is not removed while /etc/cowsnaptab has lines" rpm_refuses "$package"
	done
	ok "dm-cowsnap-dkms.rpm has DKMS build the module, of this version" rpm_builds
else
	skip "make rpm" "no rpmbuild"
fi
printf '1..%d\n' "$count"
