# SPDX-License-Identifier: GPL-2.0-only
"""What users reported of LVM's snapshots, each experiment repeated on modelled disks."""

from grid import Stack
from tables import Column, Derived, Goal, Reported, Row, Table

RAW = Stack("raw", "raw")
LINEAR = Stack("dm-linear", "linear")
THIN = Stack("dm-thin", "thin 128")
STOCK = [Stack("dm-snapshot P", "snapshot P 8"), Stack("dm-snapshot N", "snapshot N 8")]
COWSNAP = [Stack("cowsnap P", "cowsnap P 8"), Stack("cowsnap N", "cowsnap N 8")]
REDIRECT = Stack("cowsnap R", "cowsnap_redirect 8")
ALL = [RAW, LINEAR, *STOCK, THIN, *COWSNAP, REDIRECT]


def columns(stacks, before, after):
    """A job for each stack; `before` makes BASE and STORES, `after` measures."""
    return [Column(stack.label, "\n".join([before(stack), f"stack {stack.words}", after(stack),
                                           "unstack"]) + "\n",
                   stack.words.startswith("cowsnap")) for stack in stacks]


def redirect_goal(title, row, limit):
    return Goal(f"{title}, cowsnap R", limit,
                lambda values: values[row, "cowsnap R"] / values[row, "raw"])


def cut(device, origin, store, gap=0):
    """Volumes on one device, the store after the origin."""
    after = origin + gap
    def volumes(stack):
        if stack.words.startswith("thin"):
            stores = [f"volume meta {device} {after} 32",
                      f"volume data {device} {after + 32} {store - 32}",
                      "STORES=(/dev/mapper/meta /dev/mapper/data)"]
        else:
            stores = [f"stores st {device} {after} {store} 1"]
        return [f"volume base {device} 0 {origin}", "BASE=/dev/mapper/base"] + stores
    return volumes


# ---- A ----------------------------------------------------------------------------

def raid_size(stack):
    """MiB of each of the six disks, and between origin and store."""
    return (90000, 259000) if stack.place == "far" else (768, 0)


def raid_with_files(stack):
    disk, gap = raid_size(stack)
    volumes = cut("/dev/md0", 768, 1400, gap)(stack)
    return "\n".join([f"raid10 {disk} 768 'cache none'"] + volumes + [
        "file_system ext4 /dev/mapper/base", "mount /dev/mapper/base /mnt",
        "test_file /mnt/big 400m", "test_file /mnt/small 32m", "umount /mnt"])


# Of a time stamp in seconds, as file systems had it then, an fsync mostly has nothing to write.
SYNC_DATA = "--file-fsync-mode=fdatasync"


def database(_stack):
    lines = ["mount $TARGET /mnt",
             "sysbench_file direct /mnt/big 400M 20 --file-extra-flags=direct --file-fsync-freq=0"]
    again = ["umount /mnt", "fresh", "mount $TARGET /mnt"]
    lines += again + [f"sysbench_file settle-{i} /mnt/small 32M 30 --file-extra-flags=direct "
                      f"--file-fsync-freq=0 --rand-seed={i}" for i in range(1, 7)]
    lines += again + [f"sysbench_file fsync /mnt/big 400M 20 --file-fsync-all=on {SYNC_DATA}"]
    lines += again + [f"sysbench_file fsync-100 /mnt/big 400M 20 --file-fsync-freq=100 {SYNC_DATA}"]
    return "\n".join(lines + ["umount /mnt"])


FAR = [Stack("dm-snapshot P, far", "snapshot P 8", "far"),
       Stack("cowsnap P, far", "cowsnap P 8", "far")]

