"""How many cores a process may use, where its control groups grant it less time than the machine has."""

import math
from pathlib import Path

import pytest

from decided import hardware
from decided.hardware import cpu_quota, physical_cores


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "400000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "max 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a\n", {"a/cpu.max": "max 100000\n", "other/cpu.max": "100000 100000\n"}, math.inf),
        ("0::/../a\n", {"cpu.max": "100000 100000\n"}, 1),
        (
            "3:cpu,cpuacct:/docker/1\n2:memory:/docker/1\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("4:cpuacct,cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "25000\n"}, 2),
        ("0::/\n", {"cpu.max": "nonsense\n"}, math.inf),
        ("", {"cpu.max": "100000 100000\n"}, math.inf),
    ],
    ids=[
        "container", "no limit", "above", "below", "of others", "outside", "version 1", "version 1, no limit",
        "version 1, nested", "nonsense", "no group",
    ],
)  # fmt: skip
def test_the_quota_is_the_least_on_the_way(tmp_path: Path, groups: str, files: dict[str, str], expected: float) -> None:
    assert cpu_quota(tmp_path) == math.inf
    for name, content in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": files[name] for name in files},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu_quota(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [(0.5, 1), (2, 2), (2.5, 3), (16, 8), (math.inf, 8)])
def test_a_quota_lowers_the_cores(monkeypatch: pytest.MonkeyPatch, quota: float, expected: int) -> None:
    monkeypatch.setattr(hardware, "cpu_quota", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(hardware, "_siblings", str)
    assert physical_cores() == expected
