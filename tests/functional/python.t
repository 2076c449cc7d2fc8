#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The Python module, and with it libcowsnap: what there is, snapshots at one instant, what has
# changed, devices, deleting, and what is refused.

. "$(dirname "$0")/common.sh"

for tools in "$(dirname "${COWSNAP_KO:-/none}")/tools" "$TESTS_DIR/../tools"; do
	[[ ! -e $tools/lib/libcowsnap.so.1 ]] || break
done
[[ -e $tools/lib/libcowsnap.so.1 ]] || skip_all "libcowsnap has not been built"
python3 -c 'import ctypes' 2>/dev/null || skip_all "no Python with ctypes"
export LD_LIBRARY_PATH=$tools/lib PYTHONPATH=$TESTS_DIR/../tools/python PYTHONDONTWRITEBYTECODE=1

plan 13
exact_copies
for name in one two; do
	"$tools/cowsnap" create --name $name "$(mkloop 8M)" "$(mkloop 16M)" >/dev/null
	at_exit dmsetup remove $name
done
fill /dev/mapper/one "$TEST_TMP/old"

# python: lines of it, with a handle c.
python()
{
	{ printf 'import cowsnap\nc = cowsnap.Cowsnap()\n' && cat; } | python3 -
}

is "$(python <<<'print([o["name"] for o in c.list()], [len(o["stores"]) for o in c.list()])')" \
	"['one', 'two'] [1, 1]" "list() has both origins, with a store each"
is "$(python <<<'print(c.snapshot("one", "two"))')" "['one@1', 'two@1']" "snapshot() makes two at one instant"
put /dev/mapper/one - 0 4096 $((1 << 20)) 12288
is "$(python <<<'print(c.diff("one@1"))')" "[(0, 4096), (1048576, 12288)]" "diff() of one snapshot: what has changed until now"
is "$(python <<<'print(c.snapshot("one"))')" "['one@2']" "snapshot() makes one more"
put /dev/mapper/one - $((7 << 20)) 4096
is "$(python <<<'print(c.diff("one@1", "one@2"))')" "[(0, 4096), (1048576, 12288)]" \
	"diff() of two snapshots: what has changed between them"
is "$(python <<<'print(c.diff("one@2"), c.diff("two@1"))')" "[(7340032, 4096)] []" \
	"diff() of each store has its own changes"
ok "a snapshot is activated" python <<<'c.activate("one@1")'
ok "the activated snapshot has the old data" same /dev/mapper/one@1 "$TEST_TMP/old"
is "$(python <<<'print([s["device"] for o in c.list() for t in o["stores"] for s in t["snapshots"]
	if "device" in s])')" "['/dev/mapper/one@1']" "list() has the activated snapshot's device"
ok "a snapshot is deactivated and deleted" python <<<'c.deactivate("one@1"); c.delete("one@1")'

# refused TEXT: what Python, standard input, is told.
refused()
{
	{ printf 'try:\n\t' && cat && printf 'except cowsnap.Error as e:\n\tprint(e.result, e)\n'; } |
		python
}

is "$(refused <<<'c.diff("one@1")')" \
	'-4 "one" has no snapshot 1; cowsnap list one shows which it has' "a snapshot that is gone"
is "$(refused <<<'c.diff("one@2", "two@1")')" \
	'-9 two@1: this is no snapshot of the same store as one@2' "snapshots of two origins"
ok "a dry run changes nothing" python <<<'lines = []
c.dry_run(lines.append)
c.delete("two@1")
c.dry_run(None)
assert lines and c.list()[1]["stores"][0]["snapshots"], lines'