A = Table(
    "a-database", "A. Database on RAID10 of six disks, no write cache",
    "sysbench fileio, one thread, 16 KiB, files on ext4, 20 virtual seconds for each run. Six runs "
    "of 30 s over a file of 32 MB stand for the reported minutes over 64 MB. fsync is fdatasync: "
    "when the report was written, file systems kept times in seconds, so most fsyncs had no time "
    "stamp to write. \"Far\": the store is at the other end of 90 GB disks instead of next to the "
    "origin, so that seeks between them take 7 ms instead of 2 ms.",
    [Row("direct", "random writes, O_DIRECT")] +
    [Row(f"settle-{i}", f"a file of 32 MB, run {i}") for i in range(1, 7)] +
    [Row("fsync", "random writes, fsync after each"),
     Row("fsync-100", "random writes, fsync every 100")],
    columns(ALL + FAR, raid_with_files, database), memory="6G",
    goals=[Goal(f"small file, third run, {mode}", .95,
                lambda values, mode=mode: values["settle-3", mode] / values["settle-3", "raw"])
           for mode in ("cowsnap P", "cowsnap N")] +
          [redirect_goal("random writes, O_DIRECT", "direct", 1.5)],
    reports=[Reported(title + far, row, ratio, f"dm-snapshot P{far}", f"cowsnap P{far}")
             for title, row, ratio in (("random writes, O_DIRECT", "direct", 25 / 159),
                                       ("small file, first run", "settle-1", 33 / 200),
                                       ("third run", "settle-3", 71 / 200),
                                       ("sixth run", "settle-6", 164 / 200),
                                       ("fsync after each", "fsync", 32 / 162),
                                       ("fsync every 100", "fsync-100", 240 / 740))
             for far in ("", ", far")],
    note="The place of the store decides. With the store next to the origin, a first write costs "
    "dm-snapshot four times as much as a plain one; at the other end of the disk, six times, as "
    "reported.",
    reported="| | no snapshot | dm-snapshot | ratio |\n|---|---|---|---|\n"
    "| random writes, O_DIRECT | 159 | 25 | .16 |\n"
    "| a file of 64 MB, six runs | 200 | 33, 46, 71, 124, 158, 164 | .17 to .82 |\n"
    "| fsync after each | 162 | 32 | .20 |\n| fsync every 100 | 740 | 240 | .32 |\n")

# ---- B ----------------------------------------------------------------------------


def raid(cache, volumes):
    def before(stack):
        return "\n".join([f"raid10 768 768 '{cache}'"] + volumes(stack))
    return before


MIX = ("measure mix --rw=randrw --rwmixread=80 --bs=4k --size=700m --numjobs=100 --group_reporting"
       " --ioengine=psync --ramp_time=5 --runtime=30 --time_based")

B = Table(
    "b-mix", "B. 100 threads, 80 % reads, RAID10 of six disks with a battery-backed cache",
    "fio, random 4 KiB, 30 virtual seconds after 5 that fill the caches of 2 MiB for each disk.",
    [Row("mix/reads", "reads", "reads io/s"), Row("mix/writes", "writes", "writes io/s"),
     Row("mix/latency", "mean latency of a write", "writes ms", ratio=False)],
    columns(ALL, raid("cache battery cache_blocks 512", cut("/dev/md0", 768, 1400)), lambda stack: MIX),
    memory="6G", goals=[redirect_goal("writes", "mix/writes", 1)],
    reports=[Reported("reads", "mix/reads", 855 / 1340),
             Reported("writes", "mix/writes", 214 / 336)],
    reported="1340 reads and 336 writes a second without a snapshot, 855 and 214 with dm-snapshot "
    "(.64). The latency of a write rises from 0.1 ms to 300 ms.\n")

# ---- C ----------------------------------------------------------------------------

SIZES = (10, 100)
MOST_WAITS = 40                 # megabytes in memory, before those who write have to wait
MOMENTS = (0, .13, .37, .71)    # seconds after the file system was mounted


def one_disk_with_ext4(stack, cache="none"):
    device = "d1" if stack.place == "other" else "d0"
    lines = ["ram_disks 2 2200", "fill /dev/ram0 0 512", f"spin d0 /dev/ram0 cache {cache}",
             f"spin d1 /dev/ram1 cache {cache}"]
    volumes = cut(f"/dev/mapper/{device}", 512, 800)(stack)
    if stack.words.startswith("thin"):
        volumes = cut("/dev/mapper/d0", 512, 1600)(stack)
    elif stack.words.endswith(" 2"):
        volumes[-1] = "stores st /dev/mapper/d0 512 800 2"
    volumes[0] = "volume base /dev/mapper/d0 0 512"
    if "1 MiB" in stack.label:
        volumes.append("echo 1024 >/sys/module/dm_cowsnap/parameters/kcopyd_budget")
    return "\n".join(lines + volumes + ["file_system ext4 /dev/mapper/base"])


