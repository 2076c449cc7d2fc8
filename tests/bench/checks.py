# SPDX-License-Identifier: GPL-2.0-only
"""A case that compares the modelled disk with real disks."""

from dataclasses import dataclass

import results
from machine import Job

# A whole disk of 500 GB, nothing of which is in memory before it is written.
WHOLE = "ram_disks 1 476837"


@dataclass(frozen=True)
class Range:
    """One run of fio on a disk, and where the figure of a real disk lies."""

    name: str
    title: str
    disk: str
    words: str
    unit: str
    low: float
    high: float
    source: str


WHOLE_RANDOM = "--bs=4k --size=100% --norandommap --io_size="
RANGES = [
    Range("whole-1", "random 4K reads over the whole disk, qd 1", "cache none",
          f"--rw=randread {WHOLE_RANDOM}6m --iodepth=1", "io/s", 75, 100,
          "the usual figure for 7200 rpm SATA disks"),
    Range("whole-32", "the same, qd 32", "cache none",
          f"--rw=randread {WHOLE_RANDOM}12m --iodepth=32", "io/s", 120, 220,
          "deep queues gain nearly 100 % on such disks"),
    Range("near-1", "random 4K writes in 1 GiB, qd 1", "cache none",
          "--rw=randwrite --bs=4k --size=1g --io_size=6m --iodepth=1", "io/s", 145, 190,
          "half a rotation (4.16 ms) and a seek of 1 to 2.5 ms"),
    Range("near-32", "the same, qd 32", "cache none",
          "--rw=randwrite --bs=4k --size=1g --io_size=12m --iodepth=32", "io/s", 300, 550,
          "the disk serves requests first that need little seek and rotation"),
    Range("sync", "sequential 4K O_SYNC writes", "cache none",
          "--rw=write --bs=4k --size=8m --ioengine=psync --sync=1", "io/s", 115, 120,
          "one rotation each: 120 a second, less the host's time"),
    Range("stream", "sequential 1M writes, qd 4", "cache none",
          "--rw=write --bs=1m --size=256m --iodepth=4", "MB/s, qd 4", 110, 140,
          "data sheets, 500 GB on a platter: 125 to 138 MB/s on the outer tracks"),
    Range("skew", "the same, where a track begins 384 sectors after the end of the last",
          "cache none skew 384", "--rw=write --bs=1m --size=256m --iodepth=4", "MB/s, qd 4", 103,
          106, "125.8 MB/s · 2048 / (2048 + 384)"),
    Range("next-track", "4K writes, each 384 sectors behind the last: no track costs a rotation",
          "cache none skew 384", "--rw=write:188k --bs=4k --size=200m --io_size=4m --ioengine=psync",
          "io/s", 500, 560, "1.56 ms each, and another 1.56 at the end of a track"),
    Range("jitter", "sequential 4K O_SYNC writes, battery-backed cache, up to 1 ms from the host",
          "cache battery jitter_us 1000",
          "--rw=write --bs=4k --size=4m --ioengine=psync --sync=1", "io/s", 1750, 2000,
          "500 µs each on average, and what a write takes otherwise"),
    Range("read-ahead", "sequential 4K reads, qd 1", "cache none",
          "--rw=read --bs=4k --size=64m --iodepth=1", "MB/s", 60, 140,
          "the disk reads ahead"),
    Range("battery", "sequential 4K O_SYNC writes, battery-backed cache", "cache battery",
          "--rw=write --bs=4k --size=256m --ioengine=psync --sync=1", "io/s", 25000, 36000,
          "the rate of the media: 125 MB/s in units of 4 KiB"),
    Range("volatile", "random 4K writes with an fsync each, volatile cache", "cache volatile",
          "--rw=randwrite --bs=4k --size=1g --io_size=4m --fsync=1 --ioengine=psync", "io/s",
          120, 190, "a flush that is carried out costs as much as having no cache"),
]


class DiskModel:
    """Runs each range on a disk of its own; outside of it, the case fails."""

    name = "disk-model"
    title = "The modelled disk and real ones"
    text = ("dm-platter with its default parameters ([tests/disk](../tests/disk/README.md)), 500 GB. "
            "The ranges come from data sheets and measurements of 7200 rpm SATA disks.")

    def __init__(self):
        self.ranges = RANGES

    def select(self, _words):
        return self

    def narrow(self, labels):
        self.ranges = [one for one in RANGES if one.name in labels]

    def jobs(self):
        return {one.name: Job(f"{self.name}: {one.name}", "\n".join([
            ". /guest.sh", WHOLE, f"spin d0 /dev/ram0 {one.disk}", "TARGET=/dev/mapper/d0",
            f"measure {one.name} {one.words}"]) + "\n") for one in self.ranges}

    def figures(self, jobs):
        found = []
        for one in self.ranges:
            unit = one.unit.split(",")[0]
            value = results.rate(jobs[one.name], one.name, unit)
            if one.unit != unit:
                value = results.fio_rate(jobs[one.name], one.name)
            found.append({"test": one.name, "value": value, "unit": unit, "low": one.low,
                          "high": one.high, "status": results.status(jobs[one.name], one.name)})
        return found

    def reached(self, _figures):
        return []

    def markdown(self, figures):
        lines = ["| | measured | real disks | why |", "|---|---|---|---|"]
        for one, found in zip(self.ranges, figures):
            lines.append(f"| {one.title} | {found['value']:,.0f} {found['unit']} | "
                         f"{one.low:,} – {one.high:,} | {one.source} |")
        return "\n".join(lines) + "\n"

    def failures(self, figures):
        return [f"{found['test']}: {found['value']:.1f} is not within {found['low']} to "
                f"{found['high']}" for found in figures
                if not found["low"] <= found["value"] <= found["high"]]
