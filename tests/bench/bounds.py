# SPDX-License-Identifier: GPL-2.0-only
"""Cells in which cowsnap stays behind dm-snapshot for a reason that was measured."""

# (case, test, stack, what): the reason, a sentence for the report. What: rate, p50, p99 or p99.9.
BOUNDS = {}
