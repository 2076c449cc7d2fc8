#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store or an origin whose device is gone: each command ends with one sentence, and when the
# device is there again, so is the origin with what it had.

. "$(dirname "$0")/common.sh"

expect_log 'I/O error'
need_command

base=$(mkloop 8M)
store=$(mkloop 8M)
other=$(mkloop 8M)
dmcreate below "$(linear_table "$base")"
dmcreate room "$(linear_table "$store")"
at_exit _dmremove data
at_exit _dmremove data@1
fill "$base" "$TEST_TMP/unused"

# one_sentence WORD...: an error, within a minute.
one_sentence()
{
	local rc=0

	timeout 60 "$tool" "$@" >"$TEST_TMP/out" 2>"$TEST_TMP/said" || rc=$?
	diag <"$TEST_TMP/said"
	ok "$gone is gone: $1 says so in one sentence" \
		test "$rc $(grep -c '^cowsnap: .' "$TEST_TMP/said") $(wc -l <"$TEST_TMP/said")" = "2 1 1"
}

# is_gone WORDS NAME DEV COMMAND...: each of the commands, words in one.
is_gone()
{
	local command

	gone=$1
	"$tool" create --name data /dev/mapper/below /dev/mapper/room >/dev/null
	"$tool" snapshot data >/dev/null
	put /dev/mapper/data - 65536 65536
	image /dev/mapper/data "$TEST_TMP/now"
	swap_table "$2" "$(error_table "$3")"
	for command in "${@:4}"; do
		# shellcheck disable=SC2086  # words
		one_sentence $command
	done
	ok "$gone is gone: list lists what there is" "$tool" list
	swap_table "$2" "$(linear_table "$3")"
	ok "$gone is there again: so is all that the origin had" same /dev/mapper/data "$TEST_TMP/now"
	ok "$gone is there again: it can be removed" "$tool" remove -f data
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
}

is_gone "the store" room "$store" "snapshot data" "check /dev/mapper/room" "dump /dev/mapper/room" \
	"map /dev/mapper/room" "clone -q data@1 $other" "delete data@1" "rollback data@1"
is_gone "the origin" below "$base" "clone -q data@1 $other" "send data@1"
not_ok "a store that is no device is refused" "$tool" check /dev/mapper/none
done_testing
