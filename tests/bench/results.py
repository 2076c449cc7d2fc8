# SPDX-License-Identifier: GPL-2.0-only
"""What a job printed, as figures."""

import json

# So many requests at least have been slower than a percentile that is shown.
SLOWER = 4


def fio(job, name, number=0):
    """One job of fio's report."""
    text = job.results[(name, "fio")]
    return json.loads(text[text.index("{"):])["jobs"][number]


def direction(report):
    return report["write"] if report["write"]["total_ios"] else report["read"]


def rate(job, name, unit):
    """Requests, or megabytes, a second."""
    report = fio(job, name)
    done = direction(report)
    if unit == "MB/s":
        if int(report["job options"].get("iodepth", 1)) > 1:
            return fio_rate(job, name)
        # One request at a time. fio's own rate is of a run time rounded to a millisecond.
        return done["io_bytes"] / done["total_ios"] / done["lat_ns"]["mean"] * 1e3
    return done["iops"]


def done_by(job, name, number, unit):
    """What one of several jobs of fio did, or its reads or writes where it did both."""
    report = fio(job, name, number)
    what = unit.rpartition(" ")[0]
    return report[what.rstrip("s")] if what in ("reads", "writes") else direction(report)


def time_of(job, name, number, what):
    """The slowest request of a run, or a percentile of its requests, or of its fsyncs: "p99" or
    "sync-p99.9". In milliseconds."""
    if what == "slowest":
        return direction(fio(job, name, number))["clat_ns"]["max"] / 1e6
    known = (sync_percentiles(job, name) if what.startswith("sync-") else
             of_times(direction(fio(job, name, number))["clat_ns"]))
    return known[float(what.rpartition("p")[2])]


def of_job(job, name, number, unit):
    """A figure of that. A unit with a word before it asks for a part: "reads io/s", "writes ms"
    (the mean), "p99 ms"."""
    what, _, unit = unit.rpartition(" ")
    if what not in ("", "reads", "writes") and unit == "ms":
        return time_of(job, name, number, what)
    done = done_by(job, name, number, f"{what} {unit}")
    if unit == "MB/s":
        return done["bw_bytes"] / 1e6
    if unit == "ms":
        return done["clat_ns"]["mean"] / 1e6
    return done["iops"]


def fio_rate(job, name):
    """Megabytes a second by fio's own account, for more than one request at a time."""
    return direction(fio(job, name))["bw_bytes"] / 1e6


def instructions(job, name):
    """Of one request, from its submission to its end: nanoseconds of virtual time."""
    return direction(fio(job, name))["lat_ns"]["mean"]


def of_times(times):
    return {float(key): value / 1e6 for key, value in times.get("percentile", {}).items()}


def is_known(percent, count):
    """Of so few requests that hardly one was slower, a percentile is but one request's time."""
    return count * (100 - percent) >= 100 * SLOWER


def percentiles(job, name, number=0, unit=""):
    """How long requests took, in milliseconds, as far as there were enough of them."""
    done = done_by(job, name, number, unit)
    return {percent: time for percent, time in of_times(done["clat_ns"]).items()
            if is_known(percent, done["total_ios"])}


def sync_percentiles(job, name):
    """How long each fsync took, in milliseconds."""
    return of_times(fio(job, name)["sync"]["lat_ns"])


def status(job, name):
    """{device: {key: number}} of what dmsetup status said after the run."""
    found = {}
    for line in job.results[(name, "status")].splitlines():
        device, _, _, target, *words = line.split()
        if target in ("cowsnap", "snapshot"):
            found[device] = {"used": words[0].split("/")[0]}
            words = words[2:]
        else:
            found[device] = {}
        found[device].update(zip(words[::2], words[1::2]))
    return {device: {key: int(value) for key, value in pairs.items() if value.isdigit()}
            for device, pairs in found.items()}


def figure(job, name):
    return float(job.results[(name, "figure")])
