#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Where a cache takes records of the log at once, copies go by the tables. When the cache is gone,
# they go by the log again.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/log.sh"

need_target delay

# One record in nine has to end in 200 µs. Where dd takes more than 1 ms for each write to memory,
# that is not to be expected.
is_quick()
{
	local begin

	begin=$(date +%s%N)
	dd if=/dev/zero of="$1" bs=8k count=256 oflag=direct status=none
	(($(date +%s%N) - begin < 256 * 1000000))
}

# grows_by KEY FROM TO: by how much it grows while these chunks are copied.
grows_by()
{
	local before

	before=$(key_of s "$1")
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$2" "$3"
	echo $(($(key_of s "$1") - before))
}

store=$(mkram 32)
is_quick "$store" || skip_all "writes to memory take too long here"
exact_copies
plan 8

# few_records FROM TO: of 60 copies in a row hardly any has a record, somewhere in this range.
# On a busy machine it takes the module a while to notice.
few_records()
{
	local n

	for ((n = $1; n < $2; n += 60)); do
		(($(grows_by records "$n" $((n + 60))) > 15)) || return 0
	done
	return 1
}

# A disk that turns, as far as anybody can tell.
base=$(mkloop 8M)
echo 1 >"$(sysfs "$store")/queue/rotational"
fill "$base" "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old"
dmcreate cow "$(delay_table "$store" 0 0)"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8 id 1 create log on
# Until there are zones copies go by the tables.
for ((first = 0; first < 40; first++)); do
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$first" $((first + 1))
	! at_least records 1 || break
	sleep 0.1
done

ok "the first copies go by the log" at_least records 1
ok "a device that takes records at once soon gets hardly any" few_records 40 940
commits=$(grows_by commits 1000 1060)
ok "copies go by the tables instead" [ "$commits" -ge 45 ]

# One copy of 256 finds out, and those that follow it.
swap_table cow "$(delay_table "$store" 0 2)"
grows_by records 1060 1460 >/dev/null
records=$(grows_by records 1460 1560)
ok "a device that takes its time gets a record for each copy" [ "$records" -ge 95 ]
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"

swap_table cow "$(delay_table "$store" 0 0)"
ok "with a cache again there are few" few_records 1560 2040
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o
dmremove cow
like "$(checked "$store")" 'clean, 1 snapshots' "cowsnap check finds nothing"
