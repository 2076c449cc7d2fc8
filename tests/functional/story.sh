# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# A story that a document tells: the commands of the block after "<!-- story", each a line, as a
# new user types them.
#
# A test that sources this has functions "before" and "after", which are given a line and do what the
# user does besides, and look; and $SUBSTITUTE, a sed script that puts the test's devices in.

STORY_COMMANDS=10

story_lines()
{
	awk '/^<!-- story/ { marked = 1 }
		/^```/ { open = !open; inside = open && marked
			if (open) marked = 0
			next }
		inside && NF' "$1" | sed "$SUBSTITUTE; s/  *#.*//"
}

type_in()
{
	(
		set -o pipefail
		eval "$1"
	)
}

# tell DOCUMENT: a point for each line, one for their number, and those of before and after.
tell()
{
	local name line
	local -a lines

	name=$(basename "$1")
	mapfile -t lines < <(story_lines "$1")
	diag "$name: ${#lines[@]} commands"
	ok "$name: it takes no more than $STORY_COMMANDS commands" \
		test "${#lines[@]}" -ge 1 -a "${#lines[@]}" -le "$STORY_COMMANDS"
	for line in "${lines[@]}"; do
		before "$line"
		ok "$name: $line" type_in "$line"
		after "$line"
	done
}
