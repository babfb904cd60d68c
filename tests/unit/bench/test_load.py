# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from vmqos.bench import exceptions, load, parties, processes
from vmqos.bench.processes import Load


def test_the_chain_is_one_circle_through_every_line_in_an_order_that_is_always_the_same() -> None:
    lines = 1024
    seen = []
    for _ in range(2):
        memory, start = load.chain(lines * load.LINE)
        order, position = [], start
        for _ in range(lines):
            order.append((position - start) // load.LINE)
            position = ctypes.c_uint64.from_address(position).value
        assert position == start
        assert sorted(order) == list(range(lines))
        seen.append(order)
        memory.close()
    assert seen[0] == seen[1]
    steps = {after - before for before, after in zip(seen[0], seen[0][1:], strict=False)}
    assert len(steps) > lines / 2, "a prefetcher would find a pattern"


def test_the_machine_code_takes_as_many_steps_as_it_is_told() -> None:
    memory, start = load.chain(16 * load.LINE)
    code = load._executable(ctypes.CDLL(None, use_errno=True), load.CHASE)
    chase = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(load._address(code))
    position = start
    for steps in range(1, 40):
        expected = start
        for _ in range(steps):
            expected = ctypes.c_uint64.from_address(expected).value
        position = chase(start, steps)
        assert position == expected
    memory.close()


def test_a_victim_answers_and_ends_with_its_owner() -> None:
    victim = Load("the victim", {min(os.sched_getaffinity(0))}, "victim", "65536")
    try:
        victim.wait_until_ready()
        assert 0.1 < victim.ask(0.02) < 10_000
        victim.check()
    finally:
        victim.end()


def test_a_load_is_killed_with_its_owner() -> None:
    script = (
        "import sys, os; from vmqos.bench.processes import Load\n"
        "load = Load('x', os.sched_getaffinity(0), 'stream', '1048576')\n"
        "load.wait_until_ready(); load.tell('go'); print(load.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    owner = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    pid = int(owner.stdout)
    deadline = 200
    while os.path.exists(f"/proc/{pid}") and "(zombie)" not in _status(pid) and deadline:
        deadline -= 1
        processes.select.select([], [], [], 0.05)
    assert deadline, "it still runs"


def _status(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return "(zombie)"


def test_a_load_that_can_not_start_says_why() -> None:
    load = Load("the program", os.sched_getaffinity(0), "run", "/nonexistent/program")
    try:
        load.wait_until_ready()
        load.tell("go")
        with pytest.raises(exceptions.LoadFailed, match=r"the program failed: it ended with status 1: .*No such file"):
            load.wait_until_done()
    finally:
        load.end()


def test_a_processor_without_a_victim_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(load.Unusable, match="kind riscv64, only for x86_64, aarch64"):
        load._executable(ctypes.CDLL(None), load.CHASE)


def test_stress_ng_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert [parties.noise(kind) for kind in ("auto", "stream", "cache", "builtin")] == [
        "stream",
        "stream",
        "cache",
        "builtin",
    ]
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert [parties.noise(kind) for kind in ("auto", "builtin")] == ["builtin", "builtin"]
    with pytest.raises(exceptions.LoadFailed, match="stress-ng --cache failed: it is not installed"):
        parties.noise("cache")
