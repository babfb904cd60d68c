# SPDX-License-Identifier: Apache-2.0
"""The browser that these tests drive leaves with them."""

from __future__ import annotations

import subprocess
import sys

from tests.functional.conftest import WaitFor
from tools.lab import processes
from tools.lab.workspace import CHECKOUT

PROGRAM = """if True:
    import time

    from tests.page.browser import running
    from tools.lab.workspace import Workspace

    with Workspace() as workspace, running(workspace):
        print(workspace.path, flush=True)
        time.sleep(600)
"""


def test_a_browser_ends_with_tests_that_are_killed(wait_for: WaitFor) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        profile = f"--user-data-dir={tests.stdout.readline().strip()}/browser"

        def is_running() -> bool:
            return any(profile in processes.arguments(pid) for pid in processes.all_pids())

        assert is_running()
        tests.kill()
    wait_for(lambda: not is_running(), "the browser's end")
