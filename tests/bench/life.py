# SPDX-License-Identifier: GPL-2.0-only
"""What a snapshot's life costs those who write meanwhile: made, deleted, merged; and loads that
users have: mixed, synced, from several tasks, on volumes whose requests are counted."""

from cases import LINEAR, RAW, THIN, memory, snapshots, solid_state, spinning
from grid import Grid, Test
from tables import Column, Derived, Goal, Row, Table

STOCK_AND_OURS = [("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap")]
BOTH_MODES = [(f"{name} {mode}", kind, mode) for name, kind in STOCK_AND_OURS for mode in "PN"]
PERSISTENT = [(f"{name} P", kind, "P") for name, kind in STOCK_AND_OURS]


def column(label, kind, lines):
    return Column(label, "\n".join(lines) + "\n", kind == "cowsnap")


def times_of(name, title):
    """Rows of how long the requests of a run took."""
    return [Row(f"{name}/p99", f"{title}, p99", "p99 ms", False, times=False),
            Row(f"{name}/slowest", f"{title}, the slowest", "slowest ms", False, times=False)]


# ---- creation -------------------------------------------------------------------

QUEUED = "--rw=randwrite --bs=4k --size=192m --iodepth=32 --time_based"
AROUND = f"{QUEUED} --runtime=400ms"
TIMES_MADE = 8


def many_on_ssd(kind, count):
    """A null_blk device with the origin, and a store for each snapshot or one for all."""
    each = 512 if kind == "cowsnap" else 64
    count = 1 if kind == "cowsnap" else count
    return [f"null_disk nullb0 {256 + count * each} 80000", "fill /dev/nullb0 0 256",
            "volume base /dev/nullb0 0 256", "BASE=/dev/mapper/base",
            f"stores st /dev/nullb0 256 {each} {count}"]


def beside(name, words, *events):
    return [f"writer {name} {words}", "writing", "sleep 0.2", *events, f"written {name}"]


def again_and_again(kind, mode):
    """The only snapshot is made, removed 0.2 s later, made once more, and so on: one suspension
    tells little, since who writes may meet all of it or the end of it. Nothing is suspended to
    remove it: that would be measured as well."""
    removed = [] if kind == "linear" else ["dmsetup remove snap0", 'zero "${STORES[0]}"',
                                           "SNAPS=() MADE=(origin)"]
    once = [f"add_snapshot {kind} {mode}", "sleep 0.2", *removed, "sleep 0.2"]
    return once * TIMES_MADE


def creating(kind, mode):
    lines = many_on_ssd(kind, 100)
    lines += [f"bare_origin {kind}",
              *beside("first", f"{QUEUED} --runtime={TIMES_MADE // 2}s", *again_and_again(kind, mode)),
              "remove_all"]
    if kind != "linear":
        lines += [f"bare_origin {kind}", f"add_snapshots {kind} {mode} 99",
                  *beside("hundredth", AROUND, f"add_snapshot {kind} {mode}"), "remove_all"]
    lines += ["file_system ext4 $BASE", f"bare_origin {kind}", "mount $TARGET /mnt",
              "test_file /mnt/big 128m", "sync",
              *beside("frozen", AROUND.replace("192m", "128m") + " --filename=/mnt/big/test_file.0",
                      f"add_snapshot {kind} {mode}"),
              "umount /mnt", "remove_all"]
    return lines


CREATE = Table(
    "create", "A snapshot is made while the origin is written",
    "Solid-state disk of 80 µs, random 4 KiB writes at queue depth 32 for 0.4 s, in the middle of "
    "which a snapshot is made in the steps that LVM takes. The first one is made and removed eight times "
    "in 4 s. The column dm-linear has the suspension alone. Frozen: the writes go to a file on ext4, "
    "which the suspension freezes.",
    [row for name, title in (("first", "the first snapshot"), ("hundredth", "the hundredth"),
                             ("frozen", "the first, below ext4"))
     for row in [Row(name, f"{title}: writes", "io/s", False), *times_of(name, title)]],
    [column("dm-linear", "linear", creating("linear", "-"))] +
    [column(label, kind, creating(kind, mode)) for label, kind, mode in BOTH_MODES],
    base="dm-linear",
    goals=[Goal(f"p99 of writes while a snapshot is made, {name}, cowsnap {mode}, in ms", 50,
                lambda values, name=name, mode=mode: values[f"{name}/p99", f"cowsnap {mode}"],
                at_most=True)
           for name in ("first", "hundredth", "frozen") for mode in "PN"])

