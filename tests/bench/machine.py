# SPDX-License-Identifier: GPL-2.0-only
"""The machine that a job runs in: QEMU in virtual time, booted from memory.

One instruction of the guest is one nanosecond of its clock, and idle time passes at once, so
what a job prints depends on the job and on what it was built from, not on the host or on what
else the host does. Therefore it is kept: a job whose every input is the same is not run again.
"""

import hashlib
import lzma
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

BENCH_DIR = Path(__file__).resolve().parent
TOP_DIR = BENCH_DIR.parent.parent
CACHE_DIR = Path(os.environ.get("COWSNAP_CACHE", "/var/cache/dm-cowsnap"))

# A named processor: the newest features of QEMU's own would change with its version.
QEMU = ["qemu-system-x86_64", "-nodefaults", "-nographic", "-machine", "pc", "-accel", "tcg",
        "-cpu", "Westmere", "-no-reboot", "-nic", "none", "-seed", "1"]
VIRTUAL_TIME = ["-smp", "1", "-icount", "shift=0,sleep=off",
                "-rtc", "base=2026-01-01T00:00:00,clock=vm"]
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 oops=panic nokaslr mitigations=off rdinit=/init"
TIMEOUT = 3600

# Of the job's file in the initramfs: the kernel reads it, and not in the same time whatever it is.
JOB_TIME = 1767225600


class JobFailed(Exception):
    """A guest that did not get to the end of its job."""


@dataclass
class Job:
    """A script for the guest, and what machine it needs."""

    name: str
    script: str
    cowsnap: bool = False
    memory: str = "3G"
    cpus: int = 1           # more than one: ordinary time, where figures do not repeat
    turn: int = 1           # 2: the same job once more, to compare what both printed
    seconds: float = 0      # of the host, when it was run
    results: dict = field(default_factory=dict)
    kept: bool = False      # taken from an earlier run


def sha(*parts):
    """One sum of texts and of the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def unpacked_kernel(kver):
    """The kernel as it is inside of its compressed image, which QEMU can start as well.

    Unpacking it in the guest would take as long as the rest of booting.
    """
    image = Path(f"/boot/vmlinuz-{kver}")
    kept = CACHE_DIR / "bench" / f"vmlinux-{sha(image)[:12]}"
    if not kept.exists():
        packed = image.read_bytes()
        start = packed.find(b"\xfd7zXZ\x00")
        if start < 0:
            return image
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_bytes(lzma.LZMADecompressor().decompress(packed[start:]))
        new.rename(kept)
    return kept


def guest_thread(pid):
    """The thread of QEMU that runs the guest's instructions."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("ALL CPUs"):
            return int(task.name)
    return None


def prefer_guest(qemu):
    """Let nothing but sleep keep the guest's thread from its processor, where that is allowed."""
    thread = None
    while thread is None and qemu.poll() is None:
        time.sleep(0.01)
        try:
            thread = guest_thread(qemu.pid)
        except OSError:
            continue
    try:
        if thread:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        print(f"bench: two runs may differ somewhat, there is no real-time priority: {error}",
              file=sys.stderr)


