# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.reading_cpus."""

import os
import threading
from types import SimpleNamespace

import pytest

from vmqos.telemetry.sweep import reading_cpus


@pytest.fixture
def sysfs(tmp_path):
    """Eight CPUs: 0 to 3 share one L3, 4 to 7 another one."""
    for cpu in range(8):
        index = tmp_path / f"cpu{cpu}" / "cache" / "index3"
        index.mkdir(parents=True)
        first = cpu // 4 * 4
        for name, text in {
            "level": 3,
            "type": "Unified",
            "id": cpu // 4,
            "shared_cpu_list": f"{first}-{first + 3}",
        }.items():
            (index / name).write_text(f"{text}\n")
    return tmp_path


@pytest.fixture
def allowed(monkeypatch):
    """Where the calling thread may run, and where it went."""

    cpus = SimpleNamespace(home=frozenset(range(8)), went=[])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus.home))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, mask: cpus.went.append(set(mask)))
    monkeypatch.setattr(os, "sysconf", {"SC_NPROCESSORS_ONLN": 8, "SC_NPROCESSORS_CONF": 8}.__getitem__)
    return cpus


@pytest.mark.parametrize(
    ("tickless", "expected"),
    [
        (None, {0: 0, 1: 4}),
        ("(null)", {0: 0, 1: 4}),
        ("", {0: 0, 1: 4}),
        ("0,4-6", {0: 1, 1: 7}),
        ("4-7", {0: 0, 1: 4}),
    ],
)
def test_the_kernel_reads_on_a_cache_s_first_cpu_that_keeps_its_tick(sysfs, tickless, expected):
    if tickless is not None:
        (sysfs / "nohz_full").write_text(f"{tickless}\n")
    assert reading_cpus.by_cache(str(sysfs)) == expected


def test_a_machine_that_does_not_tell_its_caches_has_no_such_cpu(tmp_path):
    assert reading_cpus.by_cache(str(tmp_path)) == {}


def test_who_travels_comes_home(allowed):
    with reading_cpus.travelling() as go:
        go(0)
        go(4)
    assert allowed.went == [{0}, {4}, set(range(8))]


def test_who_comes_home_does_so_after_a_failure_too(allowed):
    with pytest.raises(ZeroDivisionError), reading_cpus.travelling() as go:
        go(4)
        raise ZeroDivisionError
    assert allowed.went[-1] == set(range(8))


def test_nobody_goes_where_he_may_not_run(allowed):
    allowed.home = frozenset({1, 2, 4})
    with reading_cpus.travelling() as go:
        go(0)
        go(None)
        go(4)
    assert allowed.went == [{4}, {1, 2, 4}]


@pytest.mark.parametrize(("online", "back"), [(8, set(range(16))), (12, set(range(8)))])
def test_who_may_run_everywhere_may_run_on_cpus_that_come_later_too(allowed, monkeypatch, online, back):
    counts = {"SC_NPROCESSORS_ONLN": online, "SC_NPROCESSORS_CONF": 16}
    monkeypatch.setattr(os, "sysconf", counts.__getitem__)
    with reading_cpus.travelling() as go:
        go(4)
    assert allowed.went == [{4}, back]


@pytest.mark.parametrize("home", [{0}, {3}])
def test_nobody_who_has_one_cpu_only_is_moved(allowed, home):
    allowed.home = frozenset(home)
    with reading_cpus.travelling() as go:
        go(0)
        go(4)
    assert allowed.went == []


def test_a_cpu_that_went_offline_just_now_is_not_missed(allowed, monkeypatch):
    def refuse(pid, mask):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with reading_cpus.travelling() as go:
        go(0)


def test_other_threads_stay_where_they_are():
    home = os.sched_getaffinity(0)
    other, done = [], threading.Event()

    def look():
        done.wait(10)
        other.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=look)
    thread.start()
    with reading_cpus.travelling() as go:
        go(min(home))
        assert os.sched_getaffinity(0) == {min(home)}
        done.set()
        thread.join()
    assert other == [home]
    assert os.sched_getaffinity(0) == home
