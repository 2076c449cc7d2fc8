#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A message that changes a store (commit, set, create, delete) gets its turn after the commit
# in flight, however many first writes keep commits going.

. "$(dirname "$0")/common.sh"

need fio
need_target delay

exact_copies
plan 5

# A commit takes so long that starting a program takes few, on a slow machine as well. What
# counts is how many went by, not how long that took.
COMMIT_MS=200
# A message may have to wait for the commit in flight, writes blocks of its own and lets others
# by in between. One that is starved waits for as long as there are writes.
FEW=25

base=$(mkram 1024)
store=$(mkram 1024)
dmcreate slow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/slow P
swap_table slow "$(delay_table "$store" 0 $COMMIT_MS)"

commits()
{
	key_of s commits
}

# commits_beside COMMAND...: how many go by until it has ended, or is taken for starved.
commits_beside()
{
	local before pid

	went=0
	before=$(commits)
	"$@" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null && ((went < 4 * FEW)); do
		sleep 0.1
		went=$(($(commits) - before))
	done
	if kill -0 "$pid" 2>/dev/null; then
		echo "$* still waits after $went commits"
		starved+=("$pid")
	fi
	((went <= FEW)) && wait "$pid"
}

fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=64 \
	--filename=/dev/mapper/o --allow_file_create=0 --size=1g --runtime=3600 --time_based \
	>"$TEST_TMP/fio.log" 2>&1 &
fio=$!
begun()
{
	(($(commits) > 10))
}
wait_for 300 begun

# fair WORDS...: this message, three times.
fair()
{
	local i nr=()

	for i in 1 2 3; do
		commits_beside dmsetup message o 0 "${@//I/$i}" || return
		nr+=("$went")
	done
	echo "${nr[*]} commits"
	kill -0 "$fio"
}

starved=()
ok "commit messages get their turn beside first writes" fair commit
diag <"$TEST_TMP/out"
ok "set messages get their turn beside first writes" fair set wait_timeout 1I
diag <"$TEST_TMP/out"
ok "create messages get their turn beside first writes" fair create 10I
diag <"$TEST_TMP/out"
ok "delete messages get their turn beside first writes" fair delete 10I
diag <"$TEST_TMP/out"
kill "$fio"
wait "$fio" "${starved[@]}" 2>/dev/null
swap_table slow "$(linear_table "$store")"
like "$(status s)" '^[0-9]+/' "the store is still valid"
