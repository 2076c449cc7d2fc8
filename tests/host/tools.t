#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap check, dump, restore and repair do what cowsnap(8) says: on stores of all
# sizes, whole and damaged, cut off, of other programs, and in use. No module is needed.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
cleanup=()
# shellcheck source=tap.sh
. "$top/tests/host/tap.sh"

finish()
{
	local i

	for ((i = ${#cleanup[@]} - 1; i >= 0; i--)); do
		eval "${cleanup[i]}" 2>/dev/null
	done
	rm -rf "$work"
}
trap finish EXIT

# scenario WORDS: what the points that follow are about.
scenario()
{
	about=$1
}

skip()
{
	count=$((count + 1))
	printf 'ok %d - %s # SKIP %s\n' "$count" "${about:+$about: }$1" "$2"
}

# says REGEX DESC: passes if the last command said so.
says()
{
	if grep -qE -- "$1" "$work/out"; then
		point ok "$2"
	else
		point 'not ok' "$2"
	fi
}

cowsnap()
{
	"$work/tools/cowsnap" "$@"
}

mkstore()
{
	"$work/tests/fuzz/mkstore" "$@"
}

# smash FILE BYTE [COUNT]: other bytes than there were.
smash()
{
	local file=$1 at=$2 n=${3:-64}

	dd if="$file" bs=1 skip="$at" count="$n" status=none | tr '\0-\377' '\1-\377\0' |
		dd of="$file" bs=1 seek="$at" conv=notrunc status=none
}

# flip FILE BYTE: one bit.
flip()
{
	local byte

	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059  # the format is the byte
	printf "\\$(printf %o $((byte ^ 4)))" |
		dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# whole: a new copy of the store $work/whole to be damaged.
whole()
{
	cp --sparse=always "$work/whole" "$work/s"
}

dumps_are_alike()
{
	diff <(cowsnap dump "$1" | grep -v sequence) <(cowsnap dump "$2" | grep -v sequence)
}

# A store that is restored leaves epochs out, and series.
is_restored()
{
	diff <(cowsnap dump "$1" | grep -vE '^epoch|sequence|^log_series') \
		<(cowsnap dump "$2" | grep -vE '^epoch|sequence|^log_series') &&
		test "$(epoch_of "$2")" -ge "$(($(epoch_of "$1") + 65536))"
}

epoch_of()
{
	cowsnap dump "$1" | sed -n 's/^epoch //p'
}

# Built in a copy, so that the checkout stays as it is.
for header in libdevmapper.h json-c/json.h blkid/blkid.h zstd.h; do
	if ! echo "#include <$header>" | cc -E - >/dev/null 2>&1; then
		echo "1..0 # SKIP no $header"
		exit
	fi
done
mkdir -p "$work/tests"
cp -r "$top/tools" "$top/include" "$work/"
mkdir "$work/docs"
cp "$top/docs/reference.md" "$work/docs/"
cp -r "$top/tests/fuzz" "$work/tests/"
make -C "$work/tools" clean >/dev/null
ok "the tools can be built, without a warning" make -C "$work/tools"
ok "the programs that make and damage stores can be built" make -C "$work/tests/fuzz" -B mkstore cowmutate

# ---- the checksum ---------------------------------------------------------------

cat >"$work/crc.c" <<'END'
#include <stdio.h>
#include "tools/crc32c.h"
#include "include/uapi/dm-cowsnap-format.h"
int main(void)
{
	const uint8_t uuid[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

	printf("%08x %08x\n", ~crc32c(~0U, "123456789", 9), cowsnap_seed(uuid, 0x123456789ab));
}
END
cc -Wall -Werror -I"$work" -o "$work/crc" "$work/crc.c" "$work/tools/crc32c.c"
# Worked out bit by bit, elsewhere.
ok "crc32c is that of RFC 3720, its seed that of the format" \
	test "$("$work/crc")" = "e3069283 b0dd84e9"

# ---- the command line ------------------------------------------------------------

version=$(sed -n 's/^#define COWSNAP_VERSION[[:space:]]*"\(.*\)"/\1/p' "$top/include/dm-cowsnap.h")
ok "--version is that of the module" test "$(cowsnap --version)" = "cowsnap $version"
ok "the manual names the version" grep -q "^\.TH COWSNAP 8 .* \"dm-cowsnap $version\"" "$top/tools/cowsnap.8"
ok "--help is no error" cowsnap --help
ends 2 "no command is wrong usage" cowsnap
ends 2 "an option of another command is wrong usage" cowsnap check --json "$work/x"
ends 2 "check without a store is wrong usage" cowsnap check
ends 2 "a file that is not there cannot be checked" cowsnap check "$work/none"
says 'none: No such file' "a file that is not there is named"
commands=$(cowsnap --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
all_help()
{
	local command

	for command in $commands; do
		cowsnap "$command" --help || return
	done
}
ok "every command has a --help" all_help

# ---- all sizes: check, dump and restore -------------------------------------------

seed=0
for block in 512 1024 2048 4096; do
	for chunk in 1 8 64 1024; do
		((block <= chunk * 512)) || continue
		name="blocks of $block, chunks of $chunk"
		bytes=$((chunk * 512 * 40 + 1048576))
		seed=$((seed + 1))
		ok "$name: a store is made" mkstore --block "$block" --chunk "$chunk" --seed "$seed" \
			--bytes "$bytes" --snapshots $((seed * 5)) --exceptions 30 \
			--origin $((chunk * 1000 + 1)) "$work/a"
		ok "$name: the store is clean" cowsnap check "$work/a"
		cowsnap dump "$work/a" >"$work/text" && cowsnap dump --json "$work/a" >"$work/json"
		for form in text json; do
			truncate -s 0 "$work/b" && truncate -s "$bytes" "$work/b"
			ok "$name: the store is restored from $form" cowsnap restore -i "$work/$form" \
				--data-from "$work/a" "$work/b"
			ok "$name: the store restored from $form is clean" cowsnap check "$work/b"
			ok "$name: the store restored from $form has the same dump" is_restored "$work/a" "$work/b"
		done
	done
done
truncate -s 0 "$work/b" && truncate -s "$bytes" "$work/b"
cowsnap restore -i "$work/text" "$work/b"
ok "no epoch is given out that the lost store may have given out" is_restored "$work/a" "$work/b"
before=$(epoch_of "$work/b")
cowsnap restore -i "$work/text" --data-from "$work/a" "$work/b"
ok "nor after a second restore, which leaves out no more" test "$(epoch_of "$work/b")" = "$before"
ok "the JSON is JSON" sh -c "jq -e '.exceptions | length > 0' <$work/json"

# ---- damage ------------------------------------------------------------------------

# Block 2 and the data chunks have places that follow from the sizes.
mkstore --block 4096 --chunk 16 --plain --snapshots 30 --exceptions 600 --bytes 16M \
	"$work/whole" 2>/dev/null ||
	mkstore --block 4096 --chunk 16 --plain --snapshots 30 --exceptions 600 \
		--bytes $((16 << 20)) "$work/whole"
place=$(cowsnap dump "$work/whole" | sed -n '0,/^exception/s/.* place \([0-9]*\) .*/\1/p')
records=$(cowsnap dump "$work/whole" | sed -n 's/^records .* place //p')
table=$(cowsnap dump --json "$work/whole" | jq '[.exceptions[].place] | max')
((place && records && table > 520)) || echo "Bail out! the store is not as expected"

whole
scenario "a whole store"
ok "check finds nothing" cowsnap check "$work/s"
says ': clean, 30 snapshots, 600 chunks' "check calls it clean"
ok "repair finds nothing to do" cowsnap repair "$work/s"
ok "repair does nothing" cmp "$work/s" "$work/whole"
ok "check -q finds nothing" cowsnap check -q "$work/s"
ok "check -q says nothing" test ! -s "$work/out"

for copy in A B; do
	whole
	[[ $copy == A ]] && at=100 || at=4196
	smash "$work/s" "$at" 3
	scenario "superblock $copy damaged"
	ends 1 "check finds it" cowsnap check "$work/s"
	says "superblock $copy .*run cowsnap repair" "check names it, with the remedy"
	ends 1 "repair -n finds it" cowsnap repair -n "$work/s"
	says "superblock $copy: written anew" "repair -n says what it would do"
	ends 1 "repair -n has not done it" cowsnap check "$work/s"
	ends 1 "repair mends it" cowsnap repair "$work/s"
	ok "the store is clean then" cowsnap check "$work/s"
	ok "nothing is lost" dumps_are_alike "$work/s" "$work/whole"
done
whole
smash "$work/s" 100 3
smash "$work/s" 420 20
smash "$work/s" 4296 3
smash "$work/s" 4360
scenario "both superblocks damaged, not in the same place"
ends 1 "check finds it" cowsnap check "$work/s"
says 'superblock A .*wrong magic or checksum' "check names one"
ends 1 "repair mends it" cowsnap repair "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
ok "nothing is lost" dumps_are_alike "$work/s" "$work/whole"
smash "$work/s" 100 3
smash "$work/s" 4196 3
scenario "both superblocks damaged"
ends 2 "repair cannot mend it" cowsnap repair "$work/s"
says 'cowsnap restore' "repair says what can"
cowsnap dump "$work/whole" >"$work/text"
ok "restoring a dump mends it" cowsnap restore -i "$work/text" "$work/s"
ok "the store is clean then" cowsnap check "$work/s"

whole
flip "$work/s" 600
scenario "one bit of a table"
ends 1 "check finds it" cowsnap check "$work/s"
says 'table block 0 .*one bit is wrong' "check says that it is one bit"
ends 1 "repair mends it" cowsnap repair "$work/s"
ok "nothing is lost" dumps_are_alike "$work/s" "$work/whole"
ok "the store is clean then" cowsnap check "$work/s"

for bytes in 100 4196 "100 4196" 50; do
	whole
	for byte in $bytes; do
		flip "$work/s" "$byte"
	done
	scenario "one bit of a superblock (byte $bytes)"
	ends 1 "check finds it" cowsnap check "$work/s"
	says 'superblock [AB] .*one bit is wrong' "check says that it is one bit"
	ends 1 "repair mends it" cowsnap repair "$work/s"
	ok "the store is clean then" cowsnap check "$work/s"
	ok "nothing is lost" dumps_are_alike "$work/s" "$work/whole"
done

whole
flip "$work/s" $((records * 8192 + 100))
scenario "one bit of a block of records"
ends 1 "check finds it" cowsnap check "$work/s"
says 'block 0 of records chunk 0 .*one bit is wrong' "check says that it is one bit"
ends 1 "repair mends it" cowsnap repair "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
ok "nothing is lost" dumps_are_alike "$work/s" "$work/whole"

# An older store, with larger blocks, has left its second superblock.
mkstore --block 512 --chunk 8 --plain --seed 21 "$work/s"
cowsnap dump "$work/s" | grep uuid >"$work/before"
mkstore --block 4096 --chunk 8 --plain --seed 22 "$work/older"
dd if="$work/older" of="$work/s" bs=512 skip=8 seek=8 count=1 conv=notrunc status=none
smash "$work/s" 100
cowsnap dump "$work/s" 2>/dev/null | grep uuid >"$work/after"
scenario "superblock A damaged, B of an older store"
ok "the older store's superblock does not count" cmp "$work/before" "$work/after"

whole
smash "$work/s" 600
scenario "a table block damaged"
ends 1 "check finds it" cowsnap check "$work/s"
says 'table block 0 \(sector 0\): wrong checksum.*invalid' "check names it, with the remedy"
ends 1 "dump gives what is valid" cowsnap dump "$work/s"
cowsnap dump "$work/s" >"$work/partial" 2>/dev/null
ok "the dump says that it is not all" grep -q '^lost_epoch [1-9]' "$work/partial"
ends 1 "repair mends it" cowsnap repair "$work/s"
says 'snapshot 29 becomes invalid' "repair gives the snapshots up"
ok "the store is clean then" cowsnap check -v "$work/s"
says 'clean, 0 snapshots' "no snapshot is alive"
truncate -s 0 "$work/b" && truncate -s $((16 << 20)) "$work/b"
ends 1 "a dump of what is left can be restored" cowsnap restore -i "$work/partial" "$work/b"
says 'snapshot 7 becomes invalid' "restoring that dump gives the snapshots up as well"

whole
smash "$work/s" $((place * 8192 + 5000)) 1
scenario "data of one chunk damaged"
ends 1 "check finds it" cowsnap check "$work/s"
says "copied chunk [0-9]+ of snapshots .*sector $((place * 16))" "check names the chunk, with its snapshots"
ok "check --no-data does not find it" cowsnap check --no-data "$work/s"
ends 2 "repair cannot make it whole" cowsnap repair "$work/s"
says 'reads of it fail' "repair says that reads of it fail"
ends 1 "repair --invalidate gives its snapshots up" cowsnap repair --invalidate "$work/s"
ok "the store is clean then" cowsnap check -v "$work/s"
says 'clean, ([1-9]|1[0-9]|2[0-9]) snapshots' "other snapshots live on"

whole
for ((i = 0; i < 30; i++)); do
	smash "$work/s" $(((place + 20 + i) * 8192 + 5000)) 1
done
scenario "data of 30 chunks damaged"
ends 1 "check finds it" cowsnap check "$work/s"
says '30 problems' "check counts all of it"
says 'and 20 more damaged chunks' "check sums up the last twenty"
ok "check has lines for the first ten only" test "$(grep -c 'wrong checksum' "$work/out")" = 10

whole
smash "$work/s" $((records * 8192 + 100))
scenario "records damaged"
ends 1 "check finds it" cowsnap check "$work/s"
says 'block 0 of records chunk 0' "check names the block"
ends 1 "repair mends it" cowsnap repair "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
says 'clean, 8 snapshots' "the snapshots recorded in the superblock live on"

# The slot of the records is in the block that is lost.
whole
cowsnap dump "$work/whole" | grep -c '^snapshot' >"$work/before"
smash "$work/s" 600
cowsnap repair "$work/s" >/dev/null
scenario "the slot of the records lost"
ok "repair finds the records again" \
	test "$(cowsnap dump "$work/s" | grep -c '^snapshot')" = "$(<"$work/before")"

# ---- cut off -------------------------------------------------------------------------

whole
truncate -s $((table * 8192)) "$work/s"
scenario "a store cut off"
ends 1 "check finds it" cowsnap check "$work/s"
says 'beyond the device; make it as long' "check names it, with the remedy"
ends 1 "repair mends it" cowsnap repair "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
truncate -s 5000 "$work/s"
scenario "a store cut off in its first chunks"
ends 2 "check finds no store" cowsnap check "$work/s"
says 'too short' "check says that it is too short"

# ---- unfinished ------------------------------------------------------------------------

mkstore --unfinished --seed 4 "$work/u"
cp "$work/u" "$work/u2"
scenario "a commit that did not end"
ok "check finds no damage" cowsnap check "$work/u"
says 'a commit had not ended; [0-9]+ slots' "check mentions it"
ok "repair finds nothing to do" cowsnap repair "$work/u"
ok "repair does nothing" cmp "$work/u" "$work/u2"

truncate -s 0 "$work/b" && truncate -s 4M "$work/b"
cowsnap dump "$work/u" >"$work/udump"
ok "a dump of it can be restored" cowsnap restore -i "$work/udump" --data-from "$work/u" "$work/b"
ok "the restored store is clean" cowsnap check "$work/b"
says 'a commit had not ended; [0-9]+ slots' "check of the restored store mentions it"
ok "the restored store has the same dump" is_restored "$work/u" "$work/b"
flip "$work/u" 100
ends 1 "repair mends something else" cowsnap repair "$work/u"
ok "repair leaves the commit in doubt" dumps_are_alike "$work/u" "$work/u2"

# ---- a log -----------------------------------------------------------------------------

log_tool()
{
	perl "$top/tests/functional/log.pl" "$@"
}

# in_record BYTE: that byte of the first record's block, in the file.
in_record()
{
	local chunk

	chunk=$(log_tool records "$work/l" | sed -n 1p | cut -d' ' -f2)
	echo $(($(log_tool sector "$work/l" "$chunk") * 512 + $1))
}

series_of()
{
	cowsnap dump "$1" | sed -n 's/^log_series //p'
}

scenario "a log"
mkstore --logged --block 512 --chunk 16 --snapshots 4 --seed 513 "$work/l"
cp "$work/l" "$work/l2"
ok "there are records" test -n "$(log_tool records "$work/l")"
ok "check finds no damage" cowsnap check "$work/l"
ok "repair finds nothing to do" cowsnap repair "$work/l"
ok "repair does nothing" cmp "$work/l" "$work/l2"
truncate -s 0 "$work/b" && truncate -s 4M "$work/b"
cowsnap dump "$work/l" >"$work/ldump"
ok "a dump of it can be restored" cowsnap restore -i "$work/ldump" --data-from "$work/l" "$work/b"
ok "the restored store is clean" cowsnap check "$work/b"
ok "the restored store has the same dump" is_restored "$work/l" "$work/b"
ok "its series go on far above" test "$(series_of "$work/b")" -gt $(($(series_of "$work/l") + 1000))
sed '/^log_series/d' "$work/ldump" >"$work/nolog"
cp "$work/l" "$work/c"
ok "a dump from before the log is restored to it" cowsnap restore -f -i "$work/nolog" "$work/c"
ok "series go on above those of the device" \
	test "$(series_of "$work/c")" -gt $(($(series_of "$work/l") + 1000))
rm -f "$work/c"
flip "$work/l" "$(in_record 60)"
ends 1 "check finds one wrong bit" cowsnap check "$work/l"
says 'one bit is wrong in 1 records' "check says where"
ends 1 "repair mends it" cowsnap repair "$work/l"
ok "what records had is in the tables" dumps_are_alike "$work/l" "$work/l2"
ok "no zone is named any more" test -z "$(log_tool zones "$work/l")"
cp "$work/l2" "$work/l"
smash "$work/l" "$(in_record 40)" 8
ends 1 "check finds a damaged record" cowsnap check "$work/l"
says 'log: [12] records are damaged' "check says so"
ends 1 "repair gives up what may have been in it" cowsnap repair "$work/l"
ok "then it is clean" cowsnap check "$work/l"

# ---- closed descriptors ----------------------------------------------------------------------

# without WHICH COMMAND...: with standard input (0), output (1) or error (2) closed.
without()
{
	case $1 in
	0) "${@:2}" <&- ;;
	1) "${@:2}" >&- ;;
	2) "${@:2}" 2>&- ;;
	esac
}

# The store is open for writing when restore says that it is another one.
mkstore --seed 9 "$work/another"
for fd in 0 1 2; do
	scenario "descriptor $fd is closed"
	cp "$work/another" "$work/s"
	cowsnap dump "$work/whole" >"$work/text"
	ends 2 "restore refuses another store" without "$fd" cowsnap restore -i "$work/text" "$work/s"
	ok "the message has not come onto that store" cmp "$work/s" "$work/another"
done

# ---- a dump that is older than the store ---------------------------------------------------

whole
cowsnap dump "$work/s" >"$work/olddump"
scenario "a dump of the store as it is"
ok "it is restored" cowsnap restore -i "$work/olddump" "$work/s"
ok "nothing is lost" is_restored "$work/whole" "$work/s"
ok "it is restored once more, as after an interruption" cowsnap restore -i "$work/olddump" "$work/s"
ok "nothing is lost" is_restored "$work/whole" "$work/s"
# Whatever is written to a store numbers its superblocks anew.
flip "$work/s" 100
cowsnap repair "$work/s" >/dev/null
cp --sparse=always "$work/s" "$work/newer"
scenario "a dump older than its target"
ends 1 "restore changes more than the dump says" cowsnap restore -i "$work/olddump" "$work/s"
says 'snapshot 7 becomes invalid: the store is newer than the dump' "restore makes the snapshots invalid, and says why"
ok "the store is clean then" cowsnap check "$work/s"
says 'clean, 0 snapshots' "no snapshot is alive"
cp --sparse=always "$work/newer" "$work/s"
ok "restore --force takes the dump as it is" cowsnap restore -f -i "$work/olddump" "$work/s"
ok "nothing is lost" is_restored "$work/whole" "$work/s"
truncate -s 0 "$work/b" && truncate -s $((16 << 20)) "$work/b"
scenario "data from a store newer than the dump"
ends 1 "restore changes more than the dump says" cowsnap restore -i "$work/olddump" \
	--data-from "$work/newer" "$work/b"
says 'snapshot 7 becomes invalid: the store is newer than the dump' "restore makes the snapshots invalid, and says why"
# A repair writes four superblocks; none of them may get a number that cannot be.
for last in 2305843009213693{951,949}; do
	whole
	sed -E "s/^super_sequence .*/super_sequence $last/" "$work/olddump" >"$work/lastdump"
	scenario "superblock $last of 2^61"
	ok "a store is restored whose superblocks are nearly out of numbers" \
		cowsnap restore -i "$work/lastdump" "$work/s"
	ok "it is clean" cowsnap check "$work/s"
	flip "$work/s" 600
	ends 1 "a flipped bit of the tables is found" cowsnap check "$work/s"
	ends 1 "and mended" cowsnap repair "$work/s"
	ok "what repair mended is clean" cowsnap check "$work/s"
done
# No superblock is left, but the tables have later numbers than the dump.
sed -i -E 's/^sequence .*/sequence 3/' "$work/olddump"
cp --sparse=always "$work/newer" "$work/s"
smash "$work/s" 0 512
smash "$work/s" 4096 512
scenario "a dump older than its target, which has no superblock left"
ends 1 "restore changes more than the dump says" cowsnap restore -i "$work/olddump" "$work/s"
says 'snapshot 7 becomes invalid: the store is newer than the dump' "restore makes the snapshots invalid, and says why"
rm -f "$work/newer"

# ---- what is no store ----------------------------------------------------------------------

truncate -s 4M "$work/f"
scenario "what is no store"
ends 2 "zeros are no store" cowsnap check "$work/f"
says 'no store yet' "zeros are no store yet, and check says so"
truncate -s 700 "$work/f2"
ends 2 "a file of 700 bytes is no store" cowsnap check "$work/f2"
says 'no store of dm-cowsnap: it has 512 bytes, too few' "a file of 700 bytes has too few, and check says so"
yes 'no store' | head -c 100000 >"$work/f2"
ends 2 "text is no store" cowsnap check "$work/f2"
says 'no store of dm-cowsnap$' "text is no store, and check says so"
printf 'SnAp\1\0\0\0\1\0\0\0\10\0\0\0' | dd of="$work/f" conv=notrunc status=none
for command in "check" "repair" "dump" "restore -i $work/text"; do
	# shellcheck disable=SC2086  # several words
	ends 2 "${command%% *} refuses a COW device of dm-snapshot" cowsnap $command "$work/f"
	says 'dm-snapshot' "${command%% *} names dm-snapshot"
done
if command -v mkfs.ext4 >/dev/null; then
	rm "$work/f"
	truncate -s 4M "$work/f" && mkfs.ext4 -q "$work/f"
	cp "$work/f" "$work/f2"
	ends 2 "a filesystem is no store" cowsnap check "$work/f"
	says 'no store of dm-cowsnap, it holds ext4' "check names the filesystem"
	# As if it had been swap before: libblkid does not say which of them counts.
	cp "$work/f" "$work/two"
	printf 'SWAP-SPACE' | dd of="$work/two" bs=1 seek=4086 conv=notrunc status=none
	ends 2 "what has two signatures is not empty" cowsnap check "$work/two"
	says 'it holds signatures of several kinds' "check names the two signatures"
	ends 2 "restore does not write over a filesystem" cowsnap restore -i "$work/text" "$work/f"
	says 'holds ext4' "restore names the filesystem"
	ok "the filesystem is as it was" cmp "$work/f" "$work/f2"
else
	skip "restore does not write over a filesystem" "no mkfs.ext4"
fi
mkstore --seed 9 "$work/other"
ends 2 "restore does not write over another store" cowsnap restore -i "$work/text" "$work/other"
says '-f overwrites' "restore says which option overwrites another store"

# ---- dumps that cannot be ------------------------------------------------------------------

# refused DESC SED_SCRIPT REASON: the dump, changed so, is refused, and nothing is written.
refused()
{
	local why=$3

	scenario "a dump $1"
	whole
	sed -E "$2" "$work/text" >"$work/bad"
	ends 2 "it is refused" cowsnap restore -i "$work/bad" "$work/s"
	says "$why" "the reason is given"
	ok "nothing is written" cmp "$work/s" "$work/whole"
}

refused "with a place in a table" '0,/ place [0-9]+ /s// place 0 /' 'place 0 is none'
refused "with a place beyond" '0,/ place [0-9]+ /s// place 99999999999 /' 'is none for data'
refused "with a place twice" "s/ place $((place + 1)) / place $place /
	/^exception/s/ count [0-9]+/ count 1/;s/(crc .{8}).*/\1/;s/ place [0-9]+ / place $place /" twice
refused "with a chunk beyond the origin" '0,/ chunk [0-9]+ /s// chunk 1099511627776 /' 'beyond the origin'
refused "with an epoch never given out" '/^exception/s/ epoch [0-9]+ / epoch 4000 /' 'never given out'
refused "with a run that is too long" '0,/ count [0-9]+ /s// count 4000000000 /' 'incomplete or wrong'
refused "with a crc that is none" '0,/ crc .{4}/s// crc xxxx/' 'digits'
refused "with a number twice" 's/^snapshot id 1 /snapshot id 2 /' 'snapshot 2'
refused "with sizes that cannot be" 's/^block_bytes .*/block_bytes 700/' 'cannot be'
refused "with an unknown word" 's/^throttle/thrott1e/' 'thrott1e is unknown'
refused "of another version" 's/^cowsnap-dump 1/cowsnap-dump 2/' 'version 2'
refused "with a line missing" '0,/^exception/{/^exception/d}' 'lines are missing'
# shellcheck disable=SC2016  # sed's
refused "that goes on after its end" '$s/$/\nthrottle 5/' 'throttle stands after its end'
scenario "a text dump that was cut off"
whole
grep -v '^end' "$work/text" | head -n -1 >"$work/cut"
ends 1 "restore changes more than the dump says" cowsnap restore -i "$work/cut" "$work/s"
says 'snapshot 7 becomes invalid: the dump has no end' "restore makes the snapshots invalid, and says why"
ok "no snapshot is live in the store" \
	sh -c "! '$work/tools/cowsnap' dump '$work/s' | grep '^snapshot.* state live '"
whole
grep -v '^end' "$work/text" >"$work/cut"
ok "restore --force takes the dump as it is" cowsnap restore -f -i "$work/cut" "$work/s"
ok "nothing is lost" is_restored "$work/whole" "$work/s"
scenario "dumps in JSON"
for bytes in 1 20 500 2000; do
	head -c "$bytes" "$work/json" >"$work/bad"
	ends 2 "one cut off after $bytes bytes is refused" cowsnap restore -i "$work/bad" "$work/s"
done
sed 's/"copied"/["copied"]/' "$work/json" >"$work/bad"
ends 2 "one of another shape is refused" cowsnap restore -i "$work/bad" "$work/s"
says 'not JSON of a dump' "the shape is the reason given"
ok "one is restored from standard input" sh -c "$work/tools/cowsnap dump --json $work/whole |
	$work/tools/cowsnap restore -i - $work/s"
ok "the store restored from standard input has the same dump" is_restored "$work/whole" "$work/s"

sed 's/^origin_sectors .*/origin_sectors 35184372088832/' "$work/text" >"$work/wide"
truncate -s 0 "$work/b" && truncate -s $((16 << 20)) "$work/b"
scenario "a dump of an origin with more than 2^36 chunks"
ok "it is restored" cowsnap restore -i "$work/wide" \
	--data-from "$work/whole" "$work/b"
ok "the store is clean then" cowsnap check "$work/b"
says 'clean, 30 snapshots, 600 chunks' "nothing is lost"

# ---- in use ---------------------------------------------------------------------------------

# As a mapped device does, and where there is no device mapper.
cat >"$work/hold.c" <<'END'
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (argc < 2 || open(argv[1], O_RDONLY | O_EXCL) < 0)
		return 1;
	write(1, "held\n", 5);
	pause();
	return 0;
}
END
cc -o "$work/hold" "$work/hold.c" 2>/dev/null

scenario "in use"
whole
loop=$(losetup --find --show "$work/s" 2>/dev/null)
if [[ $loop ]]; then
	cleanup+=("losetup --detach $loop")
	ok "check of a block device finds nothing" cowsnap check "$loop"
	ends 2 "repair refuses the file behind a loop device" cowsnap repair "$work/s"
	says "it is behind $loop" "repair names the loop device"
	exec {held}< <(exec "$work/hold" "$loop")
	cleanup+=("kill $!")
	read -r -t 10 -u "$held"
	ends 2 "check refuses a block device in use" cowsnap check "$loop"
	says 'in use' "check says that the block device is in use"
	ends 2 "check refuses the file behind a device in use" cowsnap check "$work/s"
	says "in use through $loop" "check names the device that is in use"
	ends 2 "repair refuses a block device in use" cowsnap repair "$loop"
else
	skip "check of a block device finds nothing" "no loop devices"
fi

# ---- the seal -----------------------------------------------------------------------------

# A loop device may have the one of before.
rm -f "$work/s"

# unsealed: a new store, and an origin for it.
unsealed()
{
	# Not the file that a loop device still has.
	rm -f "$work/s"
	cp --sparse=always "$work/plain" "$work/s"
	cp "$work/first" "$work/o"
}

sealed()
{
	unsealed
	cowsnap seal "$work/o" "$work/s"
}

# sector NUMBER LETTER: somebody writes to the origin.
sector()
{
	head -c 512 /dev/zero | tr '\0' "$2" | dd of="$work/o" bs=512 seek="$1" conv=notrunc status=none
}

live()
{
	cowsnap dump "$work/s" | grep -c '^snapshot .* state live '
}

for sizes in "512 8" "1024 8" "4096 16" "4096 1024"; do
	read -r block chunk <<<"$sizes"
	scenario "a seal, blocks of $block, chunks of $chunk"
	mkstore --plain --block "$block" --chunk "$chunk" --origin 16384 --exceptions 20 \
		--bytes $((32 << 20)) "$work/plain" 2>/dev/null
	head -c $((16384 * 512)) /dev/urandom >"$work/first"
	unsealed
	ok "seal -n writes nothing" cowsnap seal -n "$work/o" "$work/s"
	says 'should that be lost' "seal says what is lost with the store"
	ok "nothing was written" cmp "$work/o" "$work/first"
	ok "an origin is sealed" cowsnap seal "$work/o" "$work/s"
	ok "each of its first 136 sectors has a seal" test \
		"$(head -c 69632 "$work/o" | grep -ac 'dm-cowsnap seal$')" = 136
	ok "what is behind stays" cmp -i $((chunk > 136 ? chunk * 512 : 73728)) "$work/o" "$work/first"
	ok "the store is clean" cowsnap check "$work/s"
	says 'its origin is sealed' "check says that its origin is sealed"
	ends 2 "it is not sealed twice" cowsnap seal "$work/o" "$work/s"
	ok "a dump of it is restored, with data" sh -c "'$work/tools/cowsnap' dump '$work/s' >'$work/d' &&
		truncate -s $((32 << 20)) '$work/b' && dd if=/dev/zero of='$work/b' bs=1M count=32 conv=notrunc status=none &&
		'$work/tools/cowsnap' restore -i '$work/d' --data-from '$work/s' '$work/b'"
	ok "it is unsealed with the restored one" sh -c "cp '$work/o' '$work/o2' &&
		'$work/tools/cowsnap' unseal '$work/o2' '$work/b' && cmp '$work/o2' '$work/first'"
	ok "it is unsealed" cowsnap unseal "$work/o" "$work/s"
	ok "the origin is what it was" cmp "$work/o" "$work/first"
	ok "the store is clean again" cowsnap check "$work/s"
	ends 2 "it is not unsealed twice" cowsnap unseal "$work/o" "$work/s"
done

scenario "a seal"
mkstore --plain --block 4096 --chunk 16 --origin 16384 --exceptions 20 --bytes $((32 << 20)) "$work/plain"
sealed
cowsnap dump "$work/s" >"$work/d"
rm -f "$work/b" && truncate -s $((32 << 20)) "$work/b"
ends 2 "a dump without data is not restored elsewhere" cowsnap restore -i "$work/d" "$work/b"
says 'data-from' "restore says what helps"
smash "$work/s" 0 8192
ok "it is restored onto the store that it is of" cowsnap restore -i "$work/d" "$work/s"
ok "and that has the origin's first sectors" sh -c "'$work/tools/cowsnap' unseal '$work/o' '$work/s' &&
	cmp '$work/o' '$work/first'"
sealed
mkstore --plain --block 4096 --chunk 16 --origin 16384 --seed 7 --bytes $((32 << 20)) "$work/a"
ends 2 "another store does not unseal it" cowsnap unseal "$work/o" "$work/a"
cowsnap seal "$work/o" "$work/a" >"$work/out" 2>&1
says 'it has no sealed origin|is sealed' "nor does one seal it"
before=$(live)
sector 3 Z
ends 2 "a foreign write is noticed" cowsnap unseal "$work/o" "$work/s"
says 'keep-home.*keep-store' "a person has to say what counts"
ok "until then no snapshot is lost" test "$(live)" = "$before"
ends 2 "not both can count" cowsnap unseal --keep-home --keep-store "$work/o" "$work/s"
ends 1 "what is at home can count" cowsnap unseal --keep-home "$work/o" "$work/s"
says 'snapshots become invalid' "and it says that snapshots are lost"
ok "the snapshots are invalid" test "$(live)" = 0
ok "the write is there" sh -c "tail -c +1537 '$work/o' | head -c 512 | tr -d Z | cmp - /dev/null"
ok "all else is what it was" cmp -i 2048 "$work/o" "$work/first"
ok "the store is clean then" cowsnap check "$work/s"
sealed
sector 3 Z
ends 1 "what the store has can count" cowsnap unseal --keep-store "$work/o" "$work/s"
ok "then the write is gone" cmp "$work/o" "$work/first"
ok "and so are the snapshots" test "$(live)" = 0
sealed
cp "$work/o" "$work/o2"
cowsnap unseal "$work/o" "$work/s" && cowsnap seal "$work/o" "$work/s"
ends 2 "an old copy of the origin is one" cowsnap unseal "$work/o2" "$work/s"
says 'old copy' "and is called so"
sealed
ends 1 "without its store it can be opened" cowsnap unseal --without-store "$work/o"
ok "zeroes are there then" sh -c "head -c 69632 '$work/o' | tr -d '\\0' | cmp - /dev/null"
ok "what is behind is what it was" cmp -i 73728 "$work/o" "$work/first"
ends 2 "an origin without a seal has none to take away" cowsnap unseal --without-store "$work/first"
unsealed
cowsnap dump "$work/s" >"$work/d"
cowsnap seal "$work/o" "$work/s"
ends 2 "a dump from before is not restored over it" cowsnap restore -i "$work/d" "$work/s"
says 'sealed origin' "restore says why"
mkstore --block 4096 --chunk 16 --origin 100 --bytes $((4 << 20)) "$work/a"
ends 2 "an origin that is too short is not sealed" cowsnap seal "$work/first" "$work/a"

scenario "an interrupted seal"
mkstore --plain --block 4096 --chunk 16 --origin 16384 --exceptions 20 --bytes $((32 << 20)) "$work/plain"

# under_way STATE: as sealing (1) or unsealing (3) leaves it where it has begun, at its second seal;
# $work/o2 has the first.
under_way()
{
	sealed >/dev/null
	cp "$work/o" "$work/o2"
	cowsnap unseal "$work/o" "$work/s" >/dev/null && cowsnap seal "$work/o" "$work/s" >/dev/null
	cowsnap dump "$work/s" | sed "s/^seal_state 2/seal_state $1/" >"$work/d"
	cowsnap restore -i "$work/d" "$work/s"
}

state()
{
	cowsnap dump "$work/s" | sed -n 's/^seal_state //p'
}

for state in 1 3; do
	under_way "$state"
	cp "$work/o2" "$work/o"
	ends 2 "state $state: an origin with an older seal is refused" cowsnap unseal "$work/o" "$work/s"
	says 'old copy' "state $state: and called so"
	ok "state $state: the store has not forgotten its content" test "$(state)" = "$state"
	ends 1 "state $state: --keep-store overwrites an older seal" cowsnap unseal --keep-store "$work/o" "$work/s"
	ok "state $state: then the origin has its content" cmp "$work/o" "$work/first"

	under_way "$state"
	head -c $((16384 * 512)) /dev/urandom >"$work/o"
	cp "$work/o" "$work/o2"
	ends 2 "state $state: another device is refused" cowsnap unseal "$work/o" "$work/s"
	says 'or is another device' "state $state: and a person is asked"
	ok "state $state: nothing was written to it" cmp "$work/o" "$work/o2"
	ok "state $state: and nothing forgotten" test "$(state)" = "$state"

	under_way "$state"
	dd if="$work/first" of="$work/o" bs=512 count=40 conv=notrunc status=none
	ok "state $state: where the content is back already it is unsealed" cowsnap unseal "$work/o" "$work/s"
	ok "state $state: and has all of it" cmp "$work/o" "$work/first"
done

scenario "a seal that cannot be read"
cat >"$work/bad.c" <<'END'
/* Bytes of the file $BAD_FILE cannot be read before they are written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int written;
static int meets(int fd, size_t len, off_t at)
{
	const char *file = getenv("BAD_FILE");
	long bad = atol(getenv("BAD_BYTE"));
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = 0;
	return !strcmp(path, file) && at <= bad && bad < at + (off_t)len;
}
ssize_t pread(int fd, void *data, size_t len, off_t at)
{
	static ssize_t (*next)(int, void *, size_t, off_t);

	if (!next)
		next = dlsym(RTLD_NEXT, "pread");
	if (!written && meets(fd, len, at)) {
		errno = EIO;
		return -1;
	}
	return next(fd, data, len, at);
}
ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
	static ssize_t (*next)(int, const void *, size_t, off_t);

	if (!next)
		next = dlsym(RTLD_NEXT, "pwrite");
	written |= meets(fd, len, at);
	return next(fd, data, len, at);
}
END
cc -shared -fPIC -o "$work/bad.so" "$work/bad.c" -ldl

# bad BYTE ARGUMENT...: the command, while a byte of the origin cannot be read.
bad()
{
	BAD_FILE=$(realpath "$work/o") BAD_BYTE=$1 LD_PRELOAD=$work/bad.so "$work/tools/cowsnap" "${@:2}"
}

sealed
ends 2 "a seal that cannot be read is not passed over" bad 5000 unseal "$work/o" "$work/s"
says 'cannot be read; --keep-store' "and unseal says what helps"
ends 2 "what is at home cannot count then" bad 5000 unseal --keep-home "$work/o" "$work/s"
ends 1 "what the store has can" bad 5000 unseal --keep-store "$work/o" "$work/s"
ok "and all of it is there" cmp "$work/o" "$work/first"
sealed
ends 1 "without its store it can be opened as well" bad 5000 unseal --without-store "$work/o"
ok "with zeroes" sh -c "head -c 69632 '$work/o' | tr -d '\\0' | cmp - /dev/null"

scenario "a seal and a rollback"
sealed
id=$(cowsnap check -v --no-data "$work/s" | sed -n 's/.* snapshot \([0-9]*\): live.*/\1/p' | head -1)
cowsnap dump "$work/s" | sed "s/^merge_id .*/merge_id $id/; s/^merge_chunk .*/merge_chunk 5/" >"$work/d"
grep -q '^merge_id' "$work/d" || sed -i "/^seal_generation/i merge_id $id\nmerge_chunk 5" "$work/d"
cowsnap restore -i "$work/d" "$work/s"
sector 3 Z
ends 2 "--keep-home does not abandon a rollback" cowsnap unseal --keep-home "$work/o" "$work/s"
says 'rollback is under way' "and says why"
ends 1 "--keep-store lets it go on" cowsnap unseal --keep-store "$work/o" "$work/s"
ok "it is still under way" grep -q "^merge_id $id$" <(cowsnap dump "$work/s")

scenario "a seal"
sealed
cowsnap dump "$work/s" >"$work/d"
cowsnap unseal "$work/o" "$work/s"
cp "$work/s" "$work/s2"
ends 2 "a dump of a sealed store is not restored once that was unsealed" cowsnap restore -i "$work/d" "$work/s"
says 'unsealed since' "and restore says why"
rm -f "$work/b" && truncate -s $((32 << 20)) "$work/b"
ends 2 "nor with data from there" cowsnap restore -i "$work/d" --data-from "$work/s" "$work/b"
ok "nothing was written then" cmp "$work/s" "$work/s2"
unsealed
if mkswap -U 11111111-2222-3333-4444-555555555555 -L mine "$work/o" >/dev/null 2>&1; then
	for name in UUID=11111111-2222-3333-4444-555555555555 LABEL=mine; do
		echo "x $name /dev/sdb1" >"$work/tab"
		ends 2 "a device that /etc/cowsnaptab calls $name is not sealed" \
			cowsnap seal --file="$work/tab" "$work/o" "$work/s"
		says 'PARTUUID' "$name: seal says what helps"
	done
	echo "x PARTUUID=11111111-2222-3333-4444-555555555555 /dev/sdb1" >"$work/tab"
	ok "one that has another name there is" cowsnap seal --file="$work/tab" "$work/o" "$work/s"
else
	skip "a device that /etc/cowsnaptab calls UUID= is not sealed" "no mkswap"
fi
# ---- redirected data ------------------------------------------------------------------------

# What no tool writes, with right checksums, in stores with blocks of 4096 and chunks of 8192 bytes.
cat >"$work/forge.py" <<'END'
"""forge.py STORE super OFFSET BYTES VALUE | slot PLACE CHUNK EPOCH KIND | show PLACE"""
import struct, sys

TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    TABLE.append(i)

def crc32c(data, crc=0xffffffff):
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc

def forge_super(store, seed, offset, length, value):
    for at in 0, 4096:
        block = bytearray(store[at:at + 512])
        block[offset:offset + length] = value.to_bytes(length, "little")
        block[16:20] = bytes(4)
        block[16:20] = crc32c(block, seed(at)).to_bytes(4, "little")
        store[at:at + 512] = block

def block_of(place):
    """The table of segment 0: where its block begins, its area in there, the first slot's index."""
    first = (4096 - 512 - 24) // 14
    return (0, 512, place - 1) if place - 1 < first else (4096, 512, place - 1 - first)

def forge_slot(store, seed, place, chunk, epoch, kind):
    at, area, index = block_of(place)
    offset = at + area + 24 + 14 * index
    struct.pack_into("<IIIBB", store, offset, 0, chunk, epoch, kind << 4, 0)
    struct.pack_into("<I", store, at + area, crc32c(store[at + area + 4:at + 4096], seed(at)))

path, what, *numbers = sys.argv[1:]
with open(path, "r+b") as file:
    store = bytearray(file.read())
    seed = lambda at: crc32c(store[48:64] + (at // 512).to_bytes(8, "little"))
    (forge_super if what == "super" else forge_slot)(store, seed, *map(int, numbers))
    file.seek(0)
    file.write(store)
END

forge()
{
	python3 "$work/forge.py" "$@"
}

# seen ID FILE: the image of a snapshot of $work/s.
seen()
{
	rm -f "$2"
	cowsnap send --origin "$work/o" "$work/s" "$1" 2>/dev/null | cowsnap receive "$2" >/dev/null
}

# chunk FILE NUMBER: its bytes; in a store NUMBER is a place.
chunk()
{
	dd if="$1" bs=8192 skip="$2" count=1 status=none
}

same_chunk()
{
	cmp <(chunk "$1" "$2") <(chunk "$3" "$4")
}

# The slots are put into a dump, which is restored. Places are those at the end of the store, with
# holes, and in another order than chunks.
#   chunk 900: snapshot 0 sees home, 1 what came after it, 2 what came after that
#   chunk 901: all of them see home, 902: 2 alone sees what the origin has had since epoch 2
#   the last chunk, of which the origin has half
current_slots()
{
	cat <<-END
	redirect $1
	exception kind current epoch 1 chunk 900 count 1 place 200
	exception kind current epoch 2 chunk 900 count 1 place 201
	exception kind current epoch 3 chunk 901 count 1 place 207
	exception kind current epoch 2 chunk 902 count 1 place 203
	exception kind current epoch 3 chunk 1023 count 1 place 210
	END
}

# redirected PERCENT ITEMS [SED]: $work/s and $work/o, sealed, with data of the origin; as it is, in
# $work/now. Where a slot says zeroes its place has anything.
redirected()
{
	local place from

	sealed >/dev/null
	for place in {200..210}; do
		head -c 8192 /dev/urandom | dd of="$work/s" bs=8192 seek="$place" conv=notrunc status=none
	done
	current_slots "$1" | sed "${3-}" >"$work/slots"
	{ cowsnap dump "$work/s" | grep -v '^end' && cat "$work/slots" && echo "end $2"; } >"$work/d"
	cowsnap restore -i "$work/d" "$work/s" || return
	cp "$work/first" "$work/now"
	for place in "201 900" "207 901" "203 902" "210 1023"; do
		from=$work/s
		! grep -q "current-zero .* place ${place% *}\$" "$work/slots" || from=/dev/zero
		chunk "$from" "${place% *}" |
			dd of="$work/now" bs=8192 seek="${place#* }" conv=notrunc status=none
	done
	truncate -s $((16376 * 512)) "$work/now"
}

scenario "redirected data"
mkstore --plain --block 4096 --chunk 16 --origin 16376 --exceptions 20 --bytes $((2 << 20)) "$work/plain"
head -c $((16376 * 512)) /dev/urandom >"$work/first"
items=$(($(cowsnap dump "$work/plain" | sed -n 's/^end //p') + 5))
ok "a dump with data of the origin is restored" redirected 20 "$items"
ok "the store is clean" cowsnap check "$work/s"
says '5 chunks of its origin are in here alone' "check counts them"
says ', 20 chunks for them' "and those of snapshots as ever"
cp "$work/s" "$work/s2"
cowsnap dump "$work/s" >"$work/d"
ok "its dump names them" test "$(grep -c 'kind current' "$work/d")" = 5
ok "and the option" grep -qx 'redirect 20' "$work/d"
ok "it is restored from that" cowsnap restore -i "$work/d" "$work/s"
ok "and has the same dump" is_restored "$work/s2" "$work/s"
cp "$work/s2" "$work/s"
cowsnap dump --json "$work/s" >"$work/json"
ok "so it is as JSON" sh -c "'$work/tools/cowsnap' restore -i '$work/json' '$work/s'"
ok "with the same" is_restored "$work/s2" "$work/s"
cp "$work/s2" "$work/s"
ends 2 "the origin is not unsealed" cowsnap unseal "$work/o" "$work/s"
says 'cowsnap settle' "unseal says what helps"
ends 2 "nor if told what counts" cowsnap unseal --keep-store "$work/o" "$work/s"
ok "repair has nothing to do" cowsnap repair "$work/s"

for id in 0 1 2; do
	ok "snapshot $id is sent" seen "$id" "$work/before$id"
done
ok "what is sealed is sent as it was" same_chunk "$work/before2" 8 "$work/first" 8
ok "the oldest sees home" same_chunk "$work/before0" 900 "$work/first" 900
ok "a later one what was written after it" same_chunk "$work/before1" 900 "$work/s" 200
ok "and the last what was written last" same_chunk "$work/before2" 900 "$work/s" 201
ok "what was written after all of them none sees" same_chunk "$work/before2" 901 "$work/first" 901
cowsnap diff --extents "$work/s" 0 1 >"$work/out"
says "^$((900 * 8192)) 8192$" "diff says what was redirected between two"
ok "and not what was later" sh -c "! grep -q '^$((901 * 8192)) ' '$work/out'"
cowsnap diff --extents "$work/s" 2 now >"$work/out"
says "^$((901 * 8192)) 8192$" "and what was since the last"
cowsnap diff --extents "$work/s" 1 2 >"$work/out"
says "^$((900 * 8192)) " "what follows is listed too"

cp "$work/s" "$work/s2"
cp "$work/o" "$work/o2"
ok "settle -n" cowsnap settle -n "$work/o" "$work/s"
says '4 chunks \(32K\) come home.*copies of 4 of' "says what there is to do"
ok "and writes nothing" sh -c "cmp '$work/s' '$work/s2' && cmp '$work/o' '$work/o2'"
ok "it is settled" cowsnap settle "$work/o" "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
ok "nothing is in it alone" sh -c "! grep -q 'in here alone' '$work/out'"
for id in 0 1 2; do
	ok "snapshot $id is sent once more" seen "$id" "$work/after$id"
	ok "and is what it was" cmp "$work/before$id" "$work/after$id"
done
ok "the option stays" sh -c "'$work/tools/cowsnap' dump '$work/s' | grep -qx 'redirect 20'"
ok "a second time there is nothing to do" cowsnap settle "$work/o" "$work/s"
says '0 chunks' "and it says so"
ends 2 "a dump from before is not restored over it" cowsnap restore -i "$work/d" "$work/s"
says 'redirect' "restore says why"
ok "it is unsealed" cowsnap unseal "$work/o" "$work/s"
ok "the origin is what it was" cmp "$work/o" "$work/now"
ok "the option went with the seal" sh -c "! '$work/tools/cowsnap' dump '$work/s' | grep -q redirect"
redirected 0 "$items"
cowsnap settle "$work/o" "$work/s" >/dev/null
ok "with the option off the feature goes" test "$(od -An -tu1 -j 40 -N 1 "$work/s" | tr -d ' ')" = 16

redirected 20 "$items"
truncate -s $((16400 * 512)) "$work/o"
cowsnap settle "$work/o" "$work/s" >/dev/null
ok "of an origin that has grown the whole chunk comes home" same_chunk "$work/o" 1023 "$work/s" 210

scenario "redirected zeroes"
zeroes='/place 20[037]/s/current/current-zero/; /place 210/s/current/current-zero/'
ok "a dump with them is restored" redirected 0 "$items" "$zeroes"
ok "the store is clean" cowsnap check "$work/s"
says '5 chunks of its origin are in here alone' "check counts them as well"
ok "it has the features" test "$(od -An -tu1 -j 40 -N 1 "$work/s" | tr -d ' ')" = 112
cp "$work/s" "$work/s2"
cowsnap dump "$work/s" >"$work/d"
ok "its dump names them" test "$(grep -c 'kind current-zero' "$work/d")" = 4
ok "it is restored from that" cowsnap restore -i "$work/d" "$work/s"
ok "and has the same dump" is_restored "$work/s2" "$work/s"
cp "$work/s2" "$work/s"
ok "repair has nothing to do" cowsnap repair "$work/s"
for id in 0 1 2; do
	ok "snapshot $id is sent" seen "$id" "$work/before$id"
done
head -c $((1024 * 8192)) /dev/zero >"$work/zero"
ok "the oldest sees home" same_chunk "$work/before0" 900 "$work/first" 900
ok "a later one zeroes" same_chunk "$work/before1" 900 "$work/zero" 0
ok "and the last what was written last" same_chunk "$work/before2" 900 "$work/s" 201
ok "what was zeroed after all of them none sees" same_chunk "$work/before2" 901 "$work/first" 901
cowsnap diff --extents "$work/s" 2 now >"$work/out"
says "^$((901 * 8192)) 8192$" "diff says what was zeroed since"
ok "it is settled" cowsnap settle "$work/o" "$work/s"
ok "the store is clean then" cowsnap check "$work/s"
for id in 0 1 2; do
	ok "snapshot $id is sent once more" seen "$id" "$work/after$id"
	ok "and is what it was" cmp "$work/before$id" "$work/after$id"
done
ok "the features are gone" test "$(od -An -tu1 -j 40 -N 1 "$work/s" | tr -d ' ')" = 16
ok "it is unsealed" cowsnap unseal "$work/o" "$work/s"
ok "the origin is what it was" cmp "$work/o" "$work/now"
redirected 0 "$items" "$zeroes"
forge "$work/s" super 40 8 48
ends 1 "without the feature such slots are damage" cowsnap check "$work/s"
redirected 0 "$items"
forge "$work/s" super 40 8 112
forge "$work/s" slot 207 901 $(((1 << 31) + 3)) 7
cowsnap dump "$work/s" >"$work/out"
says 'kind current-zero epoch 3 chunk 901 ' "the highest bit of its epoch says zeroes"
forge "$work/s" slot 207 901 $(((1 << 30) + 3)) 7
ends 1 "the others are none of an epoch" cowsnap check "$work/s"

# All places but a few have copies that a snapshot needs.
scenario "a store with little room"
for room in 1 0; do
	redirected 0 "$items"
	cowsnap dump "$work/s" >"$work/d"
	used=$(sed -n 's/^seal_start //p' "$work/d")
	for place in {1..255}; do
		grep -qE " place $place( |\$)" "$work/d" || echo "$place"
	done | grep -vxE "$(seq -s '|' "$used" $((used + 8)))" | tail -n +$((room + 1)) >"$work/free"
	{
		grep -v '^end' "$work/d"
		while read -r place; do
			chunk=$((300 + place))
			! grep -q " chunk $chunk " "$work/d" || chunk=$((chunk + 256))
			echo "exception kind copied epoch 3 chunk $chunk count 1 place $place crc 00000000"
		done <"$work/free"
		echo "end $(($(sed -n 's/^end //p' "$work/d") + $(wc -l <"$work/free")))"
	} >"$work/full"
	ok "it is made" cowsnap restore -i "$work/full" "$work/s"
	if ((room)); then
		ok "it is settled with room for one chunk" cowsnap settle "$work/o" "$work/s"
		ok "the store is clean then" cowsnap check --no-data "$work/s"
		ok "it is unsealed" cowsnap unseal "$work/o" "$work/s"
		ok "the origin is what it was" cmp "$work/o" "$work/now"
	else
		ends 2 "without room it is not settled" cowsnap settle "$work/o" "$work/s"
		says 'no room.*nothing is lost' "and says what is missing"
		ok "nothing is lost" test "$(cowsnap dump "$work/s" | grep -c 'kind current')" = 5
	fi
done

scenario "settle refuses"
redirected 20 "$items"
cp "$work/s" "$work/s2"
cp "$work/o" "$work/o2"
ends 2 "an origin without a seal" cowsnap settle "$work/first" "$work/s"
says 'seals are missing' "and says so"
head -c $((16376 * 512)) /dev/zero >"$work/zero"
mkstore --plain --block 4096 --chunk 16 --origin 16376 --seed 9 --bytes $((2 << 20)) "$work/other"
cowsnap seal "$work/zero" "$work/other" >/dev/null
ends 2 "the origin of another store" cowsnap settle "$work/zero" "$work/s"
says 'by another store' "and says so"
truncate -s $((16368 * 512)) "$work/o"
ends 2 "an origin that is shorter" cowsnap settle "$work/o" "$work/s"
cp "$work/o2" "$work/o"
ends 2 "a store without a sealed origin" cowsnap settle "$work/first" "$work/plain"
says 'no sealed origin' "and says so"
mkstore --redirected --logged --plain --block 4096 --chunk 16 --origin 16376 --exceptions 5 \
	--bytes $((32 << 20)) "$work/l"
ends 2 "a store that was not closed" cowsnap settle "$work/o" "$work/l"
says 'was not closed' "and says so"
sector 3 Z
ends 2 "an origin that was written without its store" cowsnap settle "$work/o" "$work/s"
says 'keep-store' "and says what helps"
ok "nothing was written" cmp "$work/s" "$work/s2"
ends 1 "unless told what counts" cowsnap settle --keep-store "$work/o" "$work/s"
says '3 snapshots become invalid' "then it says what that costs"
ok "the snapshots are invalid" test "$(live)" = 0
ok "it can be unsealed" cowsnap unseal "$work/o" "$work/s"
ok "with what the store had" cmp "$work/o" "$work/now"

scenario "redirected data, damaged"
redirected 20 "$items"
cp "$work/s" "$work/s2"
smash "$work/s" $((4096 + 600))
ends 1 "check finds a table that is lost" cowsnap check "$work/s"
says 'may have lost some.*--lose-redirected' "and says that data of the origin may be"
cp "$work/s" "$work/s3"
ends 2 "it is not repaired" cowsnap repair "$work/s"
says 'lose-redirected' "without being told to"
ok "and not written" cmp "$work/s" "$work/s3"
ends 2 "nor settled" cowsnap settle "$work/o" "$work/s"
ends 2 "nor unsealed" cowsnap unseal "$work/o" "$work/s"
ends 1 "a dump of it is made" sh -c "'$work/tools/cowsnap' dump '$work/s' >'$work/lostdump'"
ends 2 "and not restored" cowsnap restore -i "$work/lostdump" "$work/s2"
says 'may lack data of the origin' "restore says why"
ends 1 "told to, repair mends it" cowsnap repair --lose-redirected "$work/s"
says 'data of the origin.*may be lost' "and says what it may cost"
ok "then it is clean" cowsnap check "$work/s"
ends 2 "an old dump is not restored over it" cowsnap restore -i "$work/d" "$work/s"
says 'does not know which data' "restore says why"
ok "unless forced" cowsnap restore -f -i "$work/d" "$work/s"
cp "$work/s2" "$work/s"
forge "$work/s" slot 199 900 2 7
ends 1 "check finds two of one epoch" cowsnap check "$work/s"
says 'current chunk 900 of the origin, and of snapshots 2: two slots' "and names them"
ends 2 "repair does not choose" cowsnap repair "$work/s"
ends 1 "unless told to" cowsnap repair --lose-redirected "$work/s"
ok "then it is clean" cowsnap check "$work/s"
cp "$work/s2" "$work/s"
forge "$work/s" slot 199 3 2 7
ends 1 "check finds one of what is sealed" cowsnap check "$work/s"
says 'kind 7 cannot be, that chunk of the origin is sealed' "and says so"
cp "$work/s2" "$work/s"
forge "$work/s" super 40 8 16
ends 1 "check finds them without the feature" cowsnap check "$work/s"
says 'its feature is not' "and says what is on"
says 'kind 7 cannot be, the store has no sealed origin that is redirected' "and that they cannot be"
cp "$work/s2" "$work/s"
forge "$work/s" super 252 1 3
ends 1 "check finds them while the seal is opened" cowsnap check "$work/s"
cp "$work/s2" "$work/s"
forge "$work/s" super 177 1 91
ends 1 "check finds an option that cannot be" cowsnap check "$work/s"
says 'redirect 91 is above 90' "and says so"
ends 1 "repair turns it off" cowsnap repair "$work/s"
ok "and leaves the data of the origin" test "$(cowsnap dump "$work/s" | grep -c 'kind current')" = 5
grep -v '^redirect\|^end' "$work/d" | sed 's/chunk 901/chunk 3/' >"$work/baddump"
ends 2 "a dump with one of what is sealed is refused" cowsnap restore -f -i "$work/baddump" "$work/s"
says 'chunk 3 of the origin cannot be in the store' "restore says why"

scenario "redirected data in a log"
found=0
for seed in {1..60}; do
	mkstore --redirected --logged --unfinished --block 4096 --chunk 16 --origin 16376 \
		--snapshots 4 --exceptions 5 --bytes $((32 << 20)) --seed "$seed" "$work/l"
	cp "$work/l" "$work/l2"
	cowsnap check "$work/l" >"$work/out" 2>&1
	if grep -q 'that were redirected by it do not count' "$work/out"; then
		found=1
		break
	fi
done
ok "there is one that had not ended" test "$found" = 1
ok "which is no damage" cowsnap check "$work/l"
ok "repair has nothing to do" cowsnap repair "$work/l"
ok "and does nothing" cmp "$work/l" "$work/l2"
flip "$work/l" 100
ends 1 "repair mends something else" cowsnap repair "$work/l"
ok "then it is clean" cowsnap check "$work/l"
ok "what had not ended has not come to life" sh -c "! grep -q 'do not count' '$work/out' &&
	test '$(cowsnap dump "$work/l" | grep -c "kind current")' = \
	'$(cowsnap dump "$work/l2" | grep -c "kind current")'"

# ---- the map ------------------------------------------------------------------------------

scenario "the map"
mkstore --block 512 --chunk 8 --seed 3 --bytes 40000000 --snapshots 6 --exceptions 3000 \
	--origin 200000 "$work/a" >/dev/null
ok "it is drawn" cowsnap map -o "$work/a.svg" "$work/a"
ok "it is XML, with a row for each live snapshot" python3 -c '
import sys, xml.dom.minidom
rows = len(xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("g"))
sys.exit(rows != int(sys.argv[2]))' "$work/a.svg" "$(cowsnap check -v "$work/a" | grep -c ': live')"
ok "it has as many chunks as check counts" test \
	"$(awk '/<title>/ { n += substr($1, 11) + $7 } END { print n }' "$work/a.svg")" = \
	"$(cowsnap check "$work/a" | sed -nE 's/.* ([0-9]+) chunks for them.*/\1/p')"
ends 2 "a full disk is noticed" cowsnap map -o /dev/full "$work/a"

# ---- a large one, and many small damages ---------------------------------------------------

scenario "200000 exceptions"
ok "a store is made" mkstore --plain --block 512 --chunk 1 --origin 400000 \
	--exceptions 200000 --bytes $((120 << 20)) "$work/large"
ok "the store is checked within 20 s" timeout 20 "$work/tools/cowsnap" check "$work/large"
says 'clean, 3 snapshots, 200000 chunks' "check counts all of them"
rm -f "$work/large"

scenario "60 damaged stores"
sound=1
: >"$work/out"
for seed in {1..60}; do
	whole
	"$work/tests/fuzz/cowmutate" --seed "$seed" --count 2 "$work/s" >"$work/done"
	for command in check repair "repair --invalidate" dump; do
		# shellcheck disable=SC2086  # several words
		cowsnap $command "$work/s" >"$work/said" 2>&1
		rc=$?
		((rc > 2)) || [[ ! -s $work/said ]] || continue
		sound=0
		{ echo "seed $seed, $command: status $rc" && cat "$work/done" "$work/said"; } >>"$work/out"
	done
done
if ((sound)); then
	point ok "each command has a status, and a word"
else
	point 'not ok' "each command has a status, and a word"
fi
printf '1..%d\n' "$count"