def copies(stack):
    # Of what dd writes, so much may wait in memory: more than 10 MB, less than 100.
    head = [f"echo {MOST_WAITS << 20} >/proc/sys/vm/dirty_bytes"]
    if stack.label.endswith("tail"):
        head += ["echo tail >/sys/module/dm_cowsnap/parameters/kcopyd_requeue"]
    lines = []
    again = ["umount /mnt", "fresh", "mount $TARGET /mnt"]
    for size in SIZES:
        # Where its last write falls in what a disk does in turn is chance: a tenth to either side.
        for moment in MOMENTS if size > MOST_WAITS else MOMENTS[:1]:
            for sync, create, update in (("", "", " conv=notrunc"),
                                         ("-fsync", " conv=fsync", " conv=notrunc,fsync")):
                lines += ["mount $TARGET /mnt", f"sleep {moment}",
                          f"dd_file create{sync}-{size} {size}{create}", "sync", *again,
                          f"sleep {moment}", f"dd_file update{sync}-{size} {size}{update}",
                          "rm /mnt/file", "umount /mnt", "fresh"]
    return "\n".join(head + lines)


# As reported: 8 KiB, and 512 KiB.
C_STACKS = [RAW, LINEAR, Stack("dm-snapshot P", "snapshot P 16"),
            Stack("dm-snapshot N", "snapshot N 16"), Stack("cowsnap P, 1 MiB, tail", "cowsnap P 16"),
            Stack("cowsnap P, 1 MiB, head", "cowsnap P 16"),
            Stack("cowsnap P, head", "cowsnap P 16"), Stack("cowsnap N", "cowsnap N 16"),
            Stack("dm-snapshot P 512K", "snapshot P 1024"),
            Stack("cowsnap P 512K, head", "cowsnap P 1024"),
            Stack("dm-snapshot P, 2 disks", "snapshot P 16", "other"),
            Stack("dm-snapshot P 512K, 2 disks", "snapshot P 1024", "other"),
            Stack("cowsnap P, 2 disks, head", "cowsnap P 16", "other"),
            Stack("cowsnap P 512K, 2 disks, head", "cowsnap P 1024", "other")]



def dd_reports():
    """Of 1000 MB. dm-snapshot has kcopyd put back at the head what it could not serve, in all kernels of today."""
    found = []
    for row, title, plain, tail, head in (
            ("create-100", "create, dd", 123, 11.8, 46.2),
            ("create-fsync-100", "create, dd+fsync", 76.7, 8.1, 29.2),
            ("update-100", "update, dd", 124, 12.8, 37.8),
            ("update-fsync-100", "update, dd+fsync", 77.8, 8.1, 26.9)):
        found += [Reported(f"{title}, tail", row, tail / plain, "", "cowsnap P, 1 MiB, tail"),
                  Reported(f"{title}, head", row, head / plain, "dm-snapshot P", "cowsnap P, head")]
    for places, small, large in (("", 9.6, 8.4), (", 2 disks", 17.2, 14.5)):
        for chunk, rate in (("", small), (" 512K", large)):
            found.append(Reported(f"1000 MiB, chunks of{chunk or ' 8K'}{places}", "create-fsync-100",
                                  rate / 45.4, f"dm-snapshot P{chunk}{places}",
                                  f"cowsnap P{chunk}{places}, head"))
    return found


C = Table(
    "c-dd", "C. dd to the origin, with and without fsync",
    "dd bs=4096 into a file on ext4, one disk without write cache, chunks of 8 KiB unless another "
    "size is named. The reports have dd write zeroes; here it writes random data, since cowsnap writes "
    "no copy of a chunk of zeroes. The page cache holds up to 40 MB of dirty data, so 10 MB stand for "
    "the reported 10 and 100 MB, and 100 MB for 1000 MB. Of 100 MB it is the mean of four runs that begin "
    "at different moments. \"1 MiB\": the copy engine has as many pages "
    "as that of dm-snapshot had at the time (kcopyd_budget=1024), and requeues at the head or at the "
    "tail.",
    [Row(f"{what}{sync}-{size}", f"{what}, dd{sync.replace('-', '+')}, {size} MB", "MB/s")
     for what in ("create", "update") for sync in ("", "-fsync") for size in SIZES],
    columns(C_STACKS, one_disk_with_ext4, copies), memory="6G", reports=dd_reports(),
    note="When pages are short, an engine that requeues at the tail copies in an order unrelated to "
    "that of the writes, and loses about a third of its rate to seeks. In the report it lost three "
    "quarters: every chunk was a job of its own then, whereas neighbouring chunks are one job here.",
    reported="| 10 / 100 / 1000 MB | plain | dm-snapshot, requeued at the tail | at the head |\n"
    "|---|---|---|---|\n| create, dd | 555 / 609 / 123 | 511 / 611 / 11.8 | 537 / 589 / 46.2 |\n"
    "| create, dd+fsync | 114 / 72.8 / 76.7 | 7.1 / 6.8 / 8.1 | 31.6 / 29.2 / 29.2 |\n"
    "| update, dd | 152 / 1267 / 124 | 432 / 917 / 12.8 | 488 / 898 / 37.8 |\n"
    "| update, dd+fsync | 131 / 77.8 / 77.8 | 7.8 / 7.4 / 8.1 | 34.1 / 30.1 / 26.9 |\n")

