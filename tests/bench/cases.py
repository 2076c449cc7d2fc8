# SPDX-License-Identifier: GPL-2.0-only
"""The cases that performance work is measured by, each a Grid."""

from grid import Grid, Stack, Test

# ---- devices, as scripts for the guest ------------------------------------------

ORIGIN = 1024   # MiB
STORE = 1536
STORES = {"whole": 1, "eight": 8}    # how many share that room; else two


def spinning(disk_words):
    """One disk with origin and two stores, eight or one in their room ("eight", "whole"), or two
    disks."""
    def setup(place):
        lines = [f"ram_disks 2 {ORIGIN + STORE + 512}", f"fill /dev/ram0 0 {ORIGIN}",
                 f"spin d0 /dev/ram0 {disk_words}", f"spin d1 /dev/ram1 {disk_words}",
                 f"volume base /dev/mapper/d0 0 {ORIGIN}", "BASE=/dev/mapper/base"]
        if place == "thin":
            lines += [f"volume meta /dev/mapper/d0 {ORIGIN} 64",
                      f"volume data /dev/mapper/d0 {ORIGIN + 64} {STORE + 384}",
                      "STORES=(/dev/mapper/meta /dev/mapper/data)"]
        else:
            count = STORES.get(place, 2)
            where = "d1 0" if place == "other" else f"d0 {ORIGIN}"
            lines.append(f"stores st /dev/mapper/{where} {STORE // count} {count}")
        return "\n".join(lines)
    return setup


def memory(place):
    """RAM disks, all of whose pages are there: the origin, then stores."""
    if place == "thin":
        return "\n".join(["ram_disks 3 400", "volume base /dev/ram0 0 160", "BASE=/dev/mapper/base",
                          "fill /dev/ram0 0 160", "fill /dev/ram1 0 32", "fill /dev/ram2 0 400",
                          "STORES=(/dev/ram1 /dev/ram2)"])
    stores = [f"/dev/ram{i}" for i in range(1, 9 if place == "eight" else 2)]
    return "\n".join([f"ram_disks {len(stores) + 1} 160", "fill /dev/ram0 0 160", "BASE=/dev/ram0"] +
                     [f"fill {store} 0 160" for store in stores] +
                     [f"STORES=({' '.join(stores)})"])


def solid_state(place):
    """A null_blk device that answers each request after 80 us, however many there are."""
    # dm-thin's blocks of 64 KiB: nearly every one is copied.
    size = 1472 if place == "thin" else 1024
    lines = [f"null_disk nullb0 {size} 80000", "fill /dev/nullb0 0 448",
             "volume base /dev/nullb0 0 448", "BASE=/dev/mapper/base"]
    if place == "thin":
        lines += ["volume meta /dev/nullb0 448 32", "volume data /dev/nullb0 480 992",
                  "STORES=(/dev/mapper/meta /dev/mapper/data)"]
    else:
        lines.append("stores st /dev/nullb0 448 512 1")
    return "\n".join(lines)


# ---- stacks -----------------------------------------------------------------------

def snapshots(chunk=8, place="same", suffix="", **words):
    """dm-snapshot and cowsnap, persistent and transient, at one place."""
    return [Stack(f"{name} {mode}{suffix}", f"{kind} {mode} {chunk}", place, **words)
            for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap"))
            for mode in "PN"]


def eight(tests, place):
    """Eight snapshots, each to be compared with one of its own kind."""
    return [Stack(f"{name} {mode} ×8", f"{kind} {mode} 8 8", place, tests, f"{name} {mode}")
            for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap"))
            for mode in "PN"]


def redirected(place="same", suffix=""):
    """A sealed origin: first writes go to the store."""
    return [Stack(f"cowsnap R{suffix}", "cowsnap_redirect 8", place)]


RAW = Stack("raw", "raw", reads_snap=False)
LINEAR = Stack("dm-linear", "linear", reads_snap=False)
THIN = Stack("dm-thin", "thin 128", "thin")

# ---- one disk, write cache off --------------------------------------------------

RANDOM_1 = Test("random-1", "random 4K writes, qd 1",
                "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=1")
