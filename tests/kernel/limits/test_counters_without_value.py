# SPDX-License-Identifier: Apache-2.0
"""A counter that the hardware can't give is a word, never a number; and when it is back, it does not jump."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel.limits import patiently, processor
from tests.kernel.limits.conftest import hardware_ids
from vmqos.resctrl import exceptions, groups, info, tasks
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

EVENTS = ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
BANDWIDTHS = EVENTS[1:]
JUMP = 1 << 37
"""Bytes: more than the guest moves in a test, less than a counter of 24 bits in units of 64 KiB that went round."""

FAULTS = pytest.mark.parametrize(
    ("fault", "word"),
    [(processor.unavailable, "Unavailable"), (processor.error, "Error")],
    ids=["unavailable", "error"],
)
Fault = Callable[[int, int], AbstractContextManager[None]]


def read(fs: Filesystem, group: str, cache: int = 0) -> dict[str, str]:
    """Each counter's text."""
    return {event: fs.read(group, "mon_data", f"mon_L3_{cache:02}", event).strip() for event in EVENTS}


@pytest.fixture
def watched(fs: Filesystem, spinner: subprocess.Popen[bytes]) -> str:
    """A monitoring group whose task is busy on the first CPU."""
    patiently.create_monitoring_group(fs, "", "watched")
    tasks.move(fs, "mon_groups/watched", {spinner.pid})
    retry(lambda: some_traffic(fs, "mon_groups/watched"), AssertionError)
    return "mon_groups/watched"


def some_traffic(fs: Filesystem, group: str) -> None:
    assert all(int(text) > 0 for text in read(fs, group).values())


@FAULTS
def test_the_client_hands_over_the_word_of_each_counter_of_that_cache_alone(
    fs: Filesystem, watched: str, fault: Fault, word: str
) -> None:
    with fault(0, hardware_ids(fs, watched)[1]):
        assert read(fs, watched) == dict.fromkeys(EVENTS, word)
        assert all(text.isdecimal() for text in read(fs, watched, cache=1).values())
        assert all(text.isdecimal() for text in read(fs, "").values()), "of the default group's own RMID"
    assert all(text.isdecimal() for text in read(fs, watched).values())


@FAULTS
def test_a_bandwidth_counter_that_comes_back_goes_on_without_a_jump(
    fs: Filesystem, watched: str, fault: Fault, word: str
) -> None:
    before = read(fs, watched)
    with fault(0, hardware_ids(fs, watched)[1]):
        # The kernel reads the counters by itself once a second, lest one goes round unseen (CQM_OVERFLOW).
        deadline = time.monotonic() + 1.3
        while time.monotonic() < deadline:
            assert read(fs, watched) == dict.fromkeys(EVENTS, word)
            time.sleep(0.1)
    after = read(fs, watched)
    for event in BANDWIDTHS:
        assert 0 <= int(after[event]) - int(before[event]) < JUMP, (event, before, after)


@FAULTS
def test_a_group_that_is_made_meanwhile_has_words_at_first_and_counts_from_the_start_later(
    fs: Filesystem, spinner: subprocess.Popen[bytes], fault: Fault, word: str
) -> None:
    with contextlib.ExitStack() as faults:
        for rmid in range(1, rmids(fs)):
            faults.enter_context(fault(0, rmid))
        patiently.create_monitoring_group(fs, "", "fresh")
        assert read(fs, "mon_groups/fresh") == dict.fromkeys(EVENTS, word)
        assert all(text.isdecimal() for text in read(fs, "mon_groups/fresh", cache=1).values())
    assert all(int(text) < JUMP for text in read(fs, "mon_groups/fresh").values())
    tasks.move(fs, "mon_groups/fresh", {spinner.pid})
    retry(lambda: some_traffic(fs, "mon_groups/fresh"), AssertionError)
    assert all(int(text) < JUMP for text in read(fs, "mon_groups/fresh").values())


def test_an_rmid_whose_occupancy_can_not_be_read_stays_in_limbo(fs: Filesystem) -> None:
    with pytest.raises(exceptions.NoRmidLeft):
        for number in range(rmids(fs)):
            patiently.create_monitoring_group(fs, "", f"m{number}")
    rmid = hardware_ids(fs, "mon_groups/m3")[1]
    with processor.unavailable(0, rmid):
        groups.remove_monitoring_group(fs, "", "m3")
        deadline = time.monotonic() + 2.2
        while time.monotonic() < deadline:
            with pytest.raises(exceptions.RmidsInLimbo):
                groups.create_monitoring_group(fs, "", "next")
            time.sleep(0.1)
    patiently.create_monitoring_group(fs, "", "next")
    assert hardware_ids(fs, "mon_groups/next")[1] == rmid


def rmids(fs: Filesystem) -> int:
    monitoring = info.read_capabilities(fs).monitoring
    assert monitoring is not None
    return monitoring.num_rmids
