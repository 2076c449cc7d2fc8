#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The status lines keep their grammar: what LVM reads first, key value pairs
# after it; a word alone when the snapshot is lost; tables in full.

. "$(dirname "$0")/common.sh"

MIB=1048576
PAIRS='( [a-z][a-z0-9_]* [^ ]+)*'

exact_copies
plan 19

# Events are counted by device mapper: dmsetup wait is woken by the same call.
events()
{
	dmsetup info -c --noheadings -o events "$1"
}

base=$(mkloop 16M)
store=$(mkloop 8M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" N 8

like "$(dmsetup status s)" "^0 32768 cowsnap [0-9]+/[0-9]+ [0-9]+$PAIRS\$" \
	"the status line of a snapshot keeps its grammar"
like "$(dmsetup status o)" "^0 32768 cowsnap-origin$PAIRS\$" \
	"the status line of an origin keeps its grammar"
like "$(status s)" "^[0-9]+/$(sectors "$store") " "the total in the status is the store's size"
before=$(used_sectors s)
is "$before" "$(status s | cut -d' ' -f2)" "a new snapshot uses what its metadata take"
put_letter /dev/mapper/o B 0 4096
is "$(used_sectors s)" $((before + 8)) "one chunk preserved uses one chunk"
put_letter /dev/mapper/o B 0 4096
is "$(used_sectors s)" $((before + 8)) "a chunk written again uses none more"
put_letter /dev/mapper/o B 6144 4096
is "$(used_sectors s)" $((before + 24)) "a write across a border uses two chunks"
put_letter /dev/mapper/o B $MIB $MIB
is "$(used_sectors s)" $((before + 24 + 2048)) "a write of 1 MiB uses as many sectors"
get /dev/mapper/s 0 $((8 * MIB)) $MIB >/dev/null
is "$(used_sectors s)" $((before + 24 + 2048)) "reading the snapshot uses no room"
put_letter /dev/mapper/s P $((8 * MIB)) 4096
is "$(used_sectors s)" $((before + 32 + 2048)) "a write to the snapshot uses a chunk"
is "$(status s | tr ' ' '\n' | tail -n +3 | awk 'NR % 2' | sort | uniq -d)" "" \
	"no key is twice in the status line"
like "$(dmsetup table s)" '^0 32768 cowsnap [0-9]+:[0-9]+ [0-9]+:[0-9]+ N 8' \
	"the table of a snapshot is shown in full"
like "$(dmsetup table o)" '^0 32768 cowsnap-origin [0-9]+:[0-9]+( |$)' \
	"the table of an origin is shown in full"

has_event()
{
	(($(events s) > seen))
}

seen=$(events s)
put_letter /dev/mapper/o B 0 $((16 * MIB)) $MIB
is "$(status s)" Invalid "a full store: Invalid, alone on the line"
ok "a full store causes an event" wait_for 60 has_event
dmremove s
fill_letter "$base" A
snap_up s "$base" "$store" NO 8
like "$(dmsetup table s)" ' NO 8' "NO stands in the table"
put_letter /dev/mapper/o B 0 $((16 * MIB)) $MIB
is "$(status s)" Overflow "with NO: Overflow, alone on the line"
dmremove s
like "$(status o)" '^([a-z][a-z0-9_]* [^ ]+( |$))*$' \
	"the origin's status line keeps its grammar without the snapshot"
snap_up s "$base" "$store" N 8 discard_zeroes_cow
like "$(dmsetup table s)" ' N 8 1 discard_zeroes_cow' "features stand in the table, counted"
