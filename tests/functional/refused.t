#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A table may be refused when it is in force already. The volume, whether the command takes it over
# or rolls it back, has its own table again then, and goes on. A sealed origin is no empty device.

. "$(dirname "$0")/common.sh"

need_command
need_target flakey delay
expect_log 'I/O error|cannot be merged|stays there|is given up|are invalid|critical'

refused()
{
	refuses "$tool" "$@"
}

# goes_on NAME TARGET: it has that table, and no write waits.
goes_on()
{
	[[ $(dmsetup table "$1" | awk '{ print $3 }') == "$2" && $(dmsetup info -c --noheadings \
		-o suspended "$1") == Active ]] &&
		timeout 20 dd if=/dev/zero of="/dev/mapper/$1" bs=4k count=1 seek=1000 oflag=direct \
			conv=notrunc status=none
}

_forget()
{
	local name

	dmsetup ls | awk '/^[a-z]+@/ { print $1 }' | xargs -rn1 dmsetup remove
	for name in data more vol vol-home room weak bad; do
		dmsetup resume "$name" 2>/dev/null
		_dmremove "$name"
	done
}
at_exit _forget

# ---- a sealed origin ----

sealed=$(mkloop 16M)
store=$(mkloop 16M)
fill "$sealed" "$TEST_TMP/image"
"$tool" create --name data "$sealed" "$store" >/dev/null
dmremove data
ok "an origin is sealed" "$tool" seal "$sealed" "$store"

base=$(mkloop 16M)
dmcreate vol "$(linear_table "$base")"
refused 'keep-home or --keep-store' "a volume is not taken over with the store of a sealed one" \
	create --existing /dev/mapper/vol "$store"
ok "it is what it was, and is written" goes_on vol linear
not_ok "nothing else is left" dmsetup info vol-home

# ---- a target that is sealed ----

room=$(mkloop 16M)
dmcreate room "$(linear_table "$room")"
ok "the volume is taken over with a store of its own" "$tool" \
	create --name data /dev/mapper/vol /dev/mapper/room
"$tool" snapshot data >/dev/null
get "$sealed" 0 1048576 >"$TEST_TMP/before"
refused 'sealed origin' "no clone is written over a sealed origin" clone -q data@1 "$sealed"
"$tool" send data@1 >"$TEST_TMP/stream"
receive()
{
	"$tool" receive "$@" <"$TEST_TMP/stream"
}
refuses receive 'sealed origin' "nor is what is received" "$sealed"
ok "it has every byte" cmp -n 1048576 "$sealed" "$TEST_TMP/before"

# ---- an origin whose first resume fails ----

dmcreate home "0 $(sectors "$sealed") flakey $sealed 0 0 1000 1 error_writes"
dmcreate o "" --notable
dmload o "$(origin_table /dev/mapper/home store "$store")"
not_ok "a sealed origin that cannot be flushed is not resumed" dm resume o
swap_table home "$(linear_table "$sealed")"
ok "it is resumed once it can be" dm resume o
ok "and shows what it had" same /dev/mapper/o "$TEST_TMP/image"
dmremove o
dmremove home

# ---- a rollback that cannot begin ----

swap_table room "0 $(sectors "$room") flakey $room 0 0 1000 1 error_writes"
refused '' "a rollback whose beginning cannot be noted fails" rollback -q data@1
swap_table room "$(linear_table "$room")"
ok "the origin is what it was, and is written" goes_on data cowsnap-origin
dmremove data
dmremove vol
dmremove room

# ---- the same, and somebody ends the command meanwhile ----

is_suspended()
{
	[[ $(dmsetup info -c --noheadings -o suspended "$1") == Suspended ]]
}

plain=$(mkloop 16M)
room=$(mkloop 16M)
dmcreate weak "$(linear_table "$room")"
"$tool" create --name more "$plain" /dev/mapper/weak >/dev/null
"$tool" snapshot more >/dev/null
dmcreate bad "0 $(sectors "$room") flakey $room 0 0 1000 1 error_writes"
swap_table weak "0 $(sectors "$room") delay /dev/mapper/bad 0 0 /dev/mapper/bad 0 3000"
"$tool" rollback -q more@1 &
victim=$!
ok "a rollback that cannot begin: the origin is suspended" wait_for 60 is_suspended more
kill -TERM "$victim"
wait "$victim"
is "$?" 143 "the signal ends the command"
swap_table weak "$(linear_table "$room")"
ok "not before the origin goes on" goes_on more cowsnap-origin
dmremove more
dmremove bad
dmremove weak
done_testing
