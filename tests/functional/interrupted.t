#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap rollback and remove, killed at any moment and run again, come to the same end as one
# that was not; clone goes on in the background; resize gives origin and store the room that the
# devices below them have gained.

. "$(dirname "$0")/common.sh"

need_command

ROUNDS=$(scaled 20)
MIB=1048576

# state NAME: what list says of an origin or a snapshot; "" if there is none.
state()
{
	"$tool" list | awk -v name="$1" '$1 == name { print $(NF - 1) }'
}

table_of()
{
	dmsetup table "$1" 2>/dev/null | awk '{ print $3 }'
}

# killed MICROSECONDS ARGS...: cowsnap ARGS, for so long.
killed()
{
	timeout -s KILL "$(printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)))" \
		"$tool" "${@:2}" >"$TEST_TMP/killed" 2>&1
}

# time_of COMMAND...: in microseconds; its output is lost.
time_of()
{
	local begin=${EPOCHREALTIME/./}

	"$@" >/dev/null 2>&1
	echo $((${EPOCHREALTIME/./} - begin))
}

_forget()
{
	local name

	dmsetup ls | awk '/^[a-z]+@/ { print $1 }' | xargs -rn1 dmsetup remove
	for name in data vol vol-home below room; do
		_dmremove "$name"
	done
}
at_exit _forget

# ---- resize ----

base=$(mkloop 16M)
store=$(mkloop 64M)
dmcreate below "0 16384 linear $base 0"
dmcreate room "0 8192 linear $store 0"
"$tool" create --name data /dev/mapper/below /dev/mapper/room >/dev/null
fill /dev/mapper/data "$TEST_TMP/image"
"$tool" snapshot data >/dev/null
ok "resize without anything to gain" "$tool" resize data
is "$("$tool" list data | awk 'NR > 1 { print $2 }' | xargs)" "8M 4M 8M" "changes nothing"
dmreload below "0 32768 linear $base 0"
dmreload room "0 131072 linear $store 0"
ok "resize, as a dry run" "$tool" resize -n data
is "$("$tool" list data | awk 'NR > 1 { print $2 }' | xargs)" "8M 4M 8M" \
	"a dry run changes nothing"
ok "resize" "$tool" resize data
is "$("$tool" list data | awk 'NR > 1 { print $2 }' | xargs)" "16M 64M 8M" \
	"origin and store have the room, the snapshot its length"
put /dev/mapper/data - 0 $((4 * MIB)) $((8 * MIB - 4096)) $MIB
ok "the snapshot is activated" "$tool" activate data@1
ok "the snapshot keeps what was written beyond the store's old room" same /dev/mapper/data@1 "$TEST_TMP/image"
"$tool" deactivate data@1
image /dev/mapper/data "$TEST_TMP/long"
"$tool" snapshot data >/dev/null
put /dev/mapper/data - $((12 * MIB)) $MIB
"$tool" activate data@2 >/dev/null
ok "a later one has what was gained" same /dev/mapper/data@2 "$TEST_TMP/long"
"$tool" deactivate data@2
diag "after $SECONDS s"

# ---- clone in the background ----

# What a clone that did not end has left is not this test's.
rm -f /var/lib/cowsnap/clone-*

background()
{
	"$tool" clone -bq "$1" "$2"
}

# Nobody else has it open, and what it noted is gone.
clone_ended()
{
	! dmsetup info data@2 && ! compgen -G '/var/lib/cowsnap/clone-*[0-9a-f]'
}

target=$(mkloop 16M)
dmcreate slow "0 32768 delay $target 0 0 $target 0 1000"
ok "clone --background begins" background data@2 /dev/mapper/slow
ok "clone --background copies on after the command has ended" dmsetup info data@2
put /dev/mapper/data - 0 $MIB
swap_table slow "$(linear_table "$target")"
ok "clone --background comes to its end" wait_for 60 clone_ended
ok "the clone has every byte" same /dev/mapper/slow "$TEST_TMP/long"
not_ok "a clone that cannot begin fails before it goes to the background" \
	background data@2 "$(mkloop 8M)"
like "$(<"$TEST_TMP/out")" 'too small' "a clone that cannot begin: why is said"
dmremove slow
"$tool" remove -f data >/dev/null
dmremove below
dmremove room
diag "after $SECONDS s"

# ---- rollback, killed ----

# A snapshot to go back to, a newer one, and writes after each of them.
prepare()
{
	first=$("$tool" snapshot data) || return
	image /dev/mapper/data "$TEST_TMP/first"
	put /dev/mapper/data - 0 $((2 * MIB)) $((4 * MIB)) 65536
	second=$("$tool" snapshot data) || return
	image /dev/mapper/data "$TEST_TMP/second"
	put /dev/mapper/data - $MIB $((2 * MIB)) $((6 * MIB)) 8192
}

is_newer_right()
{
	"$tool" activate "$second" >/dev/null && same "/dev/mapper/$second" "$TEST_TMP/second" &&
		"$tool" deactivate "$second"
}

