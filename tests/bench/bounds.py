# SPDX-License-Identifier: GPL-2.0-only
"""Cells in which cowsnap stays behind dm-snapshot for a reason that was measured."""

# (case, test, stack, what): the reason, a sentence for the report. What: rate, p50, p99 or p99.9.
BOUNDS = {}


def bound(case, tests, stacks, whats, reason):
    """The same reason for several figures."""
    BOUNDS.update({(case, test, stack, what): reason
                   for test in tests for stack in stacks for what in whats})


for place, name in (("disk", "random-32"), ("depths", "depth-32")):
    bound(place, [name], ["cowsnap N"], ["p99", "p99.9"],
          "The disk takes the nearest of 32 requests and leaves one behind for up to 500 ms: raw's "
          "one trip takes 413 ms at p99. N makes two such trips for a write with the queue always "
          "full, which is why it has .45 of raw's rate where dm-snapshot has .35.")
for place in ("battery", "battery-lazy"):
    bound(place, ["sync"], ["cowsnap P", "cowsnap N"], ["p99.9"],
          "Copying ahead makes one write in some hundreds wait for the transfer of whole megabytes, "
          "three for each that is written; the others take 0.03 ms. dm-snapshot has each write wait "
          "for its own copy.")
bound("disk", ["large"], ["cowsnap P"], ["p99", "p99.9"],
      "A window is copied at once, and one write waits for it. With windows of 4 and 2 MiB instead "
      "of 8 p99 is 116 ms instead of 133, and the rate .38 and .37 of raw instead of .41.")
