# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

from vmqos.cli.live.looker import Looker


def test_a_failed_look_is_told_and_what_was_seen_stays() -> None:
    answers: list[int | Exception] = [1, OSError("no answer"), 2]
    told = threading.Semaphore(0)

    def look() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Looker(look, 3600.0, told.release) as looker:
        for number, problem in ((1, ""), (1, "no answer"), (2, "")):
            looker.hurry()
            assert told.acquire(timeout=60)
            assert (looker.newest, looker.problem) == (number, problem)


def test_a_look_that_hangs_keeps_nobody_from_leaving() -> None:
    hangs, begun = threading.Event(), threading.Event()

    def look() -> int:
        begun.set()
        hangs.wait(30)
        return 0

    with Looker(look, 0.0, lambda: None):
        assert begun.wait(60)
    hangs.set()
