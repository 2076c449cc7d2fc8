#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A test that is ended, as tests/vm/guest-run does it, cleans up at once, whatever it waits for.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$top/tests/host/tap.sh"

cat >"$work/endless.t" <<-END
	. "$top/tests/lib.sh"
	# Not a word on the kernel of this machine.
	_plan=skipped
	at_exit touch "$work/cleaned"
	number()
	{
		cat /dev/null
		echo 5
	}
	is_over()
	{
		[[ \$(number) -lt 4 && \$(number) -gt 0 ]]
	}
	# As wait_for() does, without its pauses.
	await()
	{
		until "\$@" >/dev/null 2>&1; do
			((SECONDS < 1000)) || return 1
		done
	}
	sleep 1000 &
	touch "$work/begun"
	while :; do
		ok "it is over" await is_over
	done
END

# cleans_up SECONDS [AFTER]: at the end of its time, or if it is ended AFTER seconds.
cleans_up()
{
	local seconds=$1 timed i

	rm -f "$work/begun" "$work/cleaned"
	bash "$top/tests/vm/timed" "$seconds" "$work/endless.t" >/dev/null 2>&1 &
	timed=$!
	for ((i = 0; i < 600; i++)); do
		[[ ! -e $work/begun ]] || break
		sleep 0.1
	done
	if (($# > 1)); then
		sleep "$2"
		kill -TERM "$timed"
	fi
	wait "$timed"
	[[ $? -ne 137 && -e $work/cleaned ]]
}

missed=0
for ((n = 10; n < 20; n++)); do
	cleans_up 600 "0.$n" || missed=$((missed + 1))
done
ok "each of ten tests that are ended in the middle cleans up" [ "$missed" -eq 0 ]
ok "a test cleans up at the end of its time" cleans_up 8
echo "1..$count"