DISK_TESTS = [
    RANDOM_1,
    Test("again", "the same written again",
         "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=1", fresh=False),
    Test("read", "random 4K reads of the origin",
         "--rw=randread --bs=4k --size=1g --io_size=24m --iodepth=1", fresh=False),
    Test("random-32", "random 4K writes, qd 32",
         "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=32"),
    Test("sync", "sequential 4K O_SYNC writes",
         "--rw=write --bs=4k --size=24m --ioengine=psync --sync=1"),
    Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=128m", "MB/s"),
    Test("large-again", "the same written again", "--rw=write --bs=1m --size=128m", "MB/s",
         fresh=False),
    Test("large-read", "sequential 1M reads of the origin", "--rw=read --bs=1m --size=128m",
         "MB/s", fresh=False),
]


def row(test, stacks, *ratios):
    return {(test, stack): ratio for stack, ratio in zip(stacks, ratios)}


def column(stack, tests, *ratios):
    return {(test, stack): ratio for test, ratio in zip(tests, ratios)}


PLACES = ["cowsnap P", "cowsnap N", "cowsnap P, 2 disks", "cowsnap N, 2 disks"]

DISK = Grid(
    "disk", "One disk, write cache off",
    "7200 rpm, no write cache, 4 KiB chunks, the store on the same disk or on a second one. "
    "dm-thin is the only one that places new data elsewhere, in the order of arrival. Writing or "
    "reading in the same order again is then no longer random, and what was sequential may not be. "
    "\"R\" is cowsnap P with a sealed origin whose first writes go to the store (redirect 90).",
    spinning("cache none"),
    [RAW, LINEAR, THIN] + snapshots() + snapshots(place="other", suffix=", 2 disks") +
    eight(("random-1",), "eight") + redirected("whole"),
    DISK_TESTS,
    {**row("random-1", PLACES, .27, .40, .38, .41),
     **row("random-32", PLACES, .45, .48, .48, .49),
     **row("sync", PLACES, .95, .95, .97, .98),
     **row("large", PLACES, .38, .40, .52, .55),
     **row("again", PLACES, .97, .97, .97, .97),
     **row("read", PLACES, .97, .97, .97, .97),
     **row("large-again", PLACES, .97, .97, .97, .97),
     **row("large-read", PLACES, .97, .97, .97, .97),
     **row("random-1", ["cowsnap P ×8", "cowsnap N ×8"], .98, .98),
     **column("cowsnap R", ["random-1", "again", "read", "random-32", "sync", "large",
                            "large-again", "large-read"], 8, 10, .95, 15, 8, .95, .95, .90)})

# ---- behind a volatile cache: an fsync is worth something --------------------------

VOLATILE = Grid(
    "volatile", "Volatile write cache",
    "The same disk with a volatile cache of 16 MiB; stores of 4 KiB chunks on it.",
    spinning("cache volatile"), [RAW, LINEAR] + snapshots() + redirected("whole"),
    [Test("fsync", "random 4K writes, each with an fsync",
          "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=1 --fsync=1"),
     Test("fsync-again", "the same written again",
          "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=1 --fsync=1", fresh=False),
     Test("random-32", "random 4K writes, qd 32",
          "--rw=randwrite --bs=4k --size=1g --io_size=64m --iodepth=32",
          warm="--rw=randwrite --bs=4k --offset=512m --size=512m --io_size=32m --iodepth=32")],
    column("cowsnap R", ["fsync", "random-32"], 8, 8))

# ---- behind a battery-backed cache ---------------------------------------------

BATTERY_TESTS = [
    Test("sync", "sequential 4K O_SYNC writes",
         "--rw=write --bs=4k --size=64m --ioengine=psync --sync=1",
         warm="--rw=write --bs=4k --offset=512m --size=112m --ioengine=psync --sync=1"),
    Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=128m", "MB/s",
         warm="--rw=write --bs=1m --offset=512m --size=112m"),
    Test("random-1", "random 4K writes, qd 1",
         "--rw=randwrite --bs=4k --size=512m --io_size=64m --iodepth=1",
         warm="--rw=randwrite --bs=4k --offset=512m --size=512m --io_size=32m --iodepth=1"),
]
MODES = ["cowsnap P", "cowsnap N"]
BATTERY_TARGETS = {**row("sync", MODES, .20, .22), **row("large", MODES, .22, .24),
                   **row("random-1", MODES, .12, .13),
                   **column("cowsnap R", ["sync", "large", "random-1"], .45, .95, 12)}

