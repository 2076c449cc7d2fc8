# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What tests that damage stores share: chunks that say what they are, comparing them one by
# one, and bytes and slots of a store; store.pl, which does it, says more.

need perl

# shellcheck disable=SC2034  # for those that find the place of the records
RECORDS=5	# the kind of a slot that says where they are
# shellcheck disable=SC2034  # and other kinds
FREE=0 COPIED=1 CURRENT=7

store_tool()
{
	perl "$TESTS_DIR/functional/store.pl" "$@"
}

# mark_chunks FILE VERSION FROM TO: chunk n says that it is n, and of which version.
mark_chunks()
{
	store_tool mark "$@"
}

# find_chunk FILE CHUNK VERSION: the byte at which it is kept.
find_chunk()
{
	store_tool find "$@"
}

# differences DEV IMAGE: "eio FROM-TO" and "wrong FROM-TO" for the chunks not as in the
# image, of which there are $CHUNKS.
differences()
{
	# Without that newer kernels read several chunks for one.
	blockdev --setra 0 "$1"
	store_tool differences "$1" "$2" "$CHUNKS"
}

# flip_bits FILE BIT...: counted from the start of the file.
flip_bits()
{
	store_tool flip "$@"
}

# spoil_bytes FILE OFFSET BYTES: they are other bytes now.
spoil_bytes()
{
	store_tool spoil "$@"
}
