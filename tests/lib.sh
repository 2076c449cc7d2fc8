# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What every tests/functional/NAME.t is written with. A test is a bash script
# that speaks TAP and needs root and a loaded module:
#
#	#!/bin/bash
#	# SPDX-License-Identifier: GPL-2.0-only
#	# One sentence: what this test shows.
#	. "$(dirname "$0")/../lib.sh"
#	plan 2
#	dev=$(mkloop 64M)
#	ok "an origin is made" dmcreate o "0 $(sectors "$dev") cowsnap-origin $dev"
#	is "$(sectors /dev/mapper/o)" "$(sectors "$dev")" "it is as long as its device"
#
# Whatever a helper makes is removed when the test ends, last made first. Then
# comes one TAP point more, which fails if the kernel log has a line of trouble
# since the test began, or if something would not go away.
#
# Sourcing this sets "set -uo pipefail", not "-e": a failing command under test
# is the test's business.

set -uo pipefail

export LC_ALL=C MDADM_NO_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1

TEST_NAME=$(basename "$0" .t)
# A directory of the test's own, on tmpfs in the test machines.
TEST_TMP=$(mktemp -d "${COWSNAP_TMP:-${TMPDIR:-/tmp}}/$TEST_NAME.XXXXXX")

_count=0	# TAP points so far
_failed=0	# of which failed
_plan=''	# number of points announced, or "end" for done_testing
_cleanup=$TEST_TMP/.cleanup	# commands, one a line; a file, because $(...) adds to it
_expected=$TEST_TMP/.expected	# regular expressions of kernel lines that are no trouble
_marker="cowsnap-test: begin $TEST_NAME $$"
: >"$_cleanup"
: >"$_expected"

# TAP goes to this copy of stdout, so that a helper can speak where its own
# stdout is captured.
exec {_tap}>&1

# What in the kernel log is never right.
_trouble='BUG:|BUG at|WARNING:|Oops|KASAN|UBSAN|ODEBUG|cut here|Call Trace'
_trouble+='|possible (circular|recursive|irq|deadlock)|inconsistent lock state'
_trouble+='|bad unlock balance|held lock freed|lock held when returning|INVALID state'
_trouble+='|INFO: (task|rcu|trying|suspicious|possible|lockdep)|blocked for more than'
_trouble+='|detected stall|stalls on CPU|soft lockup|hard LOCKUP|hung task'
_trouble+='|sleeping function called|scheduling while atomic|suspicious (RCU|rcu)'
_trouble+='|unreferenced object|new suspected memory leak|refcount_t'
_trouble+='|general protection|unable to handle|NULL pointer|use-after-free|double.free'
_trouble+='|list_(add|del)|bad page|Bad page|bad pte|Objects remaining'
_trouble+='|page allocation failure|Out of memory|oom-kill'
_trouble+='|EXT4-fs error|XFS .*([Cc]orrupt|[Ii]nternal error)'

# ---- saying things ----------------------------------------------------------

