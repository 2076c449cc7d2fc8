#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap enable, killed after each of its steps, or with the power cut there: the next boot has the
# origin or the plain device, with all its data, the file /etc/cowsnaptab can be read, and the same
# command goes on.

. "$(dirname "$0")/common.sh"

need mkfs.ext4 blkid
need_command

base=$(mkloop 8M)
store=$(mkloop 4M)
etc_disk=$(mkloop 16M)
etc=$TEST_TMP/etc
tab=$etc/tab
mkdir "$etc"
mkfs.ext4 -qF "$base"
mkfs.ext4 -qF "$etc_disk"
image "$base" "$TEST_TMP/image"

enable()
{
	"$tool" enable --file="$tab" --name data --store="$store" "$base"
}

active()
{
	[[ $(dmsetup table data 2>/dev/null) == *cowsnap-* ]]
}

_forget()
{
	_dmremove data
	umount -q "$etc"
	rm -f /run/cowsnap/data.dropped
}
at_exit _forget

# An empty store, and a file with a line of somebody else's.
begin_anew()
{
	_forget
	dd if=/dev/zero of="$store" bs=1M count=4 oflag=direct status=none
	mount "$etc_disk" "$etc"
	printf '# first\nother UUID=1 /dev/none noauto\n' >"$tab"
	rm -f "$tab.new"
	sync -f "$etc"
}

# What has reached the disks; what is in memory only is not in these files.
look="cp --sparse=always '$(loop_file "$store")' '$TEST_TMP/store.cut' &&
	cp --sparse=always '$(loop_file "$etc_disk")' '$TEST_TMP/etc.cut'"

# cut_power: the disks are what they were when the program stood still.
cut_power()
{
	_forget
	blockdev --flushbufs "$store" "$etc_disk"
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M oflag=direct status=none
	dd if="$TEST_TMP/etc.cut" of="$etc_disk" bs=1M oflag=direct status=none
	mount "$etc_disk" "$etc"
}

# whole: what anybody may expect of the machine then.
whole()
{
	"$tool" tab --file="$tab" check && grep -qx 'other UUID=1 /dev/none noauto' "$tab" &&
		same "$base" "$TEST_TMP/image"
}

# boots: a new boot starts what the file lists; and has the data.
boots()
{
	_dmremove data
	rm -f /run/cowsnap/data.dropped
	"$tool" tab --file="$tab" start || return
	! grep -q ^data "$tab" || { active && same /dev/mapper/data "$TEST_TMP/image"; }
}

goes_on()
{
	enable && active && [[ $(grep -c ^data "$tab") == 1 ]] && "$tool" snapshot data &&
		"$tool" disable -f --file="$tab" data
}

# try WORDS COMMAND...: counts what goes wrong.
try()
{
	local words=$1

	shift
	"$@" >"$TEST_TMP/said" 2>&1 && return
	wrong=$((wrong + 1))
	diag "step $step, $words: $*"
	diag <"$TEST_TMP/said"
}

# stop_at STEP: or a few sooner, where this run has fewer than the one that was counted.
stop_at()
{
	local last=$(($1 > 10 ? $1 - 10 : 1))

	for ((step = $1; step >= last; step--)); do
		begin_anew
		"$TOOLS/cowstep" "$step" "$look" "$tool" enable --file="$tab" --name data \
			--store="$store" "$base" >"$TEST_TMP/said" 2>&1 && return
		"$tool" disable -f --file="$tab" data
	done
	return 1
}

begin_anew
ok "enable that nothing interrupts" enable
ok "disable undoes it" "$tool" disable -f --file="$tab" data
begin_anew
read -r steps names < <("$TOOLS/cowstep" 0 '' "$tool" enable --file="$tab" --name data \
	--store="$store" "$base" | tail -n 1)
"$tool" disable -f --file="$tab" data
diag "$steps steps, of which these change names: $names"
isnt "$names" "" "some steps of enable change names"
ok "enable has more than ten steps" test "$steps" -gt 10

# So many of them, from the first to the last but two: runs differ by what they find. And each that
# changes names.
rounds=$(scaled 30) wrong=0 stopped=0 places=$names
((rounds > 1)) || rounds=2
for ((n = 0; n < rounds; n++)); do
	places+=" $((1 + n * (steps - 3) / (rounds - 1)))"
done
places=$(tr ' ' '\n' <<<"$places" | sort -nu | xargs)
rounds=$(wc -w <<<"$places")
for at in $places; do
	stop_at "$at" && stopped=$((stopped + 1))
	try killed whole
	try "killed, next boot" boots
	try "killed, run again" goes_on
	cut_power
	try "power cut" whole
	try "power cut, next boot" boots
	try "power cut, run again" goes_on
done
is "$stopped" "$rounds" "enable was stopped after $rounds of its steps"
is "$wrong" 0 "wherever it is interrupted the machine boots, and the same command goes on"
done_testing
