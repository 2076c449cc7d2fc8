# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2154
#
# What the tests of /etc/cowsnaptab share: the file $tab has one line for the origin data, with the
# store $store.

tab=$TEST_TMP/tab

cowsnap()
{
	diag "cowsnap $*"
	"$tool" "$@"
}

tab()
{
	cowsnap tab --file="$tab" "$@"
}

# refused REGEX DESC ARGS...: tab ARGS ends with 2 and one sentence that has REGEX in it.
refused()
{
	refuses tab "$@"
}

state()
{
	"$tool" list | awk -v name="$1" '$1 == name { print $(NF - 1) }'
}

# What the store says of the first snapshot, while nobody has it.
stored_state()
{
	"$tool" dump "$store" | awk '$1 == "snapshot" { print $5; exit }'
}

active()
{
	[[ $(dmsetup table data 2>/dev/null) == *cowsnap-* ]]
}

inactive()
{
	! active
}

# A new boot knows nothing of the last one's losses.
new_boot()
{
	rm -f /run/cowsnap/data.dropped
}

# words WORD...: the kernel's command line.
words()
{
	umount -q /proc/cmdline 2>/dev/null
	(($#)) || return 0
	printf '%s\n' "$*" >"$TEST_TMP/words"
	mount --bind "$TEST_TMP/words" /proc/cmdline
}
