#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# README.md and docs/reference.md are true: the README's command lines run as they stand,
# the reference lists exactly the features, messages, status keys and parameters that the
# module has, and the version is one everywhere.

. "$(dirname "$0")/../lvm/common.sh"

need mkfs.ext4
TOP=$(cd "$TESTS_DIR/.." && pwd)
REFERENCE=$TOP/docs/reference.md
plan 24

# block N: the Nth block of commands that follows a marker, with our devices in it.
block()
{
	awk -v want="$1" '/^<!-- run/ { marked = 1 }
		/^```/ { open = !open; inside = open && marked; n += inside
			if (open) marked = 0
			next }
		inside && n == want' "$TOP/README.md" |
		sed "s,/dev/ORIGIN,$base,g; s,/dev/STORE,$store,g; s, /mnt\>, $TEST_TMP/mnt,
			s,/backup\>,$TEST_TMP,; s, -L 2G , -L 8M ,"
}

# run_block N: each line, and stop at the first that fails.
run_block()
{
	block "$1" >"$TEST_TMP/block"
	diag <"$TEST_TMP/block"
	[[ -s $TEST_TMP/block ]] || return
	(
		set -e
		# shellcheck disable=SC2034  # the block uses it
		LEN=$(sectors "$base")
		# shellcheck source=/dev/null
		. "$TEST_TMP/block"
	)
}

# documented HEADING...: the words that the tables below these headings list, sorted.
documented()
{
	local heading

	# shellcheck disable=SC2016  # backticks of Markdown
	for heading; do
		awk -F'|' -v heading="$heading" '/^#/ { inside = $0 == heading }
			inside && /^\| `/ { print $2 }' "$REFERENCE"
	done | grep -o '`[^`]*`' | tr -d '`' | cut -d' ' -f1 | sort -u
}

# literals: every string constant of the module that could be a word of its interface, and the
# names of options, which their table makes of fields: OPTION(name).
literals()
{
	find "$TOP" \( -path "$TOP/tests" -o -path "$TOP/tools" \) -prune -o \( -name '*.[ch]' ! -name '*.mod.c' \) -print0 |
		xargs -0 grep -hoE '"[a-z][a-z_]+"|OPTION\([a-z_]+\)' | sed 's/OPTION//' |
		tr -d '"()' | sort -u
}

# refused REGEX: the words in quotes of log lines that match, sorted.
refused()
{
	kernel_log | sed -nE "s/.*$1 \"([a-z_]+)\".*/\1/p" | sort -u
}

# features TARGET: the words among literals that its tables do not call unknown.
features()
{
	local target=$1 word args="$base $store P 8"

	[[ $target != cowsnap-origin ]] || args=$base
	for word in $(literals); do
		dmsetup load probe --table "0 $(sectors "$base") $target $args 1 $word" 2>/dev/null &&
			dmsetup clear probe
	done
	comm -23 <(literals) <(refused ": $target: Unknown feature")
}

# messages DEVICE: the words among literals that are not called unknown.
messages()
{
	local word

	for word in $(literals); do
		dmsetup message "$1" 0 "$word" >/dev/null 2>&1
	done
	comm -23 <(literals) <(refused "unknown message")
}

# keys NAME FIELD: every other word of a status line, from that one on, sorted.
keys()
{
	status "$1" | cut -d' ' -f"$2"- | tr ' ' '\n' | sed -n 'p;n' | sort -u
}

merged()
{
	status origin | awk '{ split($1, used, "/"); exit !(used[1] == $2) }'
}

# ---- the commands of the README ----

base=$(mkloop 16M)
store=$(mkloop 16M)
mkdir "$TEST_TMP/mnt"
mkfs.ext4 -q "$base"
at_exit _dmremove origin
at_exit _dmremove snap
at_exit _umount "$TEST_TMP/mnt"
at_exit _dmremove data
at_exit _dmremove data@1
tools=$(dirname "${COWSNAP_KO:-/none}")/tools
[[ -x $tools/cowsnap ]] || tools=$TOP/tools
PATH=$tools:$PATH ok "README: the quick start with the cowsnap command runs" run_block 2
ok "README: the quick start with dmsetup runs" run_block 3
not_ok "README: the quick start removes its snapshot" dmsetup info snap
ok "README: a transient snapshot of a suspended origin" run_block 4
dmremove snap
dmremove origin
at_exit _dmremove monday
at_exit _dmremove tuesday
ok "README: persistent snapshots in one store" run_block 5
ok "README: rolling back" run_block 6
ok "README: the rollback is complete when two numbers are equal" wait_for 60 merged
dmremove origin
dd if=/dev/zero of="$store" bs=4096 count=1 status=none

# ---- the reference, and what the module has ----

dmcreate probe '' --notable
for target in cowsnap-origin cowsnap cowsnap-merge; do
	found=$(features "$target")
	isnt "$found" "" "$target has features"
	is "$(documented "### Features of \`$target\`")" "$found" \
		"reference: the features of $target are those it accepts"
done
dmremove probe

origin_up o "$base"
snap_up s "$base" "$store" P 8 id 3 create
is "$(documented "### Keys of a snapshot" "### Keys of the copy engine")" \
	"$(keys s 3)" "reference: the keys of a snapshot are those it prints"
is "$(documented "### Keys of an origin" "### Keys of the copy engine")" "$(keys o 1)" \
	"reference: the keys of an origin are those it prints"
is "$(documented "## Messages")" "$(messages o)" \
	"reference: the messages are those the module knows"
is "$(documented "## Module parameters")" "$(find "$PARAMETERS" -type f -printf '%f\n' | sort)" \
	"reference: the module parameters are those it has"
dmremove s
ok "a table with every feature for a persistent store is loaded" \
	snap_up s "$base" "$store" P 8 id 4 create throttle 50 on_full wait wait_timeout 9 \
	low_water 80 copy_ahead 64 copy_around 32 discard_zeroes_cow discard_passdown_origin
ok "an option is changed by a message" dm message s 0 set on_full drop_oldest
dmremove s
dmremove o

# ---- the version ----

version=$(grep -rhoP '^#define COWSNAP_VERSION\s+"\K[^"]+' "$TOP/include")
is "$(sed -n 's,.*dm-cowsnap/\([0-9.]*\).*,\1,p' "$TOP/README.md" | sort -u)" "$version" \
	"the README installs this version with DKMS"
is "$(sed -n 's/.*Status:\*\* version \([0-9.]*[0-9]\).*/\1/p' "$TOP/README.md")" "$version" \
	"the README's status names this version"
is "$(sed -n 's/^## \([0-9.]*\).*/\1/p' "$TOP/CHANGELOG.md" | head -n 1)" "$version" \
	"the change log begins with this version"
is "$(dmsetup targets | awk '/^cowsnap/ { print $2 }' | sort -u)" "v$version" \
	"all targets have this version"

# ---- LVM, for which the module takes dm-snapshot's place ----

in_snapshots_place || bail_out "the module cannot be loaded with claim_snapshot=1"
vg_up 32M || bail_out "no volume group"
lvcreate -q -Zn -Wn -L 16M -n data vg >/dev/null || bail_out "no volume"
mkfs.ext4 -q /dev/vg/data
ok "README: the quick start with LVM runs" run_block 1
