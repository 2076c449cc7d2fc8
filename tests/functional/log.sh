# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2154
#
# What the tests of the commit log share: what a store's log has, and stores that are cut off.

need perl

log_tool()
{
	perl "$TESTS_DIR/functional/log.pl" "$@"
}

# zones LOOP, records LOOP: of the store on that device, as its file has it.
zones()
{
	log_tool zones "$(loop_file "$1")"
}

records()
{
	log_tool records "$(loop_file "$1")"
}

# has_zones LOOP COUNT: does the superblock name so many?
has_zones()
{
	[[ $(zones "$1" | wc -l) == "$2" ]]
}

# scattered FROM TO: arguments for put, a chunk of 4 KiB for each number, none beside another one of
# the same 64 KiB. The numbers are below 2048, and so are the chunks.
scattered()
{
	local n

	for ((n = $1; n < $2; n++)); do
		echo $(((n * 37 % 2048) * 4096)) 4096
	done
}

# put_scattered DEV IMAGE FROM TO
put_scattered()
{
	# shellcheck disable=SC2046  # one word each
	put "$1" "$2" $(scattered "$3" "$4")
}

# cut_off NAME: what the devices have now, as a machine that stops leaves it, in $TEST_TMP/NAME.base
# and .store. The store is the device "cow".
cut_off()
{
	dm suspend --noflush cow
	cp "$(loop_file "$store")" "$TEST_TMP/$1.store"
	cp "$(loop_file "$base")" "$TEST_TMP/$1.base"
	dm resume cow
}

# after NAME: these are on $cut_base and $cut_store.
after()
{
	dd if="$TEST_TMP/$1.base" of="$cut_base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/$1.store" of="$cut_store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$cut_base"
	blockdev --flushbufs "$cut_store"
}

# opened NAME: the store that was cut off is opened, and its snapshot 1 is y.
opened()
{
	after "$1"
	origin_up x "$cut_base" store "$cut_store" &&
		snap_up y "$cut_base" "$cut_store" P "$chunk" id 1
}

closed()
{
	dmremove y
	dmremove x
}

# at_least KEY COUNT: of snapshot s.
at_least()
{
	(($(key_of s "$1") >= $2))
}

# tool WORDS...: the command, wherever it runs.
tool()
{
	local tool

	for tool in "$TOOLS/cowsnap" "$(dirname "${COWSNAP_KO:-/none}")/tools/cowsnap" \
		"$TESTS_DIR/../tools/cowsnap"; do
		! "$tool" --version >/dev/null 2>&1 || break
	done
	"$tool" "$@"
}

# checked FILE: what the tool says of a store that is not in use.
checked()
{
	tool check "$1"
}
