# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the functional tests share beyond tests/lib.sh: making origins and
# snapshots, writing with a copy in a file, comparing, reading status lines.
#
# The origin of a test is called o, its snapshot s, others by other letters.
# Data goes to and from devices with O_DIRECT unless said.

TESTS_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../lib.sh
. "$TESTS_DIR/lib.sh"

# shellcheck disable=SC2034  # for the tests
PARAMETERS=/sys/module/dm_cowsnap/parameters

# exact_copies: nothing is copied before it is needed, nor written after the write it
# is for, so that counts are exact and failures come at once; and places are given out in order.
exact_copies()
{
	echo 0 >"$PARAMETERS/copy_ahead"
	echo 0 >"$PARAMETERS/copy_around"
	echo 0 >"$PARAMETERS/undo_buffer"
	echo 0 >"$PARAMETERS/log"
	echo 0 >"$PARAMETERS/log_gap"
}

# What an earlier test has set.
if [[ -e $PARAMETERS/copy_ahead ]]; then
	echo -1 >"$PARAMETERS/copy_ahead"
	echo -1 >"$PARAMETERS/copy_around"
	echo 8192 >"$PARAMETERS/undo_buffer"
	echo -1 >"$PARAMETERS/log"
	echo -1 >"$PARAMETERS/log_gap"
	echo 0 >"$PARAMETERS/kcopyd_budget"
fi

# refuses COMMAND REGEX DESC ARGS...: COMMAND ARGS ends with 2 and one sentence that has REGEX in it.
refuses()
{
	local command=$1 regex=$2 desc=$3 rc=0

	shift 3
	"$command" "$@" >"$TEST_TMP/said" 2>&1 || rc=$?
	diag <"$TEST_TMP/said"
	if ((rc == 2)) && [[ $(wc -l <"$TEST_TMP/said") == 1 ]] &&
		grep -qE -- "$regex" "$TEST_TMP/said"; then
		pass "$desc"
	else
		fail "$desc"
	fi
}

# need_processors N: for what takes place between tasks that run at the same time, or would take
# too long on fewer.
need_processors()
{
	(($(nproc) >= $1)) || skip_all "it needs $1 processors"
}

# need_probes: for what is counted where the kernel does it.
need_probes()
{
	[[ -e $(tracefs)/kprobe_events ]] || skip_all "no probes in this kernel"
}

# sysfs DEV: its directory there.
sysfs()
{
	stat -L -c /sys/dev/block/%Hr:%Lr "$1"
}

# block_bytes DEV: its logical sector, the least O_DIRECT can do.
block_bytes()
{
	blockdev --getss "$1"
}

# origin_table DEV [FEATURE...], snap_table DEV STORE [LETTER [CHUNK [FEATURE...]]]
origin_table()
{
	local dev=$1

	shift
	echo "0 $(sectors "$dev") cowsnap-origin $dev${*:+ $# $*}"
}

