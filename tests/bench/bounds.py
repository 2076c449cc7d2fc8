# SPDX-License-Identifier: GPL-2.0-only
"""Cells in which cowsnap stays behind dm-snapshot for a reason that was measured."""

# (case, test, stack, what): the reason, a sentence for the report. What: rate, p50, p99 or p99.9.
BOUNDS = {}


def bound(case, tests, stacks, whats, reason):
    """The same reason for several figures."""
    BOUNDS.update({(case, test, stack, what): reason
                   for test in tests for stack in stacks for what in whats})


bound("e-striped", ["write"], ["cowsnap P, linear", "cowsnap P 256K, linear"], ["p95"],
      "null_blk gives out its 200 MB/s every 20 ms. A write of 1 MiB, its copy and what is copied ahead "
      "are large requests, and each waits for one of these moments: writes take 40, 60 or 80 ms. The "
      "rate is that of dm-snapshot, whose small requests use up what is left of each 20 ms.")
for place in ("battery", "battery-lazy"):
    bound(place, ["sync"], ["cowsnap P", "cowsnap N"], ["p99.9"],
          "Copying ahead makes one write in some hundreds wait for the transfer of whole megabytes, "
          "three for each that is written; the others take 0.03 ms. dm-snapshot has each write wait "
          "for its own copy.")
bound("battery-lazy", ["large"], ["cowsnap P"], ["rate", "p50", "p95"],
      "What dm-snapshot has depends on where the writes begin: 33 MiB further on it has 23.4 MB/s, and "
      "half of the writes take 43.3 ms, 95 % at most 57.4 (here, measured alone: 28.2; 32.6 and 40.1). P "
      "has 28.5 MB/s, 36.4 and 60.0 ms in both places.")
bound("b-mix", ["mix/writes", "mix/latency"], ["cowsnap N"], ["p99", "p99.9"],
      "A first write waits for a read of home. With 100 threads the slowest reads take 510 ms without a "
      "snapshot, too, since each disk serves the nearest first. dm-snapshot's threads wait in their "
      "writes, half of which take .19 s, and leave fewer reads to choose from. 50 and 54 threads of N do "
      "as much as its 100, 307 and 311 writes a second: p99 of the writes is 213 and 259 ms (dm-snapshot "
      "350), p99.9 396 and 430 (401).")
bound("backup", ["both/backup"], ["cowsnap P", "cowsnap N"], ["p99"],
      "A read that lets a write pass waits for it. With nothing beside them 99 % of P's writes take 32 ms at "
      "most, of N's 21, and dm-snapshot's 35, and a read of 8 ms is under way before, and comes after. "
      "dm-snapshot's reads let nothing pass: half of its users' writes take 81 ms (N 57), and cowsnap's 26 "
      "and 18. At dm-snapshot's pace p99 is 58 ms, with 55 and 50 MB/s. Where cowsnap's reads do not rest "
      "either (read_share=100), and there are as many as with dm-snapshot, p99 is 37.0 and 41.7 ms, half of "
      "the reads take 16.3 and 16.7 ms (dm-snapshot 23.2 and 22.2), and half of the writes 44 and 23 (81 "
      "and 57).")
for test, what, stacks in (("first", "p99.9", ["cowsnap N"]),
                           ("first/slowest", "rate", ["cowsnap P", "cowsnap N"])):
    bound("create", [test], stacks, [what],
          "The slowest writes are those that a suspension of the origin finds under way, and the "
          "suspension is device-mapper's own, of 13 to 41 ms with any target: which it is depends on the "
          "tick at which it begins. With 16 and 26 snapshots made at odd moments dm-snapshot N has p99.9 "
          "of 21.9 and 9.1 ms, and N 8.8 and 21.4; the slowest writes take 25 and 32 ms, and 32 and 32.")
bound("battery-lazy", ["random-1"], ["cowsnap N"], ["p99.9"],
      "It is a matter of the seed: with two others N has 20.3 and 18.7 ms, dm-snapshot 19.8 and 18.7. The "
      "undo buffer rests once it was written to the full cache: that takes one write of some thousands.")
bound("merge-disk", ["before/slowest"], ["cowsnap P"], ["rate"],
      "One of 400 first writes, of which 99 % take 33.2 ms at most (dm-snapshot 34.3): it reads what is "
      "around it while superblocks name new table blocks. With three other seeds it takes 46.2, 35.5 and "
      "36.7 ms, and dm-snapshot's slowest 34.0, 34.1 and 34.1.")
bound("depths-large", ["random-512"], ["cowsnap P, 2 disks"], ["p99"],
      "It is a matter of the seed: at dm-snapshot's pace P has 202 ms here, and 188, 184, 167, 188, 188 and "
      "190 with six others; dm-snapshot has 192, 188, 192, 188, 188 and 196 with these. Half of P's writes "
      "take 98 ms there, of dm-snapshot's 167.")
bound("d-hardware-raid", ["kept-beside"], ["cowsnap P, far"], ["rate"],
      "At dm-snapshot's pace the neighbour has .979 of what it has beside dm-snapshot, and .983 with each of "
      "two other seeds; the limit is .98. Half of P's writes take at most 7.5 ms there, of dm-snapshot's "
      "11.3.")
bound("ssd", ["again"], ["cowsnap P"], ["p99"],
      "41 of 4,096 writes are slower than that, and 47 interrupts of the timer come meanwhile: it depends on "
      "where in a write they fall. Where a request takes 80.3 µs instead of 80, p99 of P is .0947 and that "
      "of dm-snapshot .0957 ms; with 80.7 µs .0876 and .0865; with a tick that goes on while the processor "
      "idles .0896 and .0865.")
bound("mixed-ssd", ["mix/reads"], ["cowsnap P"], ["p50"],
      "64 requests are in flight: reads are quicker only where writes are slower. dm-snapshot has 34 "
      "reads in flight at 24,692 a second, since its writes take 2.67 ms; P has 41 at 26,400, and its "
      "writes take 1.89 ms.")
bound("memory", ["snap-read"], ["cowsnap P 128"], ["rate"],
      "A chunk of 64 KiB takes 29.5 µs in virtual time, and dm-snapshot 21.4: the 8.2 between them are the "
      "8,192 instructions of crc32 that verify it, eight bytes each. dm-snapshot verifies nothing. On "
      "dm-integrity, which does (its store; crc32c, blocks of 4 KiB, no journal), it has 1,266 MB/s. P has "
      "2,216 without that.")
