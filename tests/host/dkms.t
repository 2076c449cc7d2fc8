#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# dkms adds, builds, installs and removes the module for each kernel that is
# installed, under the version that stands in include/dm-cowsnap.h; in trees of
# its own, so that the machine's are not touched.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tap.sh
. "$top/tests/host/tap.sh"

installed()
{
	find "$work/install/$1" -name 'dm-cowsnap.ko*' | grep -q .
}

not_installed()
{
	! installed "$1"
}

version=$(sed -n 's/^#define COWSNAP_VERSION[[:space:]]*"\(.*\)"/\1/p' "$top/include/dm-cowsnap.h")
trees=(--dkmstree "$work/tree" --sourcetree "$work/src" --installtree "$work/install")
module=dm-cowsnap/$version

mapfile -t kernels < <(for dir in /lib/modules/*/build; do
	[[ -e $dir/Makefile ]] && basename "$(dirname "$dir")"
done)
if ((!${#kernels[@]})) || ! command -v dkms >/dev/null; then
	echo "1..0 # SKIP no dkms, or no kernel to build for"
	exit
fi
printf '1..%d\n' "$((2 + 4 * ${#kernels[@]}))"

# What a release would unpack: no build of anybody's lies in it.
mkdir -p "$work/src/dm-cowsnap-$version" "$work/tree" "$work/install"
rsync -a --exclude=.git --filter=':- .gitignore' "$top/" "$work/src/dm-cowsnap-$version/"

ok "dkms add $module" dkms add "${trees[@]}" -m "$module"
for kernel in "${kernels[@]}"; do
	mkdir -p "$work/install/$kernel"
	ok "dkms build for $kernel" dkms build "${trees[@]}" -m "$module" -k "$kernel"
	ok "dkms install for $kernel" dkms install "${trees[@]}" -m "$module" -k "$kernel"
	ok "the module for $kernel is installed" installed "$kernel"
	dkms uninstall "${trees[@]}" -m "$module" -k "$kernel" >/dev/null 2>&1
	ok "the module for $kernel is gone when uninstalled" not_installed "$kernel"
done
ok "dkms remove $module" dkms remove "${trees[@]}" -m "$module" --all