BATTERY = Grid(
    "battery", "Battery-backed cache, eager",
    "A battery-backed cache of 16 MiB that writes whenever the head has nothing to read. Before "
    "each measurement, the same kind of load fills the cache.",
    spinning("cache battery destage_percent 0"),
    [RAW, LINEAR] + snapshots() + redirected("whole"), BATTERY_TESTS, BATTERY_TARGETS)

BATTERY_LAZY = Grid(
    "battery-lazy", "Battery-backed cache, lazy",
    "The same cache, except that it starts to write only when it is more than half full, like "
    "controllers that gather writes.",
    spinning("cache battery destage_percent 50"),
    [RAW, LINEAR] + snapshots() + redirected("whole"), BATTERY_TESTS, BATTERY_TARGETS)

# ---- memory: what the processor has to do ------------------------------------------

MEMORY_TESTS = [
    Test("random", "random 4K writes, first",
         "--rw=randwrite --bs=4k --size=64m --iodepth=1"),
    Test("again", "the same again", "--rw=randwrite --bs=4k --size=64m --iodepth=1",
         fresh=False, base="dm-linear"),
    Test("read", "random 4K reads of the origin",
         "--rw=randread --bs=4k --size=64m --iodepth=1", fresh=False,
         base="dm-linear"),
    Test("large", "1M writes, first", "--rw=write --bs=1m --size=64m", "MB/s"),
    Test("large-again", "the same again", "--rw=write --bs=1m --size=64m --io_size=128m", "MB/s",
         fresh=False, base="dm-linear"),
    Test("large-read", "1M reads of the origin", "--rw=read --bs=1m --size=64m --io_size=128m",
         "MB/s", fresh=False, base="dm-linear"),
    Test("snap-read", "1M reads of the snapshot", "--rw=read --bs=1m --size=64m", "MB/s",
         fresh=False, snap=True, base_test="large-read"),
]
RAM_MODES = ["cowsnap P", "cowsnap N", "cowsnap P 128"]

MEMORY = Grid(
    "memory", "RAM disk: the cost in instructions",
    "First writes to 64 MiB. Virtual time counts instructions, so a rate follows from their number.",
    memory,
    [RAW, LINEAR, THIN] + snapshots() + snapshots(128, suffix=" 128") +
    eight(("random",), "eight") + redirected(),
    MEMORY_TESTS,
    {**row("random", RAM_MODES, .30, .38, .50),
     **row("again", RAM_MODES, .97, .97, .97),
     **row("read", RAM_MODES, .97, .97, .97),
     **row("large", RAM_MODES, .24, .28, .25),
     **row("large-again", RAM_MODES, .97, .97, .97),
     **row("large-read", RAM_MODES, .97, .97, .97),
     **row("snap-read", RAM_MODES, .60, .85, .60),
     **row("random", ["cowsnap P ×8", "cowsnap N ×8"], .98, .98),
     **column("cowsnap R", ["random", "again", "large"], .36, .93, .50)},
    instructions=True)

# ---- a solid-state disk ---------------------------------------------------------------

SSD = Grid(
    "ssd", "Solid-state disk",
    "null_blk: each request takes 80 µs, any number of them run in parallel, no cache.",
    solid_state, [RAW, LINEAR, THIN] + snapshots() + redirected(),
    [Test("random-1", "random 4K writes, qd 1",
          "--rw=randwrite --bs=4k --size=448m --io_size=16m --iodepth=1"),
     Test("again", "the same again",
          "--rw=randwrite --bs=4k --size=448m --io_size=16m --iodepth=1", fresh=False),
     Test("random-32", "random 4K writes, qd 32",
          "--rw=randwrite --bs=4k --size=448m --io_size=32m --iodepth=32"),
     Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=128m", "MB/s")],
    {**row("random-1", MODES, .31, .48), **row("again", MODES, .97, .97),
     **column("cowsnap R", ["random-1", "again", "random-32", "large"], .78, .95, .70, .55)})
