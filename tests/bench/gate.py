# SPDX-License-Identifier: GPL-2.0-only
"""The regression gate: a small set whose counts are exact, compared with those committed.

What is counted does not depend on any clock: instructions of a request on a RAM disk, and what
reaches a disk for the same writes. More than a little worse is a failure that names the case.
"""

import json

import results
from cases import memory, spinning
from grid import Grid, Stack, Test
from machine import BENCH_DIR

WORSE = 0.03
EXPECTED = BENCH_DIR / "expected.json"
COUNTS = ("reads", "read_sectors", "writes", "write_sectors", "seeks")

STACKS = [Stack("cowsnap P", "cowsnap P 8"), Stack("cowsnap N", "cowsnap N 8")]

PROCESSOR = Grid(
    "check-memory", "Instructions", "", memory,
    STACKS + [Stack("cowsnap P 128", "cowsnap P 128")],
    [Test("random", "random 4K writes, first", "--rw=randwrite --bs=4k --size=16m"),
     Test("again", "random 4K writes, again", "--rw=randwrite --bs=4k --size=16m", fresh=False),
     Test("read", "random 4K reads of the origin", "--rw=randread --bs=4k --size=16m", fresh=False),
     Test("large", "1M writes, first", "--rw=write --bs=1m --size=32m"),
     Test("large-again", "1M writes, again", "--rw=write --bs=1m --size=32m", fresh=False),
     Test("snap-read", "1M reads of the snapshot", "--rw=read --bs=1m --size=32m", fresh=False,
          snap=True)])

DISK = Grid(
    "check-disk", "What reaches the disk", "", spinning("cache none"), STACKS,
    [Test("random", "random 4K writes, first", "--rw=randwrite --bs=4k --size=1g --io_size=2m"),
     Test("queued", "queue depth 32",
          "--rw=randwrite --bs=4k --size=1g --io_size=4m --iodepth=32"),
     Test("sync", "sequential 4K O_SYNC writes",
          "--rw=write --bs=4k --size=2m --ioengine=psync --sync=1"),
     Test("large", "1M writes", "--rw=write --bs=1m --size=32m")])

GRIDS = [PROCESSOR, DISK]


def counts_of(grid, stack, test, job):
    """The counts of one run, each of which is better if it is less."""
    case = f"{stack.label}: {test.title}"
    if grid is PROCESSOR:
        return {f"{case}, instructions each": round(results.instructions(job, test.name))}
    disk = results.status(job, test.name)["d0"]
    return {f"{case}, {key}": disk[key] for key in COUNTS}


def measured(jobs):
    found = {}
    for grid in GRIDS:
        for stack in grid.stacks:
            for test in grid.tests_of(stack):
                found.update(counts_of(grid, stack, test, jobs[grid.name][stack.label]))
    return found


def comparable(found, kver, expected):
    """Instructions are another kernel's own; what reaches a disk is not."""
    if expected["kernel"] == kver:
        return found
    print(f"the committed counts are of {expected['kernel']}, these of {kver}: "
          "instructions are not compared")
    return {case: count for case, count in found.items() if "instructions" not in case}


def compare(found, kver):
    """Lines about what is worse, or cannot be compared."""
    expected = json.loads(EXPECTED.read_text())
    worse = []
    for case, count in comparable(found, kver, expected).items():
        before = expected["counts"].get(case)
        if before is None:
            worse.append(f"{case}: nothing to compare with; run bench --update")
        elif count > before * (1 + WORSE) and count - before > 2:
            worse.append(f"{case}: {count}, was {before} (+{(count / before - 1) * 100:.1f} %)")
    return worse


def update(found, kver):
    EXPECTED.write_text(json.dumps({"kernel": kver, "counts": found}, indent=1) + "\n")