rollback_round()
{
	prepare || return
	killed "$1" rollback -q "$first"
	if [[ $(state "$first") ]]; then
		"$tool" rollback -q "$first" || return
	fi
	[[ "$(state data) $(state "$first")" == "active " ]] || return
	same /dev/mapper/data "$TEST_TMP/first" && is_newer_right && "$tool" delete "$second"
}

# rounds NAME TIME FUNCTION: after every part of the time; says what went wrong.
rounds()
{
	local round after

	for ((round = 0; round < ROUNDS; round++)); do
		after=$(($2 * (2 * round + 1) / (2 * ROUNDS)))
		"$3" "$after" >"$TEST_TMP/said" 2>&1 && continue
		echo "$1, killed after $after of $2 us:"
		cat "$TEST_TMP/killed" "$TEST_TMP/said"
		dmsetup table
		return
	done
}

base=$(mkloop 8M)
store=$(mkloop 64M)
"$tool" create --name data "$base" "$store" >/dev/null
prepare
# As a command leaves it that is killed after it has loaded the table.
"$tool" rollback -n "$first" | grep -m 1 '^dmsetup load' | sh
is "$(dmsetup info -c --noheadings -o tables_loaded data)" "Both" "a table waits that merges"
ok "rollback where the table waits" "$tool" rollback -q "$first"
ok "the origin is what the snapshot was" same /dev/mapper/data "$TEST_TMP/first"
"$tool" delete "$second" >/dev/null
prepare
took=$(time_of "$tool" rollback -q "$first")
is "$(rounds rollback "$took" rollback_round 2>&1)" "" \
	"rollback, killed $ROUNDS times in $took us and run again, is right"

# ---- rollback, run twice ----

is_state()
{
	[[ $(state data) == "$1" ]]
}

# It has looked at the merge a few times: it looks, and sleeps, every 100 ms.
has_polled()
{
	(($(awk '$1 == "voluntary_ctxt_switches:" { print $2 }' "/proc/$1/status") > 20))
}

# The later one ends when the snapshot is gone, and another one has its number. The data
# is written slowly until both of them wait.
ended_late()
{
	local pids=()

	swap_table merged "$(delay_table "$base" 0 3000)"
	"$tool" rollback -q "$first" &
	pids+=($!)
	wait_for 60 is_state merging || return
	"$tool" rollback -q "$first" &
	pids+=($!)
	wait_for 60 has_polled "${pids[1]}"
	kill -STOP "${pids[1]}" && is_state merging || return
	swap_table merged "$(linear_table "$base")"
	wait "${pids[0]}" || return
	"$tool" delete "$second"
	dmsetup message data 0 create "${first#*@}" || return
	kill -CONT "${pids[1]}"
	wait "${pids[1]}" && [[ $(state "$first") == live ]]
}
"$tool" remove -f data >/dev/null
dmcreate merged "$(linear_table "$base")"
"$tool" create --name data /dev/mapper/merged "$store" >/dev/null
prepare
ok "two that wait for one rollback delete no other snapshot" ended_late
"$tool" remove -f data >/dev/null
dmremove merged
"$tool" create --name data "$base" "$store" >/dev/null
"$tool" remove -f data >/dev/null
diag "after $SECONDS s"

# ---- remove, killed ----

# remove_round MICROSECONDS: of what $begin has made; $left says what then has to be there.
remove_round()
{
	"$tool" create --name "$name" "$device" "$store" || return
	"$tool" snapshot "$name" || return
	put "/dev/mapper/$name" "$TEST_TMP/image" 4096 65536
	killed "$1" remove -f "$name"
	if [[ $(state "$name") || $(table_of vol-home) ]]; then
		"$tool" remove -f "$name" || return
	fi
	[[ ! $(state "$name") && ! $(table_of vol-home) && ! $(table_of data) ]] &&
		same "$device" "$TEST_TMP/image"
}

name=data device=$base
fill "$device" "$TEST_TMP/image"
"$tool" create --name data "$base" "$store" >/dev/null
"$tool" snapshot data >/dev/null
took=$(time_of "$tool" remove -f data)
is "$(rounds remove "$took" remove_round 2>&1)" "" \
	"remove, killed $ROUNDS times in $took us: a store without snapshots is left, or none"
wipefs -qa "$store"
dmcreate vol "0 $(sectors "$base") linear $base 0"
name=vol device=/dev/mapper/vol
"$tool" create --name vol /dev/mapper/vol "$store" >/dev/null
"$tool" snapshot vol >/dev/null
took=$(time_of "$tool" remove -f vol)
is "$(rounds "remove of a volume" "$took" remove_round 2>&1)" "" \
	"remove of a volume that was taken over, killed $ROUNDS times in $took us: it is plain again"
is "$(table_of vol)" linear "a volume whose remove was killed is linear"
"$tool" remove -f vol >/dev/null 2>&1
dmremove vol
done_testing
