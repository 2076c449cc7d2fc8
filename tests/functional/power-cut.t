#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Whatever a power cut leaves of origin and store, at any moment: the store opens and is
# clean, every snapshot made before is as it was, the origin is as a plain disk would be.
#
# What cowsnap diff says has changed since a snapshot, or a tracker, has all that differs.
#
# Devices have a cache, with FUA or without it. Those that take write-zeroes are without.
#
# So it is when the power goes a second time, while the store is opened or a merge goes on, and when
# a copy that was being written, or one of the superblocks, cannot be read afterwards.
#
# Half of the cuts or more are followed by a second one. COWSNAP_CUTS=N: N cuts in all, instead of a
# few for each point. COWSNAP_SEED repeats the choices of a run; the recording of one that failed
# goes to $COWSNAP_OUT.

. "$(dirname "$0")/common.sh"

OPS=$(scaled 300)
A_RECORDING=240	# cuts of one recording, where there are many
AGAIN=80	# percent with a second cut: more than half, as none follows where no store is yet

scenarios=(
	"origin and store on one device|"
	"each on its own, with its own cache|--devices 2"
	"4096-byte blocks, chunks of 64 KiB|--block 4096 --chunk 128 --devices 2 --store 16384"
	"a store that grows|--store 3072 --grow 8192"
	"many snapshots, made and deleted, sectors that cannot be read|--again 50 --eio 50 --snapshots 12 --origin 2048 --store 16384"
	"merges, superblocks that cannot be read|--again 50 --eio 50 --merge --devices 2 --store 16384"
	"trackers|--track --chunk 1 --devices 2 --origin 8192 --store 16384"
	"trackers whose regions share blocks, merges|--track --merge --block 4096 --chunk 128 --origin 24576 --store 32768"
	"no FUA, merges|--no-fua --merge --snapshots 3 --store 16384"
	"no FUA, a log, trackers, two caches|--no-fua --log --track --devices 2 --origin 16384 --store 16384"
	"merges of many stretches, with a throttle|--merge --throttle 20 --devices 2 --origin 32768 --store 49152 --snapshots 2"
	"two cuts, the second while the store is opened|--again 100 --no-restart"
	"a copy that was being written, or a superblock, cannot be read|--again 50 --eio 100 --devices 2"
	"a log, all on one device|--log --snapshots 3"
	"a log, 4096-byte blocks, two caches|--log --block 4096 --devices 2"
	"a log with gaps, merges, trackers, bad superblocks|--log --merge --track --eio 20 --devices 2 --origin 16384 --store 24576"
	"a log with gaps, in a store that drops the oldest|--log --drop --store 2176 --snapshots 6 --devices 2"
	"a sealed origin|--seal --eio 0 --no-discard"
	"a sealed origin, two caches, chunks of 64 KiB, merges|--seal --eio 0 --no-discard --merge --chunk 128 --devices 2 --origin 16384 --store 32768"
	"redirected writes|--seal --redirect 60 --log --eio 0 --no-discard --snapshots 3 --store 16384"
	"redirected writes by the tables, two caches|--seal --redirect 60 --eio 0 --no-discard --snapshots 3 --devices 2 --store 16384"
	"redirected writes and zeroes|--seal --redirect 60 --log --zeroes --eio 0 --no-discard --snapshots 3 --store 16384"
	"redirected writes and zeroes by the tables, two caches|--seal --redirect 60 --zeroes --eio 0 --no-discard --snapshots 3 --devices 2 --store 16384"
	"redirected writes and zeroes that come home|--again 0 --seal --redirect 60 --settle --log --zeroes --eio 0 --no-discard --devices 2 --snapshots 3 --store 16384"
	"redirected writes that come home|--again 0 --seal --redirect 60 --settle --log --eio 0 --no-discard --snapshots 3 --store 16384"
	"redirected writes that come home, by the tables, two caches|--again 0 --seal --redirect 60 --settle --eio 0 --no-discard --devices 2 --snapshots 2 --store 16384"
	"redirected writes, merges|--seal --redirect 60 --merge --log --eio 0 --no-discard --snapshots 3 --store 16384"
	"redirected writes by the tables, merges, two caches|--seal --redirect 60 --merge --eio 0 --no-discard --snapshots 3 --devices 2 --store 16384"
	"redirected writes that come home, merges|--again 0 --seal --redirect 60 --settle --merge --log --eio 0 --no-discard --snapshots 3 --store 16384"
	"redirected writes by the tables, two caches, chunks of 64 KiB|--seal --redirect 60 --eio 0 --no-discard --chunk 128 --devices 2 --origin 16384 --store 32768"
)

