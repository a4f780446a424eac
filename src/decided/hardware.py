"""What this machine has, as far as the settings need to know."""

import os
import platform
from pathlib import Path

_X86 = ("x86_64", "amd64")
_VNNI = ("avx512_vnni", "avx_vnni")
_CPU_FLAGS = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return len({_siblings(cpu) for cpu in usable})


def multiplies_bytes_exactly() -> bool:
    """Whether sums of products of bytes keep all their bits. x86 without VNNI adds pairs in 16 bits, and clips."""
    if platform.machine().lower() not in _X86:
        return True
    return any(has_flag(name) for name in _VNNI)


def has_flag(name: str) -> bool:
    """Whether the processor says that it has this feature; where it says nothing, it has not."""
    try:
        return name in _CPU_FLAGS.read_text().split()
    except OSError:
        return False


def _siblings(cpu: int) -> str:
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
