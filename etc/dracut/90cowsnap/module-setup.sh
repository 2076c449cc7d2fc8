#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# For dracut: the lines of /etc/cowsnaptab that say "initramfs", and what starts them. The units
# are written by the generator, as later in the system itself.

# dracut calls these.
check()
{
	require_binaries cowsnap || return 1
	[[ -n $(cowsnap_lines) ]] || return 255
}

depends()
{
	echo dm systemd
}

installkernel()
{
	hostonly='' instmods dm_cowsnap
}

cowsnap_lines()
{
	awk '!/^[ \t]*#/ && $4 ~ /(^|,)initramfs(,|$)/' /etc/cowsnaptab 2>/dev/null
}

install()
{
	inst_multiple /usr/sbin/cowsnap modprobe
	inst_rules 65-cowsnap.rules
	inst_script /usr/lib/systemd/system-generators/cowsnap-generator
	# shellcheck disable=SC2154  # dracut's
	mkdir -p "$initdir/etc"
	cowsnap_lines >"$initdir/etc/cowsnaptab"
}
