# SPDX-License-Identifier: Apache-2.0
"""Runs rungs for ``tools/test``, which has prepared all that they need.

Most of them use each CPU of the machine, and run one after the other. Those that mostly use one CPU run before them,
two at a time, and what one of these says is shown when it has ended.

Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools import rotation

AT_ONCE = 2
"""How many rungs of one CPU run at the same time."""

LOGS = Path("build/rungs")
"""Where these write what they say, a file for each."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rung ended.

    :ivar word: the argument of ``tools/test``.
    :ivar seconds: that it took.
    """

    word: str
    has_passed: bool
    seconds: int

    def __str__(self) -> str:
        return f"  {self.word:32} {'passed' if self.has_passed else 'FAILED'} in {self.seconds} s"


class Runner:
    """Runs rungs by tox.

    :param tox: command line of tox, to which the environment and pytest's arguments are added.
    :param began: when ``tools/test`` began, in seconds since 1970.
    """

    def __init__(self, tox: Sequence[str], began: float, checkout: Path = rotation.CHECKOUT) -> None:
        self._tox = tox
        self._began = began
        self._checkout = checkout
        self._commit = rotation.at_commit(checkout)
        self._printing = threading.Lock()

    def run(self, words: Sequence[str]) -> list[Ended]:
        """Run them all, also where some fail; in the order in which they ended.

        :raises Mistake: if one of the words is no rung.
        """
        beside = [word for word in words if rotation.uses_one_cpu(word)]
        if len(beside) < AT_ONCE:
            beside = []
        ended = list[Ended]()
        with ThreadPoolExecutor(AT_ONCE) as lanes:
            for one in as_completed([lanes.submit(self._run_beside, word) for word in beside]):
                ended.append(one.result())
        for word in words:
            if word not in beside:
                self._say(f"tools/test {word}")
                ended.append(self._run(word, None))
        return ended

    def _run_beside(self, word: str) -> Ended:
        log = self._checkout / LOGS / f"{word.replace(':', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self._say(f"tools/test {word}, beside another: what it says is in {log.relative_to(self._checkout)}, and below"
                  " when it has ended")  # fmt: skip
        with log.open("wb") as output:
            ended = self._run(word, output)
        self._say(f"tools/test {word} has ended", log)
        return ended

    def _run(self, word: str, output: IO[bytes] | None) -> Ended:
        command = [*self._tox, "-e", word.partition(":")[0]]
        if arguments := rotation.arguments(word):
            command += ["--", *arguments]
        began = time.monotonic()
        done = subprocess.run(command, cwd=self._checkout, stdout=output, stderr=output, check=False)
        ended = Ended(word, done.returncode == 0, round(time.monotonic() - began))
        rotation.note(word, self._commit, "passed" if ended.has_passed else "FAILED", ended.seconds, self._checkout)
        return ended

    def _say(self, line: str, output: Path | None = None) -> None:
        with self._printing:
            print(f"\n[{time.time() - self._began:3.0f}s] {line}", flush=True)
            if output:
                with output.open("rb") as said:
                    shutil.copyfileobj(said, sys.stdout.buffer)
                sys.stdout.buffer.flush()


def main() -> int:
    """Run the rungs that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.run_rungs", description="What tools/test runs.")
    parser.add_argument("--tox", required=True, help="command line of tox")
    parser.add_argument("--began", required=True, type=float, help="seconds since 1970")
    parser.add_argument("rung", nargs="+")
    asked = parser.parse_args()
    try:
        ended = Runner(shlex.split(asked.tox), asked.began).run(asked.rung)
    except rotation.Mistake as mistake:
        print(f"tools/test: {mistake}", file=sys.stderr)
        return 1
    print(f"\n[{time.time() - asked.began:3.0f}s] done", *ended, sep="\n")
    failed = sum(not one.has_passed for one in ended)
    if failed:
        print(f"test: {failed} of {len(ended)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
