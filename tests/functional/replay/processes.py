# SPDX-License-Identifier: Apache-2.0
"""The processes a replay starts, and how requests reach them."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from vmqos.simulator.hardware.profiles import Profile

ROOT = Path(__file__).parents[3]
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}


class Peer:
    """A program of ours that answers requests line by line.

    :param source: the folder whose ``vmqos`` it is to take.
    """

    def __init__(self, module: str, first_line: str = "", source: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=source,
            env={**_ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        )
        if first_line:
            self._send(first_line)

    def call(self, name: str, *arguments: Any) -> tuple[Any, str | None]:
        """Ask for something.

        :return: what it returned, and the name of the error if it failed.
        """
        self._send(json.dumps([name, arguments]))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended while it did {name}{arguments}")
        answer = json.loads(line)
        return answer["ret"], answer["errno"]

    def do(self, name: str, *arguments: Any) -> Any:
        """Ask for something that must not fail."""
        result, failed = self.call(name, *arguments)
        if failed:
            raise RuntimeError(f"{name}{arguments}: {failed}")
        return result

    def end(self) -> None:
        """Let it end, and see to it that it does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(60)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def machine_server(profile: Profile, source: Path = ROOT) -> Peer:
    """A simulated machine.

    :param source: the folder whose ``vmqos`` simulates it.
    """
    first_line = base64.b64encode(pickle.dumps(profile)).decode()
    return Peer("tests.functional.replay.machine_server", first_line, source)


def actor() -> Peer:
    """The process that does the recorded system calls."""
    return Peer("tests.functional.replay.actor")


class StandIns:
    """Real processes in the place of recorded task ids."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._zombies: list[subprocess.Popen[bytes]] = []
        self.last = 0

    def known(self, recorded: int) -> bool:
        """Whether somebody stands for a recorded id."""
        return recorded in self._ids

    def name(self, recorded: int, real: int) -> None:
        """Let a process or thread that exists stand for a recorded id."""
        self._ids[recorded] = real

    def start(self, recorded: int) -> None:
        """Start a process that stands for a recorded id."""
        process = subprocess.Popen(["sleep", "1000"])
        self._processes[recorded] = process
        self._ids[recorded] = process.pid

    def real(self, recorded: int) -> int:
        """The real id for a recorded one; somebody is started for it if need be."""
        if recorded not in self._ids:
            self.start(recorded)
        return self._ids[recorded]

    def recorded_of(self) -> dict[int, int]:
        """The recorded id of each real one."""
        return {real: recorded for recorded, real in self._ids.items()}

    def translate(self, text: str) -> str:
        """``text`` with every recorded id replaced by the real one, in the same notation."""

        def swap(match: re.Match[str]) -> str:
            number = int(match[0], 0) if not match[0].startswith("0") or "x" in match[0].lower() else int(match[0])
            if number not in self._ids:
                return match[0]
            return f"0x{self._ids[number]:x}" if "x" in match[0].lower() else str(self._ids[number])

        return re.sub(r"\b(?:0[xX][0-9a-fA-F]+|\d+)\b", swap, text)

    def kill(self, recorded: int) -> None:
        """Kill a stand-in but leave it a zombie."""
        process = self._processes.pop(recorded)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._zombies.append(process)

    def reap(self) -> None:
        """Let the zombies go."""
        for process in self._zombies:
            process.wait()
        self._zombies.clear()

    def end(self) -> None:
        """End them all."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.reap()
        self._processes.clear()