# ---- D ----------------------------------------------------------------------------


def with_neighbour(stack):
    disk, gap = raid_size(stack)
    return "\n".join([f"raid10 {disk} 640 'cache battery cache_blocks 1024'"] +
                     cut("/dev/md0", 640, 1200, gap)(stack) + ["volume other /dev/md0 1900 256"])


SYNC = "--bs=4k --size=32m --ioengine=psync --sync=1"
TIMED = "--ramp_time=20 --runtime=160 --time_based"
OTHER = f"--filename=/dev/mapper/other --rw=randrw --bs=4k --size=256m {TIMED}"
BOTH = f"--rw=randwrite --bs=4k --size=384m --iodepth=4 {TIMED} --name=other {OTHER}"


def leach(stack):
    """
    The counters begin anew with each measure; the cache is full by then. What takes a quarter of a
    second is repeated, so that p99.9 does not stand on eight requests.
    """
    lines = [f"measure warm --rw=write {SYNC} --offset=384m", f"measure first --rw=write {SYNC}",
             f"measure again --rw=write {SYNC} --loops=8",
             "measure read --rw=read --bs=4k --size=32m --loops=8"]
    if stack.words == "raw":
        lines.append(f"measure alone {OTHER}")
    lines += ["fresh", f"measure beside {BOTH}"]
    if stack.words.startswith("cowsnap"):
        lines += ["fresh", "dmsetup message snap0 0 set throttle 20", f"measure throttled {BOTH}"]
    return "\n".join(lines)


def throttle_goals():
    goals = []
    for mode in ("cowsnap P", "cowsnap N"):
        goals += [
            Goal(f"the neighbour of {mode} at throttle 20, of itself alone", .8,
                 lambda values, mode=mode: values["throttled/other", mode] /
                 values["alone/other", "raw"]),
            Goal(f"the writer to {mode} at throttle 20, of itself without", .25,
                 lambda values, mode=mode: values["throttled/origin", mode] /
                 values["beside/origin", mode])]
    return goals


D = Table(
    "d-hardware-raid", "D. Six disks behind a battery-backed cache: synchronous writers, neighbours",
    "RAID10, each disk with 4 MiB of cache that gathers writes. The neighbour reads and writes 4 KiB "
    "at random in a volume of its own while the origin is written at random, queue depth 4, for 160 "
    "virtual seconds after 20 that fill the caches. \"Far\" as in A.",
    [Row("first", "sequential 4K O_SYNC writes"), Row("again", "the same again"),
     Row("read", "sequential 4K reads"), Row("alone/other", "the neighbour alone"),
     Row("beside/other", "the neighbour beside the writer", job=1),
     Row("beside/origin", "the writer beside it"),
     Row("throttled/other", "the neighbour, throttle 20", job=1),
     Row("throttled/origin", "the writer, throttle 20")],
    columns(ALL + FAR, with_neighbour, leach), memory="6G",
    goals=throttle_goals() + [redirect_goal("sequential 4K O_SYNC writes", "first", .75)],
    derived=[Derived(f"kept-{name}", f"what the neighbour keeps{how}", "ratio",
                     lambda values, stack, name=name: values[f"{name}/other", stack] /
                     values["alone/other", "raw"], name)
             for name, how in (("beside", ""), ("throttled", " at throttle 20"))],
    reports=[Reported("sequential synchronous writes", "first", .10),
             Reported("sequential synchronous writes, far", "first", .10, "dm-snapshot P, far",
                      "cowsnap P, far"),
             Reported("the same again", "again", .85), Reported("reads", "read", .95)],
    reported="Synchronous sequential writes are about 90 % slower than without a snapshot; to chunks "
    "already copied, 15 %; reads, 5 %. Every other volume on the disks becomes slower.\n")

