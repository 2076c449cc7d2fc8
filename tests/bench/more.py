# SPDX-License-Identifier: GPL-2.0-only
"""Further cases: number of snapshots, queue depth, chunk size, a backup during writes, other kinds
of snapshots, and the cost in processor time and memory."""

import statistics

from cases import LINEAR, memory, redirected, snapshots, spinning
from grid import Grid, Stack, Test
from tables import Column, Derived, Goal, Row, Table

# ---- a store on a slower disk ------------------------------------------------------


def slow_store(place):
    """An origin of a solid-state disk. The store's disk turns; its tracks may be skewed."""
    words = " skew 384 jitter_us 200" if place == "skewed" else ""
    lines = ["ram_disks 1 1600", "null_disk nullb0 448 80000", "fill /dev/nullb0 0 448",
             "volume base /dev/nullb0 0 448", "BASE=/dev/mapper/base",
             f"spin d0 /dev/ram0 cache none{words}", "stores st /dev/mapper/d0 0 1536 1"]
    if place == "dense":
        lines.append("echo 0 >/sys/module/dm_cowsnap/parameters/log_gap")
    return "\n".join(lines)


SLOW_STORE = Grid(
    "slow-store", "The origin on a solid-state disk, the store on a 7200 rpm disk",
    "Chunks of 16 KiB. \"No gap\" has `log_gap` 0: records of the log stand directly behind each "
    "other. \"Skew\" has tracks that begin 384 sectors after the end of the last, and requests that "
    "take up to 200 µs from the host to the disk.",
    slow_store,
    [Stack("raw", "raw"), Stack("dm-snapshot P", "snapshot P 32"),
     Stack("cowsnap P, no gap", "cowsnap P 32", "dense"), Stack("cowsnap P", "cowsnap P 32"),
     Stack("dm-snapshot P, skew", "snapshot P 32", "skewed"),
     Stack("cowsnap P, skew", "cowsnap P 32", "skewed")],
    [Test("random-1", "random 4K writes, qd 1",
          "--rw=randwrite --bs=4k --size=448m --io_size=16m --iodepth=1"),
     Test("random-32", "random 4K writes, qd 32",
          "--rw=randwrite --bs=4k --size=448m --io_size=16m --iodepth=32")],
    memory="4G")

# ---- how many snapshots -----------------------------------------------------------

COUNTS = (1, 2, 4, 8, 64)


def many_stores(_place):
    return "\n".join(["ram_disks 1 3072", "fill /dev/ram0 0 1024", "spin d0 /dev/ram0 cache none",
                      "volume base /dev/mapper/d0 0 1024", "BASE=/dev/mapper/base",
                      "stores st /dev/mapper/d0 1024 24 64"])


SNAPSHOTS = Grid(
    "snapshots", "Number of snapshots",
    "One disk without write cache, random first writes, 4 KiB chunks. dm-snapshot has a store for "
    "each snapshot, cowsnap one for all.",
    many_stores,
    [Stack("raw", "raw")] + [Stack(f"{name} P ×{n}", f"{kind} P 8 {n}")
                             for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap"))
                             for n in COUNTS],
    [Test("random-1", "random 4K writes, qd 1",
          "--rw=randwrite --bs=4k --size=1g --io_size=2m --iodepth=1")])

# ---- how deep a queue ---------------------------------------------------------------

