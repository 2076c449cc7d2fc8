# SPDX-License-Identifier: GPL-2.0-only
"""Requests at dm-snapshot's pace.

A queue that is always full keeps a quick stack as busy as a slow one. If cowsnap does more in a
second than dm-snapshot and its slowest requests take longer, both may be for the same reason. So
these runs are made once more with fio held to the rate that dm-snapshot has: users who ask no more
of cowsnap than dm-snapshot can do. What is still slower then is slower for another reason.

A merge that is quicker than dm-snapshot's, and beside which writes are slower, is run once more
with a throttle that leaves it about dm-snapshot's rate.
"""

import math
import re
from dataclasses import replace

import against
import results

# Below that, it is no more work that makes the difference.
MORE = 1.03

# The merge of life.py that has writes beside it, and these.
MERGE = "both", "figure"
BESIDE_MERGE = "during"
# Held to a rate, or only beside something that is.
AS_IT_IS = ""
# The throttle is set once there is something that merges.
THROTTLED = """(
until dmsetup table origin 2>/dev/null | grep -q merge; do sleep 0.001; done
dmsetup message origin 0 set throttle {share}
) &
"""


def rate_words(job, name):
    """For fio: the rate that the first job of a run had, each of its threads."""
    report = results.fio(job, name)
    threads = int(report["job options"].get("numjobs", 1))
    rates = [math.ceil(report[what]["iops"] / threads) for what in ("read", "write")]
    return "--rate_iops={},{}".format(*(rate or "" for rate in rates))


def done(job, name):
    """Requests a second of the first job of a run."""
    report = results.fio(job, name)
    return report["read"]["iops"] + report["write"]["iops"]


def run_of(test):
    """Rows of one run are named after it."""
    return test.split("/")[0]


def of_others(case):
    """{test: run}: what is left to somebody else, while the first job of a run writes."""
    found = {row.name: run_of(row.name) for row in getattr(case, "rows", []) if row.job}
    found.update({row.name: row.beside for row in getattr(case, "derived", []) if row.beside})
    return found


def merge_share(job, stock):
    """The percentage for a throttle that makes a merge beside writes as slow as dm-snapshot's, or
    None where there is none, or it is no quicker."""
    if MERGE not in stock.results:
        return None
    ours, theirs = float(job.results[MERGE]), float(stock.results[MERGE])
    return math.ceil(100 * theirs / ours) if ours > theirs * MORE else None


def runs_of(case, jobs):
    """{stack: {run: words for fio}} of what is slower than dm-snapshot's and does more."""
    found, others = {}, of_others(case)
    for one in against.figures_of(case.name, case.figures(jobs)):
        if not (one.late() and (one.is_time() or one.test in others)):
            continue
        name, stock = others.get(one.test, run_of(one.test)), jobs[one.stock]
        share = merge_share(jobs[one.stack], stock)
        if name == BESIDE_MERGE and share:
            found.setdefault(one.stack, {}).update({MERGE[0]: share, name: AS_IT_IS})
        if (name, "fio") in stock.results and done(jobs[one.stack], name) > done(stock, name) * MORE:
            found.setdefault(one.stack, {})[name] = rate_words(stock, name)
    return found


def with_pace(script, runs):
    """The job's script, in which these runs of fio, and merges, are held to their rates."""
    for name, words in runs.items():
        if isinstance(words, int):      # the share of a merge; a run of fio may be called the same
            script = script.replace(f"merging {name} ", THROTTLED.format(share=words) +
                                    f"merging {name} ")
            continue
        script = re.sub(rf"^((?:measure|writer) {re.escape(name)})(?= )", rf"\1 {words}", script,
                        flags=re.M)
    return script


def jobs_of(case, jobs):
    """{stack: job}: the jobs that are to be run once more."""
    return {stack: replace(jobs[stack], name=f"{jobs[stack].name}, paced", results={}, seconds=0,
                           kept=False, script=with_pace(jobs[stack].script, runs))
            for stack, runs in runs_of(case, jobs).items()}


def add(case, jobs, paced, figures):
    """To each cell the times that its requests took at that pace, and what it left to others."""
    if not paced:
        return
    runs, others = runs_of(case, jobs), of_others(case)
    cells = {(cell["test"], cell["stack"]): cell
             for cell in case.figures({**jobs, **paced})}
    for cell in figures:
        test, stack = cell["test"], cell["stack"]
        if stack not in paced or others.get(test, run_of(test)) not in runs[stack]:
            continue
        if "latency_ms" in cell:
            cell["paced_ms"] = cells[test, stack]["latency_ms"]
        if cell["unit"].endswith("ms") or test in others:
            cell["paced_value"] = cells[test, stack]["value"]