# ---- E ----------------------------------------------------------------------------

SSDS = 8


def solid_disks(stack):
    """Eight devices of 200 MB/s, one after the other or in stripes of 256 KiB."""
    size = 512
    lines = [f"null_disk nullb{i} {size} 80000 200" for i in range(SSDS)]
    devices = " ".join(f"/dev/nullb{i} 0" for i in range(SSDS))
    lengths = SSDS * size * 2048
    if "striped" in stack.label:
        lines.append(f'make_dm ssds "0 {lengths} striped {SSDS} 512 {devices}"')
    else:
        lines.append(f"for i in {{0..{SSDS - 1}}}; do echo $((i * {size * 2048})) {size * 2048} "
                     "linear /dev/nullb$i 0; done | dmsetup create ssds")
    # What the fill writes is not to count.
    count = "for switch in /sys/block/nullb*/queue/iostats; do echo {} >$switch; done"
    lines += [count.format(0), "fill /dev/mapper/ssds 0 512", count.format(1)]
    return "\n".join(lines + cut("/dev/mapper/ssds", 512, 1024)(stack))


def bulk(_stack):
    """The phases of bonnie++, which by itself takes less than its clock can tell here."""
    words = "--bs=1m --iodepth=4 --size=192m"
    return "\n".join([f"measure write --rw=write {words}", f"measure rewrite --rw=rw {words}",
                      f"measure read --rw=read {words}",
                      "measure seeks --rw=randread --bs=4k --size=512m --io_size=4m", "disk_traffic"])


E_STACKS = [Stack(f"{name}, {way}", words)
            for way in ("linear", "striped")
            for name, words in (("raw", "raw"), ("dm-snapshot P", "snapshot P 8"),
                                ("dm-snapshot P 256K", "snapshot P 512"),
                                ("cowsnap P", "cowsnap P 8"), ("cowsnap P 256K", "cowsnap P 512"))]

E = Table(
    "e-striped", "E. Eight solid-state disks, linear or in stripes of 256 KiB",
    "fio with the phases of bonnie++: 192 MiB in units of 1 MiB, queue depth 4, random reads of 4 KiB. "
    "Each disk takes 80 µs for a request and transfers 200 MB/s. Ratios are to raw, linear.",
    [Row("write", "write (first)", "MB/s"), Row("rewrite", "read and write again", "MB/s"),
     Row("read", "read", "MB/s"), Row("seeks", "random reads", "io/s"),
     Row("busiest", "by the busiest disk", "MB written", False),
     Row("least", "by the least busy disk", "MB written", False)],
    columns(E_STACKS, solid_disks, bulk), base="raw, linear", memory="4G",
    reports=[Reported(f"{row}, striped without a snapshot", row, striped / linear, "raw, striped",
                      "cowsnap P, striped")
             for row, linear, striped in (("write", 455, 1181), ("rewrite", 239, 836),
                                          ("read", 510, 1983), ("seeks", 322, 337))],
    note="The modelled disks stripe without loss; the reported ones reached a third to a half of that. "
    "Striping hardly helps dm-snapshot's first writes, because its copies run one after the other.",
    reported="Without snapshots, linear: write 455 MB/s, rewrite 239 MB/s, read 510 MB/s, 322 seeks a "
    "second. Striped over 8 disks: 1181, 836, 1983, 337.\n")

# ---- F ----------------------------------------------------------------------------


def small_files(_stack):
    return "\n".join(["mount $TARGET /mnt", "create_files files 1500", "umount /mnt"])


F = Table(
    "f-files", "F. Creating files",
    "1500 files of 4 KiB in one directory of ext4, each with an fsync, then a sync; one disk with a "
    "battery-backed cache.",
    [Row("files", "files created", "1/s")],
    columns(ALL + [Stack("dm-snapshot P ×2", "snapshot P 8 2"), Stack("cowsnap P ×2", "cowsnap P 8 2")],
            lambda stack: one_disk_with_ext4(stack, "battery"), small_files), memory="6G",
    goals=[redirect_goal("files created", "files", .6)],
    reports=[Reported("one snapshot", "files", 313 / 9236),
             Reported("two", "files", 199 / 9236, "dm-snapshot P ×2", "cowsnap P ×2")],
    reported="9236 a second without a snapshot, 313 with one, 199 with two.\n")

TABLES = [A, B, C, D, E, F]
