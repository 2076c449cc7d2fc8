#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The tracepoints tell what a first write waits for: it is parked, its chunk is copied, committed,
# published and released, and it decides again; a write that needs no copy leaves no trace.

. "$(dirname "$0")/common.sh"

dir=$(tracefs) || skip_all "no trace events in this kernel"
plan 13
exact_copies

# traced COMMAND...: the module's events meanwhile, a name a line, into $TEST_TMP/events.
traced()
{
	echo >"$dir/trace"
	echo 1 >"$dir/tracing_on"
	echo 1 >"$dir/events/cowsnap/enable"
	"$@"
	echo 0 >"$dir/events/cowsnap/enable"
	grep -o 'cowsnap_[a-z_]*: .*' "$dir/trace" >"$TEST_TMP/events" || true
}

# seen EVENT [REGEX]
seen()
{
	grep -q "^cowsnap_$1: .*${2-}" "$TEST_TMP/events"
}

merge_all()
{
	dmcreate o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 1" &&
		wait_for 60 merged
}

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
origin_up o "$base"
traced snap_up s "$base" "$store" P 8 id 1 create
ok "a creation is traced" seen create
dmreload o "$(origin_table "$base" store "$store")"
traced put_letter /dev/mapper/o B 65536 4096
for event in park copy commit committed publish release decide_again; do
	ok "a first write: $event is traced" seen "$event"
done
ok "a first write: it waits for a pending" seen park 'waits for pending'
traced put_letter /dev/mapper/o C 65536 4096
not_ok "a second write: it does not wait" seen park
not_ok "a second write: nothing is copied" seen copy
dmremove s
dmremove o
traced merge_all
ok "a merge: its steps are traced" seen merge_step
ok "a merge: the origin is the snapshot" all_letter /dev/mapper/o A