class Machine:
    """What all jobs of a run have in common: kernel, initramfs, module."""

    def __init__(self, kernel="6.1", fresh=False):
        line = self._output(str(TOP_DIR / "tests/vm/kernels"), kernel)
        self.kver = line.split()[1]
        self.fresh = fresh
        self.dir = Path(tempfile.mkdtemp(prefix="cowsnap-bench-"))
        self.qemu_words = []    # more of them
        self.kept_dir = CACHE_DIR / "bench" / "kept"
        self.kept_dir.mkdir(parents=True, exist_ok=True)
        subprocess.run([BENCH_DIR / "initramfs", self.kver, self.dir], check=True,
                       stdout=subprocess.DEVNULL)
        self.qemu_version = self._output("qemu-system-x86_64", "--version").splitlines()[0]
        self.kernel = unpacked_kernel(self.kver)
        # Processors of the host that no job has just now.
        self.free = queue.Queue()
        for cpu in sorted(os.sched_getaffinity(0)):
            self.free.put(cpu)
        base = os.readlink(self.dir / "base.cpio")
        self.module_sum = sha(self.dir / "cowsnap.cpio")
        self.common_sum = sha(self.qemu_version, " ".join(QEMU + VIRTUAL_TIME), KERNEL_WORDS,
                              str(JOB_TIME), base, self.kernel.name, self.dir / "checkout.cpio")

    def close(self):
        shutil.rmtree(self.dir)

    @staticmethod
    def _output(*argv):
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _kept_path(self, job):
        module = self.module_sum if job.cowsnap else ""
        name = sha(self.common_sum, module, job.memory, str(job.cpus), job.script)[:24]
        return self.kept_dir / (name if job.turn == 1 else f"{name}.{job.turn}")

    def kept(self, job):
        """Has this very job been run before, with these very inputs?"""
        return not self.fresh and job.cpus == 1 and self._kept_path(job).exists()

    def run(self, job):
        path = self._kept_path(job)
        if self.kept(job):
            text = path.read_text()
            job.kept = True
        else:
            begin = time.monotonic()
            text = self._boot(job)
            text += f"@seconds {time.monotonic() - begin:.1f}\n"
        job.results = parse(job.name, text)
        job.seconds = float(re.search(r"^@seconds (\S+)$", text, re.M).group(1))
        if not job.kept:
            new = path.with_name(path.name + ".new")
            new.write_text(text)
            new.rename(path)
        return job

    def _initrd(self, job, work):
        (work / "job").write_text(job.script)
        os.utime(work / "job", (JOB_TIME, JOB_TIME))
        archive = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "--reproducible",
                                  "--owner=0:0"], input=b"job\n", cwd=work, check=True,
                                 stdout=subprocess.PIPE).stdout
        initrd = work / "initrd"
        with initrd.open("wb") as out:
            for part in ["base.cpio", "checkout.cpio"] + ["cowsnap.cpio"] * job.cowsnap:
                with (self.dir / part).open("rb") as source:
                    shutil.copyfileobj(source, out)
            out.write(archive)
        return initrd

    def _started(self, argv):
        """Run QEMU, on one processor of the host where time is virtual.

        Its main thread looks whether the guest is idle, and lets time pass if so. It must not
        do that between the guest's halting and the counting of its last instructions: then
        time would be off by these, and a disk stand elsewhere later. So it has the guest's
        processor, and only while the guest's thread sleeps.
        """
        cpu = self.free.get()
        qemu = subprocess.Popen(  # pylint: disable=consider-using-with
            ["taskset", "-c", str(cpu)] + argv + ["-name", "guest,debug-threads=on"],
            stdin=subprocess.DEVNULL)
        try:
            prefer_guest(qemu)
            if qemu.wait(TIMEOUT):
                raise subprocess.CalledProcessError(qemu.returncode, argv)
        finally:
            qemu.kill()
            qemu.wait()
            self.free.put(cpu)

    def _boot(self, job):
        work = Path(tempfile.mkdtemp(dir=self.dir))
        time_words = VIRTUAL_TIME if job.cpus == 1 else ["-smp", str(job.cpus)]
        argv = QEMU + time_words + self.qemu_words + [
            "-m", job.memory, "-kernel", str(self.kernel),
            "-initrd", str(self._initrd(job, work)), "-append", KERNEL_WORDS,
            "-serial", f"file:{work}/console", "-serial", f"file:{work}/out"]
        try:
            if job.cpus == 1:
                self._started(argv)
            else:
                subprocess.run(argv, check=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise JobFailed(f"{job.name}: not done after {TIMEOUT} s") from error
        text = (work / "out").read_text(errors="replace")
        console = (work / "console").read_text(errors="replace")
        shutil.rmtree(work)
        if not text.rstrip().endswith("@end 0"):
            raise JobFailed(f"{job.name}: {text[-2000:]}\n{console[-2000:]}")
        return text


RESULT = re.compile(r"^@result (\S+) (\S+)\n(.*?)\n@done$", re.S | re.M)
# dm-snapshot goes on at full speed when it has lost its snapshot.
LOST = re.compile(r" (?:cowsnap|snapshot) (?:Invalid|Overflow)$", re.M)
TROUBLE = re.compile(r"BUG|WARNING|Oops|Call Trace|I/O error|nvalid")


def parse(name, text):
    """What a guest said, as {(name, kind): text}."""
    dmesg = text[text.rindex("@dmesg"):]
    if TROUBLE.search(dmesg):
        raise JobFailed(f"{name}: the kernel of the guest complained\n{dmesg}")
    results = {(what, kind): body for what, kind, body in RESULT.findall(text)}
    for (what, kind), body in results.items():
        if kind == "status" and LOST.search(body):
            raise JobFailed(f"{name}: {what}: the snapshot did not last\n{body}")
    return results
