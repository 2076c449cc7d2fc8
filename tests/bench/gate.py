# SPDX-License-Identifier: GPL-2.0-only
"""The regression gate: a small set whose counts are exact, compared with those committed.

What is counted does not depend on any clock: instructions of a request on a RAM disk, and what
reaches a disk for the same writes. More than a little worse is a failure that names the case.

The same runs are compared with dm-snapshot, rate and percentiles, on the RAM disk the rate alone. A
figure that falls behind is a failure too, and so is one that was behind when the counts were
committed and is further behind now.
"""

import json

import against
import results
from cases import memory, solid_state, spinning
from grid import Grid, Stack, Test
from machine import BENCH_DIR

WORSE = 0.03
EXPECTED = BENCH_DIR / "expected.json"
COUNTS = ("reads", "read_sectors", "writes", "write_sectors", "seeks")

STACKS = [Stack("cowsnap P", "cowsnap P 8"), Stack("cowsnap N", "cowsnap N 8")]
STOCK = [Stack("dm-snapshot P", "snapshot P 8"), Stack("dm-snapshot N", "snapshot N 8")]

PROCESSOR = Grid(
    "check-memory", "Instructions", "", memory,
    STACKS + STOCK + [Stack(f"{name} P 128", f"{kind} P 128")
                      for name, kind in (("cowsnap", "cowsnap"), ("dm-snapshot", "snapshot"))],
    [Test("random", "random 4K writes, first", "--rw=randwrite --bs=4k --size=16m"),
     # Four times: the ticks that fall into one of 4,096 requests would be its p99.9.
     Test("again", "random 4K writes, again", "--rw=randwrite --bs=4k --size=16m --loops=4",
          fresh=False),
     Test("read", "random 4K reads of the origin", "--rw=randread --bs=4k --size=16m", fresh=False),
     Test("large", "1M writes, first", "--rw=write --bs=1m --size=32m"),
     Test("large-again", "1M writes, again", "--rw=write --bs=1m --size=32m", fresh=False),
     Test("snap-read", "1M reads of the snapshot", "--rw=read --bs=1m --size=32m", fresh=False,
          snap=True)])

DISK = Grid(
    "check-disk", "What reaches the disk", "", spinning("cache none"), STACKS + STOCK,
    [Test("random", "random 4K writes, first", "--rw=randwrite --bs=4k --size=1g --io_size=2m"),
     Test("queued", "queue depth 32",
          "--rw=randwrite --bs=4k --size=1g --io_size=4m --iodepth=32"),
     Test("sync", "sequential 4K O_SYNC writes",
          "--rw=write --bs=4k --size=2m --ioengine=psync --sync=1"),
     Test("large", "1M writes", "--rw=write --bs=1m --size=32m")])

SSD = Grid(
    "check-ssd", "A solid-state disk", "", solid_state, STACKS + STOCK,
    [Test("random-1", "random 4K writes", "--rw=randwrite --bs=4k --size=448m --io_size=8m"),
     Test("random-32", "queue depth 32",
          "--rw=randwrite --bs=4k --size=448m --io_size=16m --iodepth=32")])

COUNTED = [PROCESSOR, DISK]
GRIDS = COUNTED + [SSD]


def counts_of(grid, stack, test, job):
    """The counts of one run, each of which is better if it is less."""
    case = f"{stack.label}: {test.title}"
    if grid is PROCESSOR:
        return {f"{case}, instructions each": round(results.instructions(job, test.name))}
    disk = results.status(job, test.name)["d0"]
    return {f"{case}, {key}": disk[key] for key in COUNTS}


def ours(grid):
    return [stack for stack in grid.stacks if stack.label.startswith("cowsnap")]


def measured(jobs):
    found = {}
    for grid in COUNTED:
        for stack in ours(grid):
            for test in grid.tests_of(stack):
                found.update(counts_of(grid, stack, test, jobs[grid.name][stack.label]))
    return found


def compared(grid, jobs):
    """On the RAM disk the rate alone. Its p99.9 is by chance: of 4,096 requests some meet the timer's
    interrupt while they are timed, and whether four or five do decides it."""
    return [one for one in against.figures_of(grid.name, grid.figures(jobs[grid.name]))
            if grid is not PROCESSOR or one.what == "rate"]


def behind(jobs):
    """Figures that are behind dm-snapshot's: how far, as a factor."""
    every = [one for grid in GRIDS for one in compared(grid, jobs)]
    return {one.name(): round(one.badness(), 3) for one in against.behind(every)}


def worse_counts(found, expected):
    for case, count in found.items():
        before = expected.get(case)
        if before is None:
            yield f"{case}: nothing to compare with; run bench --update"
        elif count > before * (1 + WORSE) and count - before > 2:
            yield f"{case}: {count}, was {before} (+{(count / before - 1) * 100:.1f} %)"


def further_behind(late, expected):
    for name, factor in late.items():
        before = expected.get(name, 1.0)
        if factor > before * (1 + against.TIME_SLACK) or name not in expected:
            yield f"{name}: behind dm-snapshot by a factor of {factor}, was {before}"


def compare(found, late, kver):
    """Lines about what is worse, or cannot be compared."""
    expected = json.loads(EXPECTED.read_text())
    if expected["kernel"] == kver:
        return [*worse_counts(found, expected["counts"]),
                *further_behind(late, expected["behind"])]
    # Instructions, and with them times, are another kernel's own; what reaches a disk is not.
    print(f"the committed counts are of {expected['kernel']}, these of {kver}: "
          "instructions and times are not compared")
    counts = {case: count for case, count in found.items() if "instructions" not in case}
    return list(worse_counts(counts, expected["counts"]))


def update(found, late, kver):
    EXPECTED.write_text(json.dumps({"kernel": kver, "counts": found, "behind": late}, indent=1) +
                        "\n")
