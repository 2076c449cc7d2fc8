#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A message that changes a store (commit, set, create, delete) gets its turn after the commit
# in flight, however many first writes keep commits going.

. "$(dirname "$0")/common.sh"

need fio

exact_copies
plan 5

base=$(mkram 1024)
# Each write takes a millisecond, so that there is always a commit under way.
store=$(mkram 1024 irqmode=2 completion_nsec=1000000)
origin_up o "$base"
snap_up s "$base" "$store" P

commits()
{
	key_of s commits
}

# turns WORDS...: a message ten times; how many commits went by.
turns()
{
	local before i

	before=$(commits)
	for i in {1..10}; do
		dmsetup message o 0 "${@//I/$i}" || return
	done
	echo $(($(commits) - before))
}

fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=64 \
	--filename=/dev/mapper/o --allow_file_create=0 --size=1g --runtime=600 --time_based \
	>"$TEST_TMP/fio.log" 2>&1 &
fio=$!
begun()
{
	(($(commits) > 50))
}
wait_for 30 begun

# Starting dmsetup takes a while as well, in which commits go on.
fair()
{
	local went

	went=$(turns "$@") || return
	echo "$went commits"
	((went < 1500)) && kill -0 "$fio"
}

begun=$SECONDS
ok "ten commit messages get their turn beside first writes" fair commit
diag "$(<"$TEST_TMP/out"), $((SECONDS - begun)) s"
ok "ten set messages get their turn beside first writes" fair set wait_timeout 1I
diag "$(<"$TEST_TMP/out"), $((SECONDS - begun)) s"
ok "ten create messages get their turn beside first writes" fair create 10I
diag "$(<"$TEST_TMP/out"), $((SECONDS - begun)) s"
ok "ten delete messages get their turn beside first writes" fair delete 10I
diag "$(<"$TEST_TMP/out"), $((SECONDS - begun)) s"
kill "$fio"
wait "$fio" 2>/dev/null
like "$(status s)" '^[0-9]+/' "the store is still valid"
