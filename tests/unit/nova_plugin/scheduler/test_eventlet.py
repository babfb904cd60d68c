# SPDX-License-Identifier: Apache-2.0
"""The scheduler's answers under the threads of nova-scheduler: eventlet's in Nova 31 and 32, and where that is set."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, threading, time
import nova.cmd.scheduler
from nova_plugin.scheduler.cached import Cached
import nova_plugin.scheduler.filters, nova_plugin.scheduler.weights

asked = []

def ask():
    asked.append(time.monotonic())
    time.sleep(0.2)
    return len(asked)

cached = Cached("a number", ask, lambda: 60.0)
answers = []
threads = [threading.Thread(target=lambda: answers.append(cached.get())) for _ in range(20)]
begun = time.monotonic()
for thread in threads: thread.start()
for thread in threads: thread.join()
took = time.monotonic() - begun
# Nova 34 forbids the import where it has chosen threads.
eventlet = sys.modules.get("eventlet")
green = bool(eventlet and eventlet.patcher.is_monkey_patched("thread"))
print(json.dumps({"answers": answers, "asked": len(asked), "took": took, "green": green}))
"""


@pytest.mark.parametrize("patched", ["", "0"], ids=["as nova-scheduler starts", "with eventlet"])
def test_twenty_requests_at_once_ask_placement_once_and_all_get_the_answer(patched: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "OS_NOVA_DISABLE_EVENTLET_PATCHING"}
    environment = {**kept, "OS_NOVA_DISABLE_EVENTLET_PATCHING": patched} if patched else kept
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, timeout=60)
    told = json.loads(ran.stdout.splitlines()[-1])
    assert (told["answers"], told["asked"]) == ([1] * 20, 1)
    assert told["took"] < 10
    assert told["green"] or not patched
