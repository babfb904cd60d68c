# SPDX-License-Identifier: Apache-2.0
"""What a machine that was suspended costs a measurement, and what a program that sleeps costs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tools.lab import stalls
from tools.lab.stalls import Stalls
from tools.lab.workspace import CHECKOUT

WATCHED = """
import time
from tools.lab.stalls import Stalls
with Stalls() as stalls:
    while not stalls._last:
        pass
    began = time.monotonic()
    print("ready", flush=True)
    input()
    print(time.monotonic() - began, stalls.took(began))
"""


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (5.0, 6.0)], 3.0),
        ([(1.0, 3.0), (2.0, 4.0)], 3.0),
        ([(1.0, 9.0), (2.0, 4.0)], 8.0),
        ([(5.0, 4.0)], 0.0),
        ([(5.0, 4.0), (3.0, 4.0)], 1.0),
    ],
)
def test_what_several_cpus_lost_at_a_time_counts_once(parts: list[tuple[float, float]], expected: float) -> None:
    assert stalls.length(parts) == expected


def test_the_time_in_which_a_machine_is_suspended_is_none_that_a_program_took() -> None:
    command = [sys.executable, "-c", WATCHED]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate("\n", timeout=60)
    whole, took = map(float, said.split())
    assert whole >= 1.0 and took <= whole - 0.9


def test_a_gap_that_goes_on_counts_and_what_was_before_the_moment_does_not() -> None:
    watched = Stalls()
    watched._gaps, watched._last = [(1.0, 4.0)], {0: 8.0, 1: 9.99}
    assert watched.lost(2.0, 10.0) == pytest.approx(2.0 + 2.0 - stalls.TICK)