snap_table()
{
	local dev=$1 store=$2 letter=${3:-N} chunk=${4:-8}

	shift $(($# < 4 ? $# : 4))
	echo "0 $(sectors "$dev") cowsnap $dev $store $letter $chunk${*:+ $# $*}"
}

# origin_up NAME DEV [FEATURE...]; snap_up NAME DEV STORE [LETTER [CHUNK [FEATURE...]]]
origin_up()
{
	local name=$1

	shift
	dmcreate "$name" "$(origin_table "$@")"
}

snap_up()
{
	local name=$1

	shift
	dmcreate "$name" "$(snap_table "$@")"
}

# The tools are built beforehand where the checkout can be written, else here,
# once for all tests of a machine.
tools()
{
	local dir

	for dir in "$(dirname "${COWSNAP_KO:-/none}")/tests/model" "$TESTS_DIR/model" \
		"${TMPDIR:-/tmp}/cowsnap-tools"; do
		if [[ $dir/cowio -nt $TESTS_DIR/model/cowio.c &&
			$dir/cowmodel -nt $TESTS_DIR/model/model.h ]]; then
			echo "$dir"
			return
		fi
	done
	rm -rf "$dir"
	cp -r "$TESTS_DIR/model" "$dir" && make -C "$dir" clean all >&2 && echo "$dir"
}

TOOLS=$(tools 2>"$TEST_TMP/out") || bail_out "the tools do not build: $(<"$TEST_TMP/out")"

# fill DEV IMAGE: random data all over the device, and the same in a file that it
# can be compared with. fill_letter DEV LETTER: one letter all over it.
fill()
{
	"$TOOLS/cowio" fill "$1" "$2"
}

fill_letter()
{
	"$TOOLS/cowio" letter "$1" "$2"
}

# put DEV IMAGE [OFFSET BYTES]...: random data to both, each pair one write.
put()
{
	"$TOOLS/cowio" put "$@"
}

# put_letter DEV LETTER OFFSET BYTES [BYTES_A_WRITE]
put_letter()
{
	"$TOOLS/cowio" letter "$@"
}

letters()
{
	head -c "$2" /dev/zero | tr '\0' "$1"
}

# get DEV OFFSET BYTES [BYTES_A_READ]: to stdout.
get()
{
	"$TOOLS/cowio" get "$@"
}

# same DEV IMAGE: every byte. image DEV IMAGE: the device as it is now.
same()
{
	"$TOOLS/cowio" same "$1" "$2"
}

image()
{
	"$TOOLS/cowio" image "$1" "$2"
}

# other_bytes DEV LETTERS [OFFSET BYTES]: how many bytes are none of these; the
# letter 0 stands for the byte 0. Words, not a number, if it cannot be read.
other_bytes()
{
	"$TOOLS/cowio" not "$@"
}

# all_letter DEV LETTERS [OFFSET BYTES]: is every byte one of these?
all_letter()
{
	local others

	others=$(other_bytes "$@")
	[[ $others = 0 ]] || { echo "bytes other than $2: $others" && false; }
}

# status NAME: the line without start, length and target.
status()
{
	dmsetup status --noflush "$1" | cut -d' ' -f4-
}

used_sectors()
{
	status "$1" | sed -n 's,^\([0-9]*\)/.*,\1,p'
}

# key_of NAME KEY: a value among the key value pairs of the status line.
key_of()
{
	status "$1" | tr ' ' '\n' | grep -A1 -x -- "$2" | sed -n 2p
}

is_invalid()
{
	[[ $(status "$1") = Invalid ]]
}

# io_is_in_flight NAME read|write: has this device requests that have not ended?
io_is_in_flight()
{
	local reads writes

	read -r reads writes <"$(sysfs "/dev/mapper/$1")/inflight"
	if [[ $2 == read ]]; then
		((reads))
	else
		((writes))
	fi
}

has_ended()
{
	! kill -0 "$1" 2>/dev/null
}

# all_end_well PID...: wait alone would tell only how the last of them ended.
all_end_well()
{
	local pid rc=0

	for pid; do
		wait "$pid" || rc=1
	done
	return "$rc"
}

# ---- devices that fail, below others that stay in use ----

linear_table()
{
	echo "0 $(sectors "$1") linear $1 0"
}

error_table()
{
	echo "0 $(sectors "$1") error"
}

# no_writes_table DEV: writes fail, reads do not.
no_writes_table()
{
	echo "0 $(sectors "$1") flakey $1 0 0 1000 1 error_writes"
}

# delay_table DEV READ WRITE: milliseconds that are added to each read and each write.
delay_table()
{
	echo "0 $(sectors "$1") delay $1 0 $2 $1 0 $3"
}

# writes_are_delayed NAME COUNT: dm-delay holds back so many now.
# (What it holds back is not in the device's count of I/O in flight.)
writes_are_delayed()
{
	(($(delayed_writes "$1") >= $2))
}

reads_are_delayed()
{
	(($(dmsetup status "$1" | awk '$3 == "delay" { nr += $4 } END { print nr + 0 }') >= $2))
}

delayed_writes()
{
	dmsetup status "$1" | awk '$3 == "delay" { nr += $5 } END { print nr + 0 }'
}

# partly_table DEV FROM COUNT WORDS...: linear, but for COUNT sectors that have these words.
partly_table()
{
	local dev=$1 from=$2 count=$3 end=$(($2 + $3))

	shift 3
	((from == 0)) || echo "0 $from linear $dev 0"
	echo "$from $count $*"
	echo "$end $(($(sectors "$dev") - end)) linear $dev $end"
}

# write_all_sizes DEV: several tasks write chunks of 4 KiB, runs and parts of them to its first
# 1.5 MiB, and verify them.
write_all_sizes()
{
	fio --filename="$1" --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=8 \
		--rw=randwrite --loops=4 --verify=crc32c --group_reporting --size=512k \
		--name=chunks --bs=4k --offset=0 --name=runs --bs=16k --offset=512k \
		--name=parts --bs=1k --offset=1m --fsync=16 >"$TEST_TMP/fio.log" 2>&1
}

# swap_table NAME TABLE: another table, without a flush, while all above stays in use.
swap_table()
{
	dm suspend --noflush "$1" && dmload "$1" "$2" && dm resume "$1"
}

# hold_reads NAME DEV: reads of the device NAME, which is over DEV, do not end before
# release_reads; writes do. It is dm-delay that holds them, for two minutes at most, and
# lets them go when it is suspended.
hold_reads()
{
	swap_table "$1" "$(delay_table "$2" 120000 0)"
}

release_reads()
{
	swap_table "$1" "$(linear_table "$2")"
}

# reads_done NAME: how many reads of the device have ended so far.
reads_done()
{
	awk '{ print $1 }' "$(sysfs "/dev/mapper/$1")/stat"
}

# ---- the module ----

# The module anew, as in a machine that was started again; its parameters are the defaults.
reload_module()
{
	rmmod dm_cowsnap && insmod "$COWSNAP_KO"
}

# remove_and_reload NAME...: these devices are removed, then the module is loaded anew.
remove_and_reload()
{
	local name

	for name; do
		dmremove "$name"
	done
	reload_module
}

# ---- allocations that fail (tests/fault) ----

FAULT=/sys/module/cowfault/parameters

# need_faults: a kernel in which they can be made to fail. It needs no fault injection.
need_faults()
{
	load_faults pages=0
}

# need_faults_of_pages: the same, for whole pages only.
need_faults_of_pages()
{
	load_faults pages=1
}

# load_faults PARAMETER: of tests/fault, which makes them fail.
load_faults()
{
	[[ -d $FAULT ]] && return
	insmod "$(dirname "${COWSNAP_KO:-/none}")/tests/fault/cowfault.ko" "$1" 2>/dev/null ||
		skip_all "no probes in this kernel that make allocations fail"
	at_exit rmmod cowfault
}

# fail_under FUNCTION COUNT [SKIP]: of what this function of the module, or one that it calls,
# allocates from now on, SKIP come through (or so many pages), then COUNT fail (-1: all).
fail_under()
{
	local start end

	echo 0 >"$FAULT/fail"
	read -r start end < <(awk '$4 == "[dm_cowsnap]" && $2 ~ /[tT]/ { print $1, $3 }' /proc/kallsyms |
		sort -u -k1,1 | awk -v name="$1" 'start { print start, $1; exit } $2 == name { start = $1 }')
	[[ ${end-} ]] || bail_out "the module has no function $1"
	# Before devices go, whose I/O may wait for memory.
	at_exit _write "$FAULT/fail" 0
	echo "0x$start" >"$FAULT/start"
	echo "0x$end" >"$FAULT/end"
	echo 0 >"$FAULT/failed"
	echo "${3:-0}" >"$FAULT/skip"
	echo "$2" >"$FAULT/fail"
}

# Has one of these failed?
has_failed()
{
	(($(<"$FAULT/failed")))
}

# fail_no_more: how many have failed.
fail_no_more()
{
	echo 0 >"$FAULT/fail"
	cat "$FAULT/failed"
}

# ---- what a kernel may lack ----

# mkscsi PARAMETER...: a disk of scsi_debug; prints its path.
mkscsi()
{
	# No udev loads the disk driver for us.
	modprobe -q sd_mod
	modprobe -q scsi_debug "$@" || return
	at_exit rmmod scsi_debug
	wait_for 60 scsi_disk && scsi_disk
}

scsi_disk()
{
	local disk

	for disk in /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*:*/block/*; do
		[[ -b /dev/${disk##*/} ]] && echo "/dev/${disk##*/}" && return
	done
	return 1
}