# diag TEXT...: a comment in the TAP. Standard input, without arguments.
diag()
{
	local line

	# No process of its own: starting one is slow in an emulated machine.
	if (($#)); then
		printf '# %s\n' "${*//$'\n'/$'\n# '}"
	else
		while IFS= read -r line || [[ $line ]]; do
			printf '# %s\n' "$line"
		done
	fi >&"$_tap"
}

# plan N: the test has N points (the closing one not counted). Say it first; or
# end the test with done_testing.
plan()
{
	_plan=$1
	printf '1..%d\n' "$(($1 + 1))" >&"$_tap"
}

# done_testing: the last line of a test that cannot tell its points beforehand.
# Without it, and without a plan, a test that dies half way would look whole.
done_testing()
{
	_plan=end
}

# pass DESC, fail DESC: one TAP point. Return what they report.
pass()
{
	printf 'ok %d - %s\n' "$((++_count))" "$1" >&"$_tap"
}

fail()
{
	_fail "$1"
	_end_at_first
	return 1
}

_fail()
{
	_failed=$((_failed + 1))
	printf 'not ok %d - %s\n' "$((++_count))" "$1" >&"$_tap"
}

# With COWSNAP_FIRST_FAILURE=1 a test ends at the first point that fails, and cleans up, for
# callers that only want to know whether it fails.
_end_at_first()
{
	[[ -z ${COWSNAP_FIRST_FAILURE-} ]] || exit 1
}

# skip DESC REASON: one point that cannot be tried here.
skip()
{
	printf 'ok %d - %s # SKIP %s\n' "$((++_count))" "$1" "$2" >&"$_tap"
}

# skip_all REASON: end the test here; nothing of it can be tried. Before plan.
skip_all()
{
	printf '1..0 # SKIP %s\n' "$1" >&"$_tap"
	_plan=skipped
	exit 0
}

# bail_out REASON: end the test here, failed; for what must work before it starts.
bail_out()
{
	fail "$1"
	exit 1
}

# need_command: $tool is the cowsnap command, which can keep its notes.
need_command()
{
	for tool in "$(dirname "${COWSNAP_KO:-/none}")/tools/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
		! "$tool" --version >/dev/null 2>&1 || break
		tool=
	done
	[[ $tool ]] || bail_out "no cowsnap command that runs here"
	mkdir -p /var/lib/cowsnap 2>/dev/null || mount -t tmpfs tmpfs /var/lib
}

# ---- points ------------------------------------------------------------------

# ok DESC COMMAND...: passes if COMMAND succeeds, else shows what it said. The
# command may be a function; what it printed is in $TEST_TMP/out.
ok()
{
	local desc=$1 rc=0

	shift
	"$@" >"$TEST_TMP/out" 2>&1 || rc=$?
	if ((rc == 0)); then
		pass "$desc"
		return 0
	fi
	_fail "$desc"
	diag "status $rc from: $*"
	diag <"$TEST_TMP/out"
	_end_at_first
	return 1
}

# not_ok DESC COMMAND...: passes if COMMAND fails.
not_ok()
{
	local desc=$1

	shift
	if ! "$@" >"$TEST_TMP/out" 2>&1; then
		pass "$desc"
		return 0
	fi
	_fail "$desc"
	diag "should have failed: $*"
	diag <"$TEST_TMP/out"
	_end_at_first
	return 1
}

# is GOT WANT DESC: passes if the two are the same text.
is()
{
	if [[ $1 == "$2" ]]; then
		pass "$3"
		return 0
	fi
	_fail "$3"
	diag "     got: $1"
	diag "expected: $2"
	_end_at_first
	return 1
}

# isnt GOT UNWANTED DESC: passes if the two differ.
isnt()
{
	if [[ $1 != "$2" ]]; then
		pass "$3"
		return 0
	fi
	_fail "$3"
	diag "got, and should not have: $1"
	_end_at_first
	return 1
}

# like GOT REGEX DESC: passes if the extended regular expression matches in GOT.
like()
{
	if [[ $1 =~ $2 ]]; then
		pass "$3"
		return 0
	fi
	_fail "$3"
	diag "     got: $1"
	diag "to match: $2"
	_end_at_first
	return 1
}

# ---- the kernel log ----------------------------------------------------------

# expect_log REGEX: kernel lines that match are no trouble in this test.
expect_log()
{
	printf '%s\n' "$1" >>"$_expected"
}

# kernel_log: what the kernel has said since the test began.
kernel_log()
{
	dmesg | awk -v marker="$_marker" '
		index($0, marker) { found = 1; nr = 0; next }
		{ line[nr++] = $0 }
		END {
			for (i = 0; i < nr; i++)
				print line[i]
			if (!found)
				print "cowsnap-test: the log lost its begin"
		}'
}

# kernel_trouble: the lines of trouble among them; fails if there is none.
kernel_trouble()
{
	kernel_log | grep -E "$_trouble" | grep -Evf "$_expected"
}

# wait_for SECONDS COMMAND...: try COMMAND until it succeeds; fail after SECONDS.
wait_for()
{
	local deadline=$((SECONDS + $1))

	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.1
	done
}

# scaled N: N, or less of it where time is short (COWSNAP_SCALE percent, for
# example in the debug kernel), never below 1. For counts of operations.
scaled()
{
	local n=$(($1 * ${COWSNAP_SCALE:-100} / 100))

	echo "$((n > 0 ? n : 1))"
}

# ---- devices -------------------------------------------------------------------

# at_exit COMMAND...: run when the test ends; the last given runs first.
at_exit()
{
	printf '%q ' "$@" >>"$_cleanup"
	printf '\n' >>"$_cleanup"
}

# mkloop SIZE [--sector 512|4096] [--ro]: a loop device on a sparse file of its
# own; prints its path. SIZE as for truncate(1): 64M, 1G, ...
mkloop()
{
	local size=$1 sector=512 file dev
	local -a extra=()

	shift
	while (($#)); do
		case $1 in
		--sector) sector=$2 && shift ;;
		--ro) extra+=(--read-only) ;;
		esac
		shift
	done
	file=$(mktemp "$TEST_TMP/loop.XXXXXX")
	truncate -s "$size" "$file"
	dev=$(losetup --find --show --sector-size "$sector" --direct-io=off \
		"${extra[@]}" "$file") || return 1
	at_exit losetup --detach "$dev"
	printf '%s\n' "$dev"
}

# loop_file LOOP: the file behind a loop device.
loop_file()
{
	losetup --noheadings --output BACK-FILE "$1"
}

# mkram MEGABYTES [ATTRIBUTE=VALUE...]: a null_blk device that keeps its data in
# memory; prints its path. The attributes are null_blk's: blocksize=4096,
# discard=1, cache_size=MEGABYTES (a volatile write cache), ...
mkram()
{
	local name attr dir dev

	[[ -d /sys/module/null_blk ]] || modprobe null_blk nr_devices=0 || return 1
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	name=cowram$$x$RANDOM$RANDOM
	dir=/sys/kernel/config/nullb/$name
	mkdir "$dir" || return 1
	at_exit rmdir "$dir"
	for attr in "size=$1" memory_backed=1 discard=1 "${@:2}"; do
		printf '%s\n' "${attr#*=}" >"$dir/${attr%%=*}" || return 1
	done
	echo 1 >"$dir/power" || return 1
	at_exit _write "$dir/power" 0
	dev=/dev/$name
	[[ -b $dev ]] || dev=/dev/nullb$(<"$dir/index")
	[[ -b $dev ]] && printf '%s\n' "$dev"
}

_write()
{
	printf '%s\n' "$2" >"$1"
}

# mkmd10 DEV...: an md RAID10 over the devices (four, as a rule); prints its path.
mkmd10()
{
	local n=0 md

	while [[ -e /sys/block/md$n ]]; do
		n=$((n + 1))
	done
	md=/dev/md$n
	mdadm --create "$md" --level=10 --raid-devices=$# --metadata=1.2 \
		--assume-clean --run --quiet "$@" >&2 </dev/null || return 1
	at_exit mdadm --quiet --stop "$md"
	printf '%s\n' "$md"
}

# mkstripe CHUNK_SECTORS DEV...: a dm-stripe over the devices; prints its path.
mkstripe()
{
	local chunk=$1 per dev table name=stripe$$x$RANDOM

	shift
	per=$(($(sectors "$1") / chunk * chunk))
	table="0 $((per * $#)) striped $# $chunk"
	for dev; do
		table+=" $dev 0"
	done
	dmcreate "$name" "$table" >&2 || return 1
	printf '/dev/mapper/%s\n' "$name"
}

# sectors DEV: its length in sectors of 512 bytes.
sectors()
{
	blockdev --getsz "$1"
}

# dm ARGS...: dmsetup ARGS, shown as a comment first.
dm()
{
	diag "dmsetup $*"
	dmsetup "$@"
}

# dmcreate NAME TABLE [ARGS...]: a mapped device, /dev/mapper/NAME. ARGS go to
# dmsetup (--readonly, --notable without TABLE, ...).
dmcreate()
{
	dm create "$1" ${2:+--table "$2"} "${@:3}" || return
	at_exit _dmremove "$1"
}

# dmremove NAME: remove it now.
dmremove()
{
	dm remove --retry "$1"
}

# A device that the test has removed, or renamed, itself is no trouble. A suspended
# one would block the tasks that have it open.
_dmremove()
{
	dmsetup info "$1" >/dev/null 2>&1 || return 0
	dmsetup resume "$1" 2>/dev/null
	dmsetup remove --retry "$1"
}

# dmreload NAME TABLE [ARGS...]: put a new table in place of the one in use.
dmreload()
{
	dm suspend "$1" && dmload "$@" && dm resume "$1"
}

# dmload NAME TABLE [ARGS...]: load an inactive table.
dmload()
{
	dm load "$1" --table "$2" "${@:3}"
}

# mkmount DEV TYPE [MKFS_ARGS...]: make a filesystem and mount it; prints where.
mkmount()
{
	local dev=$1 type=$2 force=-F

	shift 2
	[[ $type != xfs ]] || force=-f
	"mkfs.$type" -q "$force" "$@" "$dev" >&2 || return 1
	domount "$dev"
}

# domount DEV [MOUNT_ARGS...]: mount a filesystem; prints where.
domount()
{
	local dir

	dir=$(mktemp -d "$TEST_TMP/mnt.XXXXXX")
	mount "${@:2}" "$1" "$dir" >&2 || return 1
	at_exit _umount "$dir"
	printf '%s\n' "$dir"
}

_umount()
{
	! mountpoint -q "$1" || umount "$1"
}

# ---- the end -------------------------------------------------------------------

# A test that fails may leave devices suspended, or dm-delay with I/O that it holds: nothing above
# them would go.
_let_go()
{
	local name

	while read -r name; do
		case $(dmsetup table "$name") in
		*" delay "*) dmsetup suspend --noflush --nolockfs "$name" ;;
		esac
		dmsetup resume "$name"
	done < <(sed -n 's/^_dmremove //p' "$_cleanup")
}

_run_cleanup()
{
	local line rc=0

	while read -r line; do
		# The lines are at_exit's, quoted for the shell.
		if ! eval "$line" >"$TEST_TMP/.said" 2>&1; then
			diag "at the end, failed: $line"
			diag <"$TEST_TMP/.said"
			rc=1
		fi
	done < <(tac "$_cleanup")
	return "$rc"
}

_finish()
{
	local status=$? whole=1 log

	trap '' TERM INT
	# shellcheck disable=SC2046  # process numbers
	kill $(jobs -p) 2>/dev/null
	wait
	cd /
	_let_go >/dev/null 2>&1
	_run_cleanup || whole=0
	if [[ $_plan != skipped ]]; then
		if log=$(kernel_trouble); then
			diag "in the kernel log:"
			printf '%s\n' "$log" | diag
			whole=0
		fi
		if ((whole)); then
			pass "no trouble in the kernel log, nothing left behind"
		else
			_fail "no trouble in the kernel log, nothing left behind"
		fi
		[[ $_plan != end ]] || printf '1..%d\n' "$_count" >&"$_tap"
	fi
	rm -rf "$TEST_TMP"
	# Status 1 is prove's to make of the points; what died of itself says so.
	((status == 0)) && ((_failed)) && status=1
	exit "$status"
}

printf '<5>%s\n' "$_marker" >/dev/kmsg 2>/dev/null
# bash runs it on TERM as well. TERM has no trap of its own: if it comes while a condition awaits
# $(...), bash 5.2 may ignore it, and all that follow.
trap _finish EXIT
trap 'exit 130' INT
