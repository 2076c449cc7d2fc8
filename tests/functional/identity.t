#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Device mapper gives the number of a removed device to the next one: what is written to that
# is not taken for a write to the origin of a store that is closed meanwhile.

. "$(dirname "$0")/common.sh"

plan 5
MINOR=200

# origin_device LETTER: as LVM has one, with a uuid, always of the same number.
origin_device()
{
	dmcreate below "$(linear_table "$base")" -u "cowtest-$1" -j "$(dm_major)" -m $MINOR
}

dm_major()
{
	awk '$2 == "device-mapper" { print $1 }' /proc/devices
}

base=$(mkloop 4M)
store=$(mkloop 8M)
fill_letter "$base" A
origin_device a
origin_up o /dev/mapper/below
snap_up s /dev/mapper/below "$store" P 8 id 1 create
put_letter /dev/mapper/o B 0 4096
dmremove s
dmremove o
dmremove below

whole=$base
base=$(mkloop 4M)
origin_device b
origin_up o /dev/mapper/below
ok "another device of that number is written" put_letter /dev/mapper/o C 0 65536
dmremove o
dmremove below

base=$whole
origin_device a
origin_up o /dev/mapper/below
ok "the store is opened again" snap_up s /dev/mapper/below "$store" P 8 id 1
like "$(status s)" '^[0-9]+/' "the snapshot of a device made again is valid"
ok "the snapshot of a device made again is as it was" all_letter /dev/mapper/s A
dmremove s
dmremove o
dmremove below

# The same device, made again: a write to it is noticed.
origin_device a
origin_up o /dev/mapper/below
put_letter /dev/mapper/o D 8192 4096
snap_up s /dev/mapper/below "$store" P 8 id 1
is "$(status s)" "Invalid" "the origin itself, written while its store was away, is known again"