# ---- deletion -------------------------------------------------------------------

DELETE_WRITES = "--rw=randwrite --bs=4k --size=192m --iodepth=8 --time_based --runtime=1s"


def deleting(kind):
    return many_on_ssd(kind, 100) + [
        f"bare_origin {kind}", f"add_snapshots {kind} P 100",
        "measure fill --rw=randwrite --bs=4k --size=192m --io_size=2m --iodepth=8",
        f"measure kept {DELETE_WRITES} --randrepeat=0 --randseed=2",
        *beside("deleted", f"{DELETE_WRITES} --randrepeat=0 --randseed=3", f"delete_oldest {kind}"),
        f"measure after {DELETE_WRITES} --randrepeat=0 --randseed=4"]


def added(values, stack):
    return values["deleted/p99", stack] / values["kept/p99", stack]


DELETE = Table(
    "delete", "The oldest of 100 snapshots is deleted while the origin is written",
    "Solid-state disk of 80 µs, random 4 KiB first writes at queue depth 8, one second before, "
    "around and after.",
    [row for name, title in (("kept", "before"), ("deleted", "meanwhile"), ("after", "after"))
     for row in [Row(name, f"{title}: writes", "io/s", False), *times_of(name, title)]],
    [column(label, kind, deleting(kind)) for label, kind, _ in PERSISTENT], base="dm-snapshot P",
    derived=[Derived("added", "p99 meanwhile, of that before", "times", added)],
    goals=[Goal("p99 while the oldest is deleted, of that before", 1.1,
                lambda values: added(values, "cowsnap P"), at_most=True)])

# ---- merging ----------------------------------------------------------------------

# Requests a second beside it, seconds before it, and while it lasts at most, MiB to merge, how they
# are written.
MERGE_PLACES = {"disk": (20, 20, 15, 64, "1m", "write"),
                "ssd": (1000, 4, 4, 400, "4k", "randwrite")}


def merge_setup(place):
    if place == "disk":
        return [spinning("cache none")("whole")]
    return [solid_state("same")]


def merging(place, kind):
    """Alone, then beside somebody who writes elsewhere."""
    limit, seconds, longest, size, block, order = MERGE_PLACES[place]
    depth = 32 if order == "randwrite" else 1
    load = f"--rw={order} --bs={block} --size={size}m --iodepth={depth}"
    beside_words = (f"--rw=randwrite --bs=4k --offset={size}m --size=40m --iodepth=1 "
                    f"--time_based --rate_iops={limit}")
    lines = merge_setup(place) + [f"plain_copy copy {size // 2}"]
    for name in ("alone", "both"):
        lines += [f"stack {kind} P 8", f"measure {name}-fill {load}"]
        if name == "both":
            lines += [f"measure before {beside_words} --runtime={seconds}s",
                      f"writer during {beside_words} --runtime={longest}s "
                      "--randrepeat=0 --randseed=2", "sleep 0.3"]
        lines += [f"merging {name} {kind} {size}"]
        lines += ["enough", "written during"] if name == "both" else []
        lines += ["unstack"]
    return lines


def merge_table(place, what):
    return Table(
        f"merge-{place}", f"Merging, {what}",
        "The whole snapshot is merged into its origin, alone and beside random 4 KiB writes at a "
        "fixed rate to another part of the origin. A plain copy reads 1 MiB and writes it, in turn.",
        [Row("copy", "a plain copy", "MB/s", False), Row("alone", "merging, nothing beside it", "MB/s",
                                                       False),
         Row("both", "merging beside writes", "MB/s", False),
         Row("before", "the writes before", "io/s", False), *times_of("before", "before"),
         Row("during", "the writes meanwhile", "io/s", False), *times_of("during", "meanwhile")],
        [column(label, kind, merging(place, kind)) for label, kind, _ in PERSISTENT],
        base="dm-snapshot P",
        goals=[Goal("merging, of a plain copy", .8, lambda values: values["alone", "cowsnap P"] /
                    values["copy", "cowsnap P"]),
               Goal("the origin's p99 while merging, of that before", 2,
                    lambda values: values["during/p99", "cowsnap P"] /
                    values["before/p99", "cowsnap P"], at_most=True)])


