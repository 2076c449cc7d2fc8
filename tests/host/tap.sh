# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# Points of the tests of tests/host. What the last command printed is in $work/out.

count=0
# What the points that follow are about; it comes before their names.
about=''

# point RESULT DESC [FILE]: what explains a failure is in FILE, unless the last command printed it.
point()
{
	local said=${3:-${work:?}/out}

	count=$((count + 1))
	printf '%s %d - %s\n' "$1" "$count" "${about:+$about: }$2"
	[[ $1 == ok || ! -f $said ]] || sed 's/^/# /' "$said"
}

# ends STATUS DESC COMMAND...: passes if COMMAND ends with that status.
ends()
{
	local want=$1 desc=$2 rc=0

	shift 2
	"$@" >"$work/out" 2>&1 || rc=$?
	if ((rc == want)); then
		point ok "$desc"
	else
		echo "status $rc, not $want, from: $*" >>"$work/out"
		point 'not ok' "$desc"
	fi
}

ok()
{
	ends 0 "$@"
}