# What takes longer.
longer=(
	"merges, all on one device|--merge --snapshots 3 --store 16384"
	"a store that drops the oldest|--drop --store 1280 --snapshots 6 --devices 2"
)
[[ -z ${COWSNAP_CUTS:-} ]] || scenarios+=("${longer[@]}")

need_target log-writes
tracefs >/dev/null || skip_all "no traces of block I/O in this kernel"
plan $((${#scenarios[@]} + 4))

# The program is built beforehand where the checkout can be written, else here.
cowcrash()
{
	local dir

	for dir in "$(dirname "${COWSNAP_KO:-/none}")/tests/crash" "$TESTS_DIR/crash"; do
		if [[ $dir/cowcrash -nt $TESTS_DIR/crash/crash.h ]]; then
			echo "$dir/cowcrash"
			return
		fi
	done
	cp -r "$TESTS_DIR/crash" "$TEST_TMP/crash" &&
		make -C "$TEST_TMP/crash" FORMAT="$TESTS_DIR/../include/uapi" DMCTL="$TESTS_DIR/model" \
			clean all >&2 && echo "$TEST_TMP/crash/cowcrash"
}

# The command that checks a store, if it runs here: a copy in memory, since starting it
# from the share with the host takes longer than all it does.
check_tool()
{
	local tool

	for tool in "$TOOLS/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
		if "$tool" --version >/dev/null 2>&1; then
			cp "$tool" "$TEST_TMP/cowsnap" && echo "$TEST_TMP/cowsnap"
			return
		fi
	done
	return 1
}

# Whatever cowcrash number PID has left when it failed.
remove_devices()
{
	local name

	for _ in 1 2 3 4; do
		for name in $(dmsetup ls | sed -n "s/^\\(cowcrash-$1-[^\\t]*\\).*/\\1/p" | sort -r); do
			dmsetup resume "$name" 2>/dev/null
			dmsetup remove --retry "$name" 2>/dev/null
		done
	done
}

# cut_once DIR CUTS ARGS...: one recording. It ends with this test.
cut_once()
{
	local dir=$1 cuts=$2 rc=0

	shift 2
	"$COWCRASH" --ops "$OPS" --cuts "$cuts" --save "$dir/recording" \
		--again "$AGAIN" ${TOOL:+--check "$TOOL"} \
		${COWSNAP_SEED:+--seed "$COWSNAP_SEED"} "$@" >"$dir/log" 2>&1 &
	trap 'kill "$!"; wait "$!"; remove_devices "$!"; exit 143' TERM
	wait "$!" || rc=$?
	((rc == 0)) || remove_devices "$!"
	return "$rc"
}

# cut_many DIR ARGS...: one scenario. What there is to say of it is left in DIR.
cut_many()
{
	local dir=$1 rc=0 part left

	shift
	if [[ $* == *--seal* && ! $TOOL ]]; then
		: >"$dir/said"
		echo "skip 0" >"$dir/result"
		return
	fi
	left=$(scaled 30)
	[[ -z ${COWSNAP_CUTS:-} ]] || left=$((COWSNAP_CUTS / ${#scenarios[@]} + 1))
	for (( ; left > 0 && rc == 0; left -= part)); do
		part=$((left < A_RECORDING ? left : A_RECORDING))
		cut_once "$dir" "$part" "$@" || rc=$?
		grep -E 'cuts,|events:' "$dir/log" | sed 's/^# //' >>"$dir/said"
	done
	echo "$rc $part" >"$dir/result"
}

keep_recording()
{
	local file=${COWSNAP_OUT:-}/power-cut-$RANDOM.recording

	[[ -d ${COWSNAP_OUT:-} && -s $1/recording ]] && cp "$1/recording" "$file" &&
		diag "to repeat: cowcrash --load $file --cuts $2 --cut (as above)"
}

# count WHAT FILE: that many WHAT, by the last lines of all recordings.
count()
{
	local nr sum=0

	while read -r nr; do
		sum=$((sum + nr))
	done < <(sed -n "s/.*[:;] \([0-9]*\) $1[,;].*/\1/p" "$2")
	echo "$sum"
}

# report DIR WORDS: one point.
report()
{
	local dir=$1 rc part

	cuts=$((cuts + $(count cuts "$dir/said")))
	second_cuts=$((second_cuts + $(count "second cuts" "$dir/said")))
	read -r rc part <"$dir/result"
	if [[ $rc == skip ]]; then
		skip "$2" "the command, which seals, does not run here"
	elif ! is "$rc" 0 "$2"; then
		keep_recording "$dir" "$part"
		head -n 200 "$dir/log" | sed 's/^# //' | diag
	fi
	tail -n 30 "$dir/said" | diag
	rm -rf "$dir"
}

# Points are reported in their order, each as soon as it can be.
report_finished()
{
	while ((reported < ${#scenarios[@]})) && [[ -e $TEST_TMP/$reported/result ]]; do
		report "$TEST_TMP/$reported" "${scenarios[reported]%|*}"
		reported=$((reported + 1))
	done
}

# A cut waits most of its time, for grace periods and for devices: so there is one scenario a
# processor.
cut_all()
{
	local reported=0 running=0 lanes nr

	lanes=$(nproc)
	for nr in "${!scenarios[@]}"; do
		if ((running == lanes)); then
			wait -n
			running=$((running - 1))
			report_finished
		fi
		mkdir "$TEST_TMP/$nr"
		# The last ones: it is for all that run.
		[[ ${scenarios[nr]} != *'with gaps'* ]] || echo 8 >"$PARAMETERS/log_gap"
		# shellcheck disable=SC2086  # words
		cut_many "$TEST_TMP/$nr" ${scenarios[nr]#*|} &
		running=$((running + 1))
	done
	while ((running)); do
		wait -n
		running=$((running - 1))
		report_finished
	done
	((reported == ${#scenarios[@]})) || bail_out "${scenarios[reported]%|*}: ended without a result"
}

COWCRASH=$(cowcrash 2>"$TEST_TMP/out") || bail_out "cowcrash does not build: $(<"$TEST_TMP/out")"
if TOOL=$(check_tool); then
	pass "cowsnap check looks at each store"
else
	skip "cowsnap check looks at each store" "no cowsnap command that runs here"
fi

# All devices go at each cut, and wait for a few grace periods of RCU. What is written and when,
# which the recording is about, hardly has to do with these.
expedited=/sys/kernel/rcu_expedited
if [[ -w $expedited ]]; then
	at_exit _write "$expedited" "$(<"$expedited")"
	echo 1 >"$expedited"
fi

cuts=0 second_cuts=0
cut_all
diag "$cuts cuts, $second_cuts second cuts"
ok "half of the cuts or more were second cuts" test $((2 * second_cuts)) -ge "$cuts"

# The same devices, but flushes do nothing, or FUA: if that is not noticed, nothing is.
not_ok "a device that lies of flushes is found out" cut_once "$TEST_TMP" 60 --lie flush
not_ok "a device that lies of FUA is found out" cut_once "$TEST_TMP" 60 --lie fua