MERGES = [merge_table("disk", "one disk, 64 MiB in stretches of 1 MiB"),
          merge_table("ssd", "solid-state disk, 102,400 single chunks")]

# ---- volumes whose requests are counted ----------------------------------------------

CAPPED = Table(
    "capped", "Requests that a first write costs",
    "Random 4 KiB first writes on null_blk. Volumes of cloud providers have a cap on requests a "
    "second: the rate there is the cap divided by this.",
    [Row(f"qd-{depth}", f"queue depth {depth}", "requests", False) for depth in (1, 16)],
    [column(stack.label, stack.words.split(maxsplit=1)[0], [
        solid_state("same"), f"stack {stack.words}",
        "measure_requests qd-1 nullb0 2048 --rw=randwrite --bs=4k --size=448m --io_size=8m",
        "fresh", "measure_requests qd-16 nullb0 4096 --rw=randwrite --bs=4k --size=448m "
        "--io_size=16m --iodepth=16"]) for stack in [RAW] + snapshots()])

# ---- mixed loads ------------------------------------------------------------------


def mixed(name, title, setup, size, amount):
    words = f"--rw=randrw --rwmixread=70 --bs=4k --size={size} --io_size={amount} --iodepth=64"
    return Table(
        f"mixed-{name}", f"70 % reads, 30 % writes: {title}", "4 KiB, random, queue depth 64.",
        [Row("mix/reads", "reads", "reads io/s"), Row("mix/writes", "writes", "writes io/s")],
        [column(stack.label, stack.words.split(maxsplit=1)[0],
                [setup(stack.place), f"stack {stack.words}", f"measure mix {words}"])
         for stack in [RAW, THIN] + snapshots()])


MIXED = [mixed("ssd", "solid-state disk", solid_state, "448m", "64m"),
         mixed("disk", "one disk", spinning("cache none"), "1g", "64m")]

# ---- an fsync after each write -------------------------------------------------------


def synced(kind):
    return Table(
        f"fsync-{kind}", f"An fsync after each write, {kind}",
        "Random 4 KiB writes into a file of 128 MiB, an fsync after each; one disk with a volatile "
        "cache. The percentiles are those of an fsync.",
        [Row("fsync", "writes")] +
        [Row(f"fsync/{what}", f"an fsync, {what}", f"sync-{what} ms", False, times=False)
         for what in ("p99", "p99.9")],
        [column(stack.label, stack.words.split(maxsplit=1)[0],
                [spinning("cache volatile")(stack.place), f"file_system {kind} $BASE",
                 "mount $BASE /mnt", "test_file /mnt 128m", "umount /mnt", f"stack {stack.words}",
                 "mount $TARGET /mnt", "measure fsync --filename=/mnt/test_file.0 --rw=randwrite "
                 "--bs=4k --size=128m --io_size=16m --ioengine=psync --fsync=1", "umount /mnt"])
         for stack in [RAW] + snapshots()])


FSYNC = [synced("ext4"), synced("xfs")]

# ---- several tasks ------------------------------------------------------------------


def tasks(name, title, setup, size, amount):
    return Grid(
        f"tasks-{name}", f"First writes by several tasks: {title}",
        "Random 4 KiB writes, each task waits for its own write before the next.", setup,
        [RAW, LINEAR, THIN] + snapshots(),
        [Test(f"tasks-{count}", f"{count} tasks",
              f"--rw=randwrite --bs=4k --size={size} --io_size={amount // count}k --iodepth=1 "
              f"--ioengine=psync --numjobs={count} --group_reporting") for count in (2, 4, 8)])


TASKS = [tasks("ssd", "solid-state disk", solid_state, "448m", 16384),
         tasks("disk", "one disk", spinning("cache none"), "1g", 16384),
         tasks("memory", "RAM disk", memory, "64m", 32768)]

ALL = [CREATE, DELETE, *MERGES, CAPPED, *MIXED, *FSYNC, *TASKS]
