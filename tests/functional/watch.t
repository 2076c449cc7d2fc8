#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap watch: what is written and copied while it looks makes rates, the room that is left and
# the rate of its use say when the store will be full; without writes there is no such time.

. "$(dirname "$0")/common.sh"

need perl
need_command
plan 9

exact_copies
base=$(mkloop 32M)
store=$(mkloop 40M)
fill "$base" "$TEST_TMP/unused"
"$tool" create --name data "$base" "$store" >/dev/null
at_exit _dmremove data
"$tool" snapshot data >/dev/null

# fields OUTPUT NAME...: of each line.
fields()
{
	perl -MJSON::PP -ne '
		BEGIN { @names = splice(@ARGV, 1) }
		my $o = decode_json($_);
		print join(" ", map { $o->{$_} // "null" } @names), "\n"' "$@"
}

# Every 100 ms 64 KiB that no snapshot has yet.
: >"$TEST_TMP/writing"
for ((n = 0; n < 500; n++)); do
	[[ -e $TEST_TMP/writing ]] || break
	put /dev/mapper/data - $((n * 65536)) 65536
	sleep 0.1
done &
writer=$!
"$tool" watch --interval 3 --count 4 --json data >"$TEST_TMP/json"
"$tool" watch --interval 3 --count 2 data >"$TEST_TMP/text"
rm "$TEST_TMP/writing"
wait $writer
diag <"$TEST_TMP/json"
diag <"$TEST_TMP/text"
is "$(wc -l <"$TEST_TMP/json")" 4 "watch prints as many lines of JSON as were asked for"
is "$(fields "$TEST_TMP/json" origin store size | sort -u)" "data $store $((40 << 20))" \
	"each line says which origin and store, and how large"
is "$(fields "$TEST_TMP/json" seconds_until_full | head -n 1)" null "the first line knows of no rate yet"
ok "the later lines have rates of writes, copies and room" \
	test -z "$(fields "$TEST_TMP/json" written_per_second copies_per_second used_per_second |
		sed 1d | grep -wE '0|null')"
ok "used room grows from line to line" sort -nuc <(fields "$TEST_TMP/json" used)
is "$(fields "$TEST_TMP/json" size used used_per_second seconds_until_full |
	awk 'NR > 1 && $4 != int(($1 - $2) / $3)')" "" \
	"the store is full when the room that is left is used at that rate"
ok "for people too: a column says in how long" \
	test "$(awk 'NR > 2 && $NF ~ /[0-9]/' "$TEST_TMP/text" | wc -l)" = 1

# Nobody writes.
"$tool" watch --interval 1 --count 2 --json data >"$TEST_TMP/json"
is "$(fields "$TEST_TMP/json" written_per_second copies_per_second used_per_second \
	seconds_until_full | tail -n 1)" "0 0 0 null" "while nobody writes nothing is used, and it is never full"
"$tool" watch --interval 1 --count 2 data >"$TEST_TMP/text"
is "$(awk 'END { print $NF }' "$TEST_TMP/text")" - "without writers the text has no time until the store is full"
"$tool" remove -f data >/dev/null
