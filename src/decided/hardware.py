"""What this machine has, as far as the settings need to know."""

import math
import os
import platform
import re
from pathlib import Path

_X86 = ("x86_64", "amd64")
_VNNI = ("avx512_vnni", "avx_vnni")
_CPU_FLAGS = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = re.compile(r"([1-9][0-9]*)\s+([1-9][0-9]*)\s*")
"""Microseconds in each period, and the period. Without a limit the first is no such number: `max`, or -1."""


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once; no more than its quota of CPU time keeps busy, since
    threads beyond it would only spend it early and then all stand still."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return math.ceil(min(len({_siblings(cpu) for cpu in usable}), cpu_quota()))


def cpu_quota(root: Path = Path("/")) -> float:
    """How many CPUs' time the control groups of this process grant it; infinity if they set no limit.

    A group is limited by those above it too. A container sees its own group as the first one, under whatever name.
    """
    limits = [math.inf]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):  # version 2 has one tree, without a name
            group = root / "sys/fs/cgroup" / controller
            limits.append(_granted(group))
            for part in Path(path).parts[1:]:
                group /= part
                limits.append(_granted(group))
    return min(limits)


def multiplies_bytes_exactly() -> bool:
    """Whether sums of products of bytes keep all their bits. x86 without VNNI adds pairs in 16 bits, and clips."""
    if platform.machine().lower() not in _X86:
        return True
    return any(has_flag(name) for name in _VNNI)


def has_flag(name: str) -> bool:
    """Whether the processor says that it has this feature; where it says nothing, it has not."""
    return name in _read(_CPU_FLAGS).split()


def _granted(group: Path) -> float:
    """What one control group grants by itself, in version 2 or in version 1."""
    said = _read(group / "cpu.max") or _read(group / "cpu.cfs_quota_us") + _read(group / "cpu.cfs_period_us")
    found = _QUOTA.fullmatch(said)
    return int(found[1]) / int(found[2]) if found else math.inf


def _siblings(cpu: int) -> str:
    return _read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list").strip() or str(cpu)


def _read(path: Path) -> str:
    """What a file of the system says; nothing where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