DEPTHS = (1, 2, 4, 8, 16, 32)
FOUR = [Stack(f"{name} {mode}", f"{kind} {mode} 8")
        for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap")) for mode in "PN"]

DEPTH = Grid(
    "depths", "Queue depth",
    "One disk without write cache, store on the same disk, random first writes of 4 KiB.",
    spinning("cache none"), [Stack("raw", "raw")] + FOUR,
    [Test(f"depth-{depth}", f"qd {depth}",
          f"--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth={depth}")
     for depth in DEPTHS])

DEPTH_LARGE = Grid(
    "depths-large", "Large writes, queue depth 8",
    "First writes to one disk without write cache, chunks of 4 KiB unless another size is named, the "
    "store on the same disk or on a second one.",
    spinning("cache none"),
    [Stack("raw", "raw")] + snapshots() + snapshots(place="other", suffix=", 2 disks") +
    [Stack(f"{name} P 512K", f"{kind} P 1024")
     for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap"))],
    [Test("random-512", "random 512K writes",
          "--rw=randwrite --bs=512k --size=512m --io_size=256m --iodepth=8", "MB/s"),
     Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=256m --iodepth=8", "MB/s"),
     Test("of-both", "random writes, half of them 4K, half 512K",
          "--rw=randwrite --bssplit=4k/50:512k/50 --size=512m --io_size=128m --iodepth=8", "MB/s")])

# ---- how large a chunk ----------------------------------------------------------------

CHUNKS = (8, 32, 128, 1024)

CHUNK = Grid(
    "chunks", "Chunk size",
    "One disk without write cache, store on the same disk. Chunk sizes in sectors of 512 bytes.",
    spinning("cache none"),
    [Stack("raw", "raw")] + [Stack(f"{name} P {chunk}", f"{kind} P {chunk}")
                             for name, kind in (("dm-snapshot", "snapshot"), ("cowsnap", "cowsnap"))
                             for chunk in CHUNKS],
    [Test("random-1", "random 4K writes, qd 1",
          "--rw=randwrite --bs=4k --size=1g --io_size=2m --iodepth=1"),
     Test("sync", "sequential 4K O_SYNC writes",
          "--rw=write --bs=4k --size=4m --ioengine=psync --sync=1"),
     Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=128m", "MB/s")])

# ---- a tracker alone ------------------------------------------------------------------

TRACKED = [Stack("raw", "raw"), Stack("cowsnap P", "cowsnap P 8"),
           Stack("cowsnap tracker", "cowsnap_tracker 8")]
TRACKED_TESTS = [
    Test("random-1", "random 4K writes, qd 1",
         "--rw=randwrite --bs=4k --size=1g --io_size=12m --iodepth=1"),
    Test("going-on", "going on", "--rw=randwrite --bs=4k --size=1g --io_size=12m --iodepth=1 "
         "--randrepeat=0 --randseed=2", fresh=False),
    Test("random-32", "random 4K writes, qd 32",
         "--rw=randwrite --bs=4k --size=1g --io_size=24m --iodepth=32"),
    Test("sync", "sequential 4K O_SYNC writes",
         "--rw=write --bs=4k --size=8m --ioengine=psync --sync=1"),
    Test("large", "sequential 1M writes", "--rw=write --bs=1m --size=128m", "MB/s"),
]

TRACKER = Grid(
    "tracker", "A tracker alone",
    "One disk without write cache, store on the same disk. Of the snapshots one is left, given up "
    "to a tracker: writes are noted, nothing is copied. The first two writes into each 64 MiB wait "
    "for a mark on the disk; \"going on\" are random writes after that.",
    spinning("cache none"), TRACKED, TRACKED_TESTS,
    {(test.name, "cowsnap tracker"): .97 for test in TRACKED_TESTS})

TRACKER_MEMORY = Grid(
    "tracker-memory", "A tracker alone: the cost in instructions",
    "The same on a RAM disk, compared with dm-linear.",
    memory, [LINEAR] + TRACKED,
    [Test("random", "random 4K writes, first",
          "--rw=randwrite --bs=4k --size=64m --iodepth=1", base="dm-linear"),
     Test("again", "the same again", "--rw=randwrite --bs=4k --size=64m --iodepth=1",
          fresh=False, base="dm-linear"),
     Test("large", "1M writes, first", "--rw=write --bs=1m --size=64m", "MB/s",
          base="dm-linear")],
    {(name, "cowsnap tracker"): .97 for name in ("random", "again", "large")},
    instructions=True)

# ---- a backup beside the users' writes ------------------------------------------------

READER = "--name=backup --rw=read --bs=1m --size=512m --runtime=20 --time_based"
WRITER = "--rw=randwrite --bs=4k --size=1g --runtime=20 --time_based --iodepth=1"


def backup(stack):
    reader = '"${SNAPS[0]:-$BASE}"'
    return "\n".join([spinning("cache none")(stack.place), f"stack {stack.words}",
                      f"measure alone {WRITER}", "fresh",
                      f"measure both {WRITER} {READER} --filename={reader}", "unstack"]) + "\n"




def backup_cost(mode):
    """Of cowsnap as a part of dm-snapshot's: which part of its rate the writer loses."""
    def cost(values, name):
        stack = f"{name} {mode}"
        return 1 - values["both/writes", stack] / values["alone", stack]
    return lambda values: cost(values, "cowsnap") / cost(values, "dm-snapshot")


BACKUP = Table(
    "backup", "Reading the snapshot while the origin is written",
    "One disk without write cache, 20 virtual seconds: sequential 1 MiB reads of the snapshot (raw: of "
    "the origin) and random 4 KiB writes to the origin.",
    [Row("alone", "writes, nothing beside them"), Row("both/writes", "writes beside the backup"),
     Row("both/backup", "the backup", "MB/s", job=1)],
    [Column(stack.label, backup(stack), stack.words.startswith("cowsnap"))
     for stack in [Stack("raw", "raw"), Stack("dm-thin", "thin 128", "thin")] + FOUR +
     redirected("whole")],
    goals=[Goal(f"what the backup takes of the writer's rate, cowsnap {mode} to dm-snapshot {mode}", .5,
                backup_cost(mode), at_most=True) for mode in "PN"] +
          [Goal(f"{title}, cowsnap R", .95,
                lambda values, name=name: values[name, "cowsnap R"] / values[name, "raw"])
           for title, name in (("writes beside the backup", "both/writes"),
                               ("the backup", "both/backup"))])

# ---- what redirected data costs later -------------------------------------------------

MIXED = "--rw=randrw --rwmixread=80 --bs=4k --size=1g --runtime=15 --time_based"
SETTLED = 10240     # chunks
PERCENT = (1, 5, 20)


def later(stack):
    lines = [spinning("cache none")(stack.place), f"stack {stack.words}"]
    for depth in (1, 32):
        lines += [f"measure mixed-{depth} {MIXED} --iodepth={depth}", "fresh"]
    before = 0
    for percent in PERCENT:
        lines += [f"measure write-{percent} --rw=randwrite --bs=4k --size=128m --iodepth=32 "
                  f"--io_size={(percent - before) * 328 * 4}k --randrepeat=0 --randseed={percent}",
                  f"measure read-{percent} --rw=read --bs=1m --size=128m"]
        before = percent
    if stack.words.startswith("cowsnap_redirect"):
        write = f"--rw=randwrite --bs=4k --size=1g --io_size={SETTLED * 4}k --iodepth=32"
        lines += ["fresh", f"measure write-alive {write}", "timed alive unstack",
                  f"stack {stack.words}", f"measure write-deleted {write}", "dmsetup remove snap0",
                  "dmsetup message origin 0 delete 0", "MADE=(origin)", "timed deleted unstack"]
    else:
        lines.append("unstack")
    return "\n".join(lines) + "\n"


REDIRECTED = Table(
    "redirected", "What redirected writes cost others, and later",
    "One disk without write cache, chunks of 4 KiB. Reads of 1 MiB go over 128 MiB of the origin "
    "of which so much was written before, at random. Settling is that of 40 MiB, written at random "
    "over 1 GiB, with `cowsnap settle` and its buffer of 16 MiB: with the snapshot, or deleted.",
    [Row(f"mixed-{depth}/{what}", f"80 % reads, qd {depth}: {what}", f"{what} io/s")
     for depth in (1, 32) for what in ("reads", "writes")] +
    [Row(f"read-{percent}", f"1 MiB reads of the origin, {percent} % written", "MB/s")
     for percent in PERCENT] +
    [Row(name, f"settling, {title}", "ms", False, scale=1e-6)
     for name, title in (("alive", "with the snapshot"), ("deleted", "snapshot deleted"))],
    [Column(stack.label, later(stack), stack.words.startswith("cowsnap"))
     for stack in [Stack("raw", "raw"), Stack("cowsnap P", "cowsnap P 8")] + redirected("whole")],
    derived=[Derived(f"{name}-rate", f"settling, {title}", "chunks/s",
                     lambda values, stack, name=name: SETTLED / values[name, stack] * 1e3)
             for name, title in (("alive", "with the snapshot"), ("deleted", "snapshot deleted"))],
    goals=[Goal(f"80 % reads, qd {depth}: writes, cowsnap R", 1,
                lambda values, name=f"mixed-{depth}/writes": values[name, "cowsnap R"] /
                values[name, "raw"]) for depth in (1, 32)] +
          [Goal(f"settling, {title}, chunks a second", limit,
                lambda values, name=name: values[f"{name}-rate", "cowsnap R"])
           for name, title, limit in (("alive", "with the snapshot", 280),
                                      ("deleted", "snapshot deleted", 550))])

# ---- settling in use ------------------------------------------------------------------

USER = "--rw=randrw --rwmixread=70 --bs=4k --size=128m --iodepth=1 --time_based"
USERS = (("busy", "a user who never stops", f"{USER} --runtime=10"),
         ("seconds", "a request a second", f"{USER} --runtime=60 --thinktime=1000000"))


def settling(stack):
    """What users of the origin feel of it, who come all the time or each second."""
    lines = [spinning("cache none")(stack.place), f"stack {stack.words}"]
    for settle in ("off", "now", "idle"):
        for name, _, words in USERS:
            if stack.words.startswith("cowsnap_redirect"):
                lines += ["fresh", "dmsetup message origin 0 set settle off",
                          f"measure fill --rw=randwrite --bs=4k --size=1g --io_size={SETTLED * 4}k "
                          "--iodepth=32", f"dmsetup message origin 0 set settle {settle}"]
            elif settle != "off":
                continue
            lines.append(f"measure {name}-{settle} {words}")
    return "\n".join(lines + ["unstack"]) + "\n"


SETTLING = Table(
    "settling", "What users feel of settling",
    "One disk without write cache, chunks of 4 KiB, 40 MiB written at random over 1 GiB and not at "
    "home. Users read (70 %) and write 4 KiB at random, one request at a time, while all of it "
    "stays in the store, is brought home at once, or while the origin is idle.",
    [Row(f"{name}-{settle}/{what}", f"{title}, settle {settle}: {what}", f"{what} io/s")
     for settle in ("off", "now", "idle") for name, title, _ in USERS
     for what in ("reads", "writes")],
    [Column(stack.label, settling(stack), stack.words.startswith("cowsnap"))
     for stack in [Stack("raw", "raw")] + redirected("whole")])

# ---- files: other ways of having snapshots ----------------------------------------------

FILE = "--filename=/mnt/big/test_file.0 --size=256m"
WRITES = f"{FILE} --rw=randwrite --bs=4k --io_size=4m --iodepth=1"


def files(kind, words, clone):
    """A file on a file system, preserved below it or by it."""
    lines = ["ram_disks 1 2600", "fill /dev/ram0 0 512", "spin d0 /dev/ram0 cache none",
             "volume base /dev/mapper/d0 0 1024", "BASE=/dev/mapper/base",
             "stores st /dev/mapper/d0 1024 1500 1", f"file_system {kind} $BASE",
             "mount $BASE /mnt", "test_file /mnt/big 256m", "umount /mnt", f"stack {words}",
             "mount $TARGET /mnt"]
    if clone:
        lines.append("cp --reflink=always /mnt/big/test_file.0 /mnt/big/old")
    return "\n".join(lines + ["sync", f"measure first {WRITES}", "sync", f"measure again {WRITES}",
                              "umount /mnt", "mount $TARGET /mnt",
                              f"measure read {FILE} --rw=read --bs=1m", "umount /mnt"]) + "\n"


FILES = Table(
    "files", "Files: snapshots below the file system and in it",
    "Random 4 KiB writes to a file of 256 MiB, O_DIRECT, one disk without write cache. Reflink: the "
    "file was cloned with cp --reflink before.",
    [Row("first", "written first"), Row("again", "the same again"),
     Row("read", "the whole file then read in 1 MiB", "MB/s")],
    [Column("XFS", files("xfs", "raw", False)),
     Column("XFS on dm-snapshot P", files("xfs", "snapshot P 8", False)),
     Column("XFS on cowsnap P", files("xfs", "cowsnap P 8", False), True),
     Column("XFS reflink", files("xfs", "raw", True)),
     Column("btrfs", files("btrfs", "raw", False)),
     Column("btrfs reflink", files("btrfs", "raw", True))], base="XFS")

# ---- processor and memory -----------------------------------------------------------------


def loading(kind):
    """The same store, closed and opened with more and more in it."""
    # What the RAM disks need for their pages is there before, and not counted.
    lines = ["ram_disks 2 600", "BASE=/dev/ram0", "STORES=(/dev/ram1)", "fill /dev/ram0 0 512",
             "fill /dev/ram1 0 320"]
    if kind == "cowsnap":
        make, table = "stack_cowsnap P 8", "cowsnap /dev/ram0 /dev/ram1 P 8 2 id 0"
    else:
        make, table = "stack_snapshot P 8", "snapshot /dev/ram0 /dev/ram1 P 8"
    lines += [make, "len=$(sectors /dev/ram0)", "figure slab-0 $(slab_bytes)"]
    for thousands in (0, 16, 64):
        if thousands:
            lines += [f"measure fill-{thousands} --rw=randwrite --bs=4k --size=512m "
                      f"--io_size={thousands * 4}m --iodepth=8",
                      f"figure slab-{thousands} $(slab_bytes)", "counters count-" f"{thousands}"]
        lines += ["dmsetup remove origin", "dmsetup remove snap0",
                  f'timed load-{thousands} make_dm snap0 "0 $len {table}"',
                  'make_dm origin "0 $len ' +
                  ("cowsnap-origin /dev/ram0" if kind == "cowsnap" else "snapshot-origin /dev/ram0") +
                  '"']
    return "\n".join(lines + ["dmsetup remove origin", "dmsetup remove snap0"]) + "\n"


SCALE = Table(
    "scale", "Loading and memory",
    "Persistent stores on a RAM disk, 4 KiB chunks copied at random. The time is that of dmsetup create, "
    "in milliseconds of virtual time (a million instructions each); memory is what the kernel's slabs "
    "hold. With 65,536 exceptions, about 1 MiB of cowsnap's memory is cached table blocks. There are "
    "never more than 512 of these (2 MiB).",
    [Row(f"load-{n}", f"opening a store with {n * 1024:,} exceptions", "ms", False, scale=1e-6)
     for n in (0, 16, 64)] +
    [Row(f"slab-{n}", f"slabs with {n * 1024:,} exceptions", "KiB", False, scale=1 / 1024)
     for n in (0, 16, 64)],
    [Column("dm-snapshot P", loading("snapshot")), Column("cowsnap P", loading("cowsnap"), True)],
    base="dm-snapshot P",
    derived=[Derived("memory", "memory of an exception", "bytes", lambda values, stack:
                     (values["slab-64", stack] - values["slab-0", stack]) / 64),
             Derived("load", "opening, of an exception", "instructions", lambda values, stack:
                     (values["load-64", stack] - values["load-0", stack]) / 65536 * 1e6)])


TURNS = range(1, 10)


def two_processors(words):
    """One writer, and two that each have a processor, in turn."""
    once = "--rw=randwrite --bs=4k --size=64m --iodepth=1 --runtime=2 --time_based --norandommap"
    both = ("--numjobs=2 --group_reporting --offset_increment=64m --cpus_allowed=0,1 "
            "--cpus_allowed_policy=split")
    lines = ["ram_disks 2 160", "fill /dev/ram0 0 160", "fill /dev/ram1 0 160", "BASE=/dev/ram0",
             "STORES=(/dev/ram1)", f"stack {words}", "measure copied --rw=write --bs=1m --size=128m"]
    for turn in TURNS:
        lines += [f"measure one-{turn} {once} --cpus_allowed=0", f"measure two-{turn} {once} {both}"]
    return "\n".join(lines) + "\n"


def two_to_one(values, stack):
    return statistics.median(values[f"two-{turn}", stack] / values[f"one-{turn}", stack]
                             for turn in TURNS)


PROCESSORS = Table(
    "processors", "Two processors against one, writes to chunks already copied",
    "In ordinary time, on two emulated processors. These figures do not repeat, and depend on what "
    "else the host does. Only the ratio of two to one matters, and that roughly. The host needs two "
    "idle processors.",
    [Row(f"{name}-{turn}", f"{name}, turn {turn}", ratio=False) for turn in TURNS
     for name in ("one", "two")],
    [Column("raw", two_processors("raw"), cpus=2),
     Column("dm-snapshot P", two_processors("snapshot P 8"), cpus=2),
     Column("cowsnap P", two_processors("cowsnap P 8"), True, cpus=2)],
    derived=[Derived("scaling", "two to one, median", "ratio", two_to_one)],
    goals=[Goal("two processors to one under cowsnap P, of the same on raw", .95,
                lambda values: values["scaling", "cowsnap P"] / values["scaling", "raw"])])

# ---- where the head is ----------------------------------------------------------------------


def head_trace(stack):
    tail = stack.label.endswith("tail")
    lines = ["ram_disks 1 2600", "fill /dev/ram0 0 1024", "spin d0 /dev/ram0 cache none",
             "volume base /dev/mapper/d0 0 1024", "BASE=/dev/mapper/base",
             "stores st /dev/mapper/d0 1024 1500 1"]
    if tail:
        lines.append("echo tail >/sys/module/dm_cowsnap/parameters/kcopyd_requeue")
    return "\n".join(lines + [
        f"stack {stack.words}", "dmsetup message d0 0 trace 30000",
        "measure stream --rw=write --bs=4k --size=32m --direct=0 --ioengine=psync --end_fsync=1",
        "emit trace text </sys/kernel/debug/dm-platter/$(dm_name d0)", "unstack"]) + "\n"


HEAD = Table(
    "head", "Position of the disk's head while a file is written",
    "32 MiB written through the page cache in units of 4 KiB, then synced; one disk without write cache, "
    "store on the same disk, behind the origin.",
    [Row("stream", "sequential writes", "MB/s")],
    [Column(stack.label, head_trace(stack), stack.words.startswith("cowsnap"))
     for stack in [Stack("raw", "raw"), Stack("dm-snapshot P", "snapshot P 8"),
                   Stack("cowsnap P, tail", "cowsnap P 8"),
                   Stack("cowsnap P, head", "cowsnap P 8")]])

ALL = [SLOW_STORE, SNAPSHOTS, DEPTH, DEPTH_LARGE, CHUNK, TRACKER, TRACKER_MEMORY, BACKUP,
       REDIRECTED, SETTLING, FILES, SCALE, PROCESSORS, HEAD]
