# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests of guides share: the blocks of a Markdown file are run as they stand. A block
# that follows "<!-- run: NAME -->" is a part of the story, one that follows "<!-- file: PATH -->"
# is a file. The disks that a guide names are links to devices of the test.
#
# A test says with guide FILE "HEADING" which part of which document it runs, and ends with
# all_was_run: so no block of that part is left out.

# shellcheck source=../functional/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../functional/common.sh"

TOP=$(cd "$TESTS_DIR/.." && pwd)
GUIDE=$TEST_TMP/guide
WAS_RUN=$TEST_TMP/was-run
: >"$WAS_RUN"

# guide FILE HEADING: from this heading to the next of its level.
guide()
{
	awk -v heading="$2" 'BEGIN { level = match(heading, /[^#]/) - 1 }
		/^```/ { code = !code }
		!code && /^#/ && match($0, /[^#]/) - 1 <= level { inside = $0 == heading }
		inside' "$TOP/docs/$1" >"$GUIDE"
	[[ -s $GUIDE ]] || bail_out "docs/$1 has no \"$2\""
}

# block MARKER: the lines of the block after <!-- MARKER -->.
block()
{
	echo "$1" >>"$WAS_RUN"
	awk -v marker="<!-- $1 -->" '$0 == marker { marked = 1; next }
		/^```/ { open = !open; inside = open && marked; if (open) marked = 0; next }
		inside' "$GUIDE"
}

# run_block NAME: its lines, and stop at the first that fails.
run_block()
{
	block "run: $1" >"$TEST_TMP/block"
	diag <"$TEST_TMP/block"
	[[ -s $TEST_TMP/block ]] || return
	bash -euo pipefail "$TEST_TMP/block" </dev/null
}

# install_file PATH: a file of the guide, in its place, or where it is given.
install_file()
{
	mkdir -p "$(dirname "${2:-$1}")"
	block "file: $1" >"${2:-$1}"
	[[ -s ${2:-$1} ]]
}

# Blocks, by their markers; one without a marker is printed as a line of its own.
blocks()
{
	awk '/^<!-- / { marker = substr($0, 6, length($0) - 9); next }
		/^```/ { open = !open; if (open) print marker ? marker : "a block without a name"; marker = "" }' \
		"$GUIDE"
}

all_was_run()
{
	is "$(sort -u "$WAS_RUN")" "$(blocks | sort)" "every block of the guide was run"
}

# disk NAME SIZE: what the guide calls /dev/NAME.
disk()
{
	ln -sfn "$(mkloop "$2")" "/dev/$1"
	at_exit rm -f "/dev/$1"
}

# _origin_gone NAME: with all that it has.
_origin_gone()
{
	! dmsetup info "$1" >/dev/null 2>&1 || cowsnap remove -f "$1"
}

# The command is found as it would be where it is installed.
for dir in "$(dirname "${COWSNAP_KO:-/none}")/tools" "$TOP/tools"; do
	! "$dir/cowsnap" --version >/dev/null 2>&1 || break
	dir=
done
[[ $dir ]] || bail_out "no cowsnap command that runs here"
PATH=$dir:$PATH
mkdir -p /var/lib/cowsnap 2>/dev/null || mount -t tmpfs tmpfs /var/lib
# What systemd makes on a machine that has it.
mkdir -p /run/lock
mkdir -p /srv/backup
mount -t tmpfs tmpfs /srv/backup || bail_out "no room for backups"
at_exit umount /srv/backup