# need PROGRAM...: or leave the test out.
need()
{
	local program

	for program; do
		command -v "$program" >/dev/null || skip_all "no $program here"
	done
}

have_target()
{
	modprobe -q "dm-$1" 2>/dev/null
	dmsetup targets | grep -q "^$1 "
}

need_target()
{
	local target

	for target; do
		have_target "$target" || skip_all "no target $target in this kernel"
	done
}

# ---- traces: the sequence of I/O at a device, as the block layer tells it ----

# /sys/kernel/tracing may be mounted only under debugfs.
tracefs()
{
	local dir

	for dir in /sys/kernel/tracing /sys/kernel/debug/tracing; do
		[[ -e $dir/events/block ]] && echo "$dir" && return
	done
	mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
	[[ -e /sys/kernel/tracing/events/block ]] && echo /sys/kernel/tracing
}

# dev_number DEV: as trace filters want it (major << 20 | minor).
dev_number()
{
	local number

	number=$(stat -L -c '0x%t 0x%T' "$1")
	echo $((${number% *} << 20 | ${number#* }))
}

# trace_start DEV EVENT...: from now on, events block_EVENT of DEV.
trace_start()
{
	local dev=$1 event

	TRACE=$(tracefs) || return 1
	shift
	echo 0 >"$TRACE/tracing_on"
	echo nop >"$TRACE/current_tracer"
	echo >"$TRACE/set_event"
	echo 8192 >"$TRACE/buffer_size_kb"
	for event; do
		echo "dev == $(dev_number "$dev")" >"$TRACE/events/block/block_$event/filter"
		echo 1 >"$TRACE/events/block/block_$event/enable"
	done
	echo >"$TRACE/trace"
	echo 1 >"$TRACE/tracing_on"
}

# trace_stop: prints "EVENT RWBS SECTOR COUNT", a line for each, in order.
trace_stop()
{
	echo 0 >"$TRACE/tracing_on"
	sed -n 's/.* block_\([a-z_]*\): [0-9]*,[0-9]* \([A-Z]*\) \([0-9]* ()\|()\)\? *\([0-9]*\) + \([0-9]*\) .*/\1 \2 \4 \5/p' \
		"$TRACE/trace"
	echo >"$TRACE/set_event"
	echo 0 >"$TRACE/events/block/enable"
	# As others expect to find it.
	echo 0 >"$TRACE/events/block/filter"
	echo 1 >"$TRACE/tracing_on"
}

# ---- merges ----

# left_of MERGE: what is left to be merged, in sectors.
left_of()
{
	local used meta

	read -r used meta _ < <(status "$1")
	[[ $used =~ ^[0-9]+/ ]] || return
	echo $((${used%%/*} - meta))
}

merged()
{
	[[ $(left_of o) = 0 ]]
}

merge_failed()
{
	[[ $(status o) = "Merge failed" ]]
}

# log_says_merged ID: unlike a status line, the log can be asked without a look at the map.
log_says_merged()
{
	kernel_log | grep -q "snapshot $1 is merged into"
}

part_is_merged()
{
	[[ $(left_of o) -lt $1 ]]
}

# kernel_refuses REGEX DESC COMMAND...: it fails, and the kernel log says why.
kernel_refuses()
{
	local regex=$1 desc=$2 before

	shift 2
	before=$(kernel_log | wc -l)
	if "$@" >"$TEST_TMP/out" 2>&1; then
		fail "$desc"
		return
	fi
	kernel_log | tail -n +$((before + 1)) >"$TEST_TMP/said"
	if grep -qE -- "$regex" "$TEST_TMP/said"; then
		pass "$desc"
	else
		fail "$desc"
		diag <"$TEST_TMP/said"
	fi
}

# all_down: the devices that tests call so, those that there are.
all_down()
{
	local name

	for name in s s2 s3 o; do
		dmsetup info "$name" >/dev/null 2>&1 && dmremove "$name"
	done
	return 0
}
