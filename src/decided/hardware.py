"""What this machine has, as far as the settings need to know."""

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return len({_siblings(cpu) for cpu in usable})


def _siblings(cpu: int) -> str:
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
