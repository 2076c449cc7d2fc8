#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A dry run of each command that has one prints lines and changes nothing; those of the commands
# that are no more than their lines do, run by a shell, what the command does.

. "$(dirname "$0")/common.sh"

need mkfs.ext4
need_command

base=$(mkloop 16M)
store=$(mkloop 16M)
other=$(mkloop 24M)
tab=$TEST_TMP/tab
view=$TEST_TMP/view
mkdir "$view"
mkfs.ext4 -qF "$base"
at_exit _dmremove data
at_exit _dmremove data@1
at_exit _umount "$view"
tried=()

# everything: that a command could change.
everything()
{
	local device

	sync
	# Not as they were when they were last read.
	for device in "$base" "$store" "$other"; do
		blockdev --flushbufs "$device"
		sha256sum "$device"
	done
	dmsetup ls | sort
	dmsetup table | sort
	! dmsetup info data >/dev/null 2>&1 || dmsetup message data 0 list
	findmnt -rno TARGET,SOURCE
	ls -lR --time-style=full-iso /var/lib/cowsnap "$tab" 2>/dev/null
}

# dry REGEX COMMAND WORD...: the lines are left in a file.
dry()
{
	local regex=$1 before

	shift
	tried+=("$1")
	before=$(everything)
	ok "$1: a dry run" "$tool" "$1" -n "${@:2}" || return
	"$tool" "$1" -n "${@:2}" >"$TEST_TMP/lines"
	diag <"$TEST_TMP/lines"
	ok "$1: each of its lines is a command" \
		test "$(grep -cE "$regex" "$TEST_TMP/lines") " = "$(wc -l <"$TEST_TMP/lines") "
	isnt "$(<"$TEST_TMP/lines")" "" "$1: there are some"
	is "$(everything)" "$before" "$1: nothing has changed"
}

# by_hand WORDS: the lines, typed in.
by_hand()
{
	ok "$1" bash -e "$TEST_TMP/lines"
}

# noted: a second after a commit, a store that is idle notes it.
noted()
{
	sleep 2
}

state()
{
	"$tool" list | awk -v name="$1" '$1 == name { print $(NF - 1) }'
}

COMMAND='^(dmsetup|dd|blkdiscard|mount|umount|sync|udevadm|cp|#) '
dry "$COMMAND" create --name data "$base" "$store"
by_hand "create: its lines are run"
is "$(state data)" active "create: the origin is there"
dry "$COMMAND" snapshot data
by_hand "snapshot: its lines are run"
is "$(state data@1)" live "snapshot: it is there"
dry "$COMMAND" mount data@1 "$view"
by_hand "mount: its lines are run"
ok "mount: it is mounted" mountpoint -q "$view"
dry "$COMMAND" umount "$view"
by_hand "umount: its lines are run"
not_ok "umount: it is not mounted any more" mountpoint -q "$view"
dry "$COMMAND" activate data@1
by_hand "activate: its lines are run"
ok "activate: it has a device" test -b /dev/mapper/data@1
dry "$COMMAND" deactivate data@1
by_hand "deactivate: its lines are run"
not_ok "deactivate: it has none" dmsetup info data@1
dry "$COMMAND" set data throttle 50 low_water 70
by_hand "set: its lines are run"
is "$("$tool" status data | awk '$1 == "throttle" { print $2 }')" 50 "set: the option has its value"
put /dev/mapper/data - $((8 << 20)) 65536
noted
dry "$COMMAND" clone data@1 "$other"
dry "$COMMAND" rollback data@1
dry "$COMMAND" delete --track data@1
dry "$COMMAND" delete data@1
by_hand "delete: its lines are run"
is "$(state data@1)" "" "delete: it has gone"
noted
truncate -s 20M "$(loop_file "$base")"
losetup -c "$base"
dry "$COMMAND" resize data
by_hand "resize: its lines are run"
is "$("$tool" list data | awk 'NR == 2 { print $2 }')" 20M "resize: the origin has the room"
noted
dry "$COMMAND" remove data
"$tool" remove data >/dev/null
dry '^name' enable --file="$tab" --store="$store" --name name "$base"
"$tool" enable --file="$tab" --store="$store" --name data "$base" >/dev/null
"$tool" snapshot data >/dev/null
not_ok "disable: a dry run refuses what a run does" "$tool" disable -n --file="$tab" data
"$tool" snapshot data >/dev/null
"$tool" mount data@2 "$view" >/dev/null
not_ok "disable: a dry run refuses where a snapshot is mounted" \
	"$tool" disable -n --force --file="$tab" data
not_ok "disable: so does a run" "$tool" disable --force --file="$tab" data
is "$(state data@1) $(state data@2)" "live live" "disable: none is deleted then"
"$tool" umount "$view" >/dev/null
dry '^(cowsnap (delete|tab stop) data|# .* loses line)' disable --force --file="$tab" data
ok "disable: then it is done" "$tool" disable --force --file="$tab" data

# Those for a pair that no module has say what would be done.
"$tool" create --name data "$base" "$store" >/dev/null
"$tool" snapshot data >/dev/null
dmremove data
dry ' KiB are in ' seal "$base" "$store"
ok "seal: it is done" "$tool" seal "$base" "$store"
dry ' chunks' settle "$base" "$store"
dry ': would be opened$' unseal "$base" "$store"
ok "unseal: it is done" "$tool" unseal "$base" "$store"

# The help says which commands have one.
is "$(printf '%s\n' "${tried[@]}" repair | sort -u | xargs)" \
	"$("$tool" --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p' | while read -r command; do
		! "$tool" "$command" --help | grep -q -- --dry-run || echo "$command"
	done | sort | xargs)" "all commands that have a dry run are here, but for that of a store that is damaged"
done_testing
