# SPDX-License-Identifier: Apache-2.0
"""Tests that run in a guest, as items of the pytest outside.

An item is not run but waited for: the first one of a machine and kernel boots a guest that runs all of them, and each
item logs the reports that come in for it as its own. So ``-k``, ``-x``, ``--collect-only``, ``--durations`` and JUnit
files work as ever, and pytest-xdist needs no more than ``--dist loadgroup``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.kernel.lab import machines
from tests.kernel.lab.errors import LabError
from tests.kernel.lab.guest import Guest
from tests.kernel.lab.job import Job
from tests.kernel.lab.pair import Pair

ITEMS = "guest-items.json"
# Plugins are chosen, because finding and importing all that the guest's Debian has takes seconds under emulation.
SCRIPT = f"""export VMQOS_GUEST={{pair.machine}}:{{pair.kernel}} VMQOS_GUEST_ITEMS=$PWD/{ITEMS}
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {{settings}}
exec python3 -m pytest -p pytest_timeout -o timeout={{limit:.0f}} -p tests.kernel.inside.reports \\
    -p no:cacheprovider {{options}} {{files}}
"""
HANDED_ON = "VMQOS_TROUBLE_"
"""With what the names of the environment variables begin that tests inside need, too."""

POLL = 0.05
"""Seconds between two looks at what the guest said."""

TIME_LIMIT = pytest.StashKey[float]()
"""Seconds that an item may take inside."""

USUAL_TIME_LIMIT = 600.0
"""That of an item that has no marker ``timeout``: twice as long as outside. It ends what hangs, and judges nothing; and
an emulated machine on a busy one has VMs of its own to start."""

BOOT_TIMEOUT = 300.0
"""Seconds that a guest may take to its first word."""

PANIC = "Kernel panic"
"""What the console shows of a kernel that died.

Once in some fifty guests a kernel dies of QEMU, whose threads emulate a CPU each: it comes upon an ``int3`` that it
had put into its code for a moment (``text_poke_bp()`` in arch/x86/kernel/alternative.c; mounting resctrl does) and
taken away again, or finds the end of a stack overwritten while its KVM runs a VM. So the tests that are left get
another guest. A kernel that dies of what a test does dies there, too.
"""

STALL = re.compile(r"rcu: INFO: \w+ (?:self-)?detected (?:expedited )?stalls? on CPU|watchdog: BUG: soft lockup")
"""What the console shows of a kernel one of whose CPUs hangs.

An emulated CPU hangs about as rarely as a kernel dies of QEMU: it was seen in a guest whose KVM ran a VM, and the other
CPU hung while it printed so. A kernel that QEMU keeps waiting says it too, and goes on. So a guest counts as hung only
if it falls silent as well; the tests that are left get another guest then, too.
"""

DEATHS = 3
"""How many guests may die or hang, each in another test. A whole run mounts resctrl some hundred times in a guest."""


def pair_of(item: pytest.Item | None) -> Pair | None:
    """The guest that an item belongs into."""
    pair = getattr(getattr(item, "callspec", None), "params", {}).get("guest_machine")
    return pair if isinstance(pair, Pair) else None


def node_id_inside(item: pytest.Item, pair: Pair) -> str:
    """The item's node id there: pytest-xdist appends the group in its workers."""
    return item.nodeid.removesuffix(f"@{pair.group}")


class RemoteItems:
    """The plugin; see above."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._runs: dict[Pair, RemoteRun] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if pair_of(item):
                item.stash[TIME_LIMIT] = _time_limit(item)
                # It is kept inside, where the test runs; outside it would count the boot, too.
                item.add_marker(pytest.mark.timeout(0), append=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        pair = pair_of(item)
        if pair is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        run = self._runs.get(pair)
        if run is None:
            run = self._runs[pair] = RemoteRun(self._config, pair, self._of_pair(item.session, pair))
        for report in run.reports_of(item):
            report.nodeid = item.nodeid
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Fixtures of an item that really ran may still be up, kept for this one.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _of_pair(self, session: pytest.Session, pair: Pair) -> list[pytest.Item]:
        return [item for item in session.items if pair_of(item) == pair]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        for run in self._runs.values():
            run.close()


class RemoteRun:
    """One guest, and the tests that it runs.

    :param items: all of its tests.
    """

    def __init__(self, config: pytest.Config, pair: Pair, items: Sequence[pytest.Item]) -> None:
        self._config = config
        self._pair = pair
        # A test's own time limit ends it inside. A guest that does not even do that hangs.
        self._grace: float = config.getoption("--guest-grace")
        self._limits = {node_id_inside(item, pair): item.stash[TIME_LIMIT] for item in items}
        self._reports: dict[str, list[pytest.TestReport]] = {name: [] for name in self._limits}
        self._finished: set[str] = set()
        self._waited_for = set(self._limits)
        self._broken: dict[str, str] = {}
        self._running: str | None = None
        self._over: str | None = None
        self._console_before = 0
        self._failed = False
        self._path = _directory(config, pair)
        self._died_in: list[str | None] = []
        self._start(list(self._limits))

    def _start(self, names: Sequence[str]) -> None:
        """Start the guest with the tests of these node ids."""
        files = sorted({name.partition("::")[0] for name in names})
        script = SCRIPT.format(
            pair=self._pair,
            limit=USUAL_TIME_LIMIT,
            options=_options(self._config),
            files=" ".join(files),
            settings=_settings(),
        )
        job = Job(script, {ITEMS: json.dumps(names)})
        self._guest = Guest(machines.machine(self._pair.machine), self._pair.kernel, job, self._path)
        self._limit = BOOT_TIMEOUT
        try:
            self._guest.start()
        except (LabError, OSError) as error:
            self._end(f"{error}")
        self._last_word = time.monotonic()

    def reports_of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        """The item's reports, as they come."""
        name = node_id_inside(item, self._pair)
        given = 0
        while True:
            self._listen()
            reports = self._reports[name]
            over = name in self._finished or name in self._broken or self._over is not None
            while given < len(reports):
                report = reports[given]
                given += 1
                if report.failed:
                    self._failed = True
                    report.sections.append((f"Guest {self._pair}", f"console, kernel log, registers: {self._path}"))
                yield report
            if over:
                break
            time.sleep(POLL)
        if name not in self._finished:
            self._failed = True
            yield self._lost(item, name)
        self._waited_for.discard(name)
        if not self._waited_for:
            self._finish()

    def _listen(self) -> None:
        if self._over is not None:
            return
        running = self._guest.running
        for event in self._guest.events():
            self._last_word = time.monotonic()
            self._take(event)
        if self._guest.status is not None:
            self._end(f"pytest in the guest ended with {self._guest.status} without running this test")
        elif not running:
            if PANIC not in self._guest.console or not self._again("died"):
                self._end(self._guest.obituary("died"))
        elif time.monotonic() - self._last_word > self._limit:
            self._guest.kill()
            stall = self._stall()
            if not stall or not self._again("hung"):
                why = f": its kernel hung ({stall})" if stall else ""
                self._end(self._guest.obituary(f"said nothing for {self._limit:.0f} s and was killed{why}"))

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "start":
                self._running = event["nodeid"]
                self._console_before = len(self._guest.console)
                self._limit = self._limits.get(event["nodeid"], 0.0) + self._grace
            case "report":
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=event["data"])
                if report.failed and (stall := self._stall()):
                    report.sections.append((f"Guest {self._pair}", f"a CPU of it stood still meanwhile: {stall}"))
                self._reports[event["nodeid"]].append(report)
            case "finish":
                self._running = None
                self._finished.add(event["nodeid"])
            case "broken":
                for name in self._limits:
                    if name.startswith(f"{event['nodeid']}::") or name == event["nodeid"]:
                        self._broken[name] = event["text"]
            case "missing":
                self._broken.setdefault(event["nodeid"], "pytest in the guest did not collect this test")

    def _stall(self) -> str:
        """What the kernel said since the test began of a CPU that hangs; empty if it said nothing of the kind."""
        since = self._guest.console[self._console_before :]
        return next((line.strip() for line in since.splitlines() if STALL.search(line)), "")

    def _again(self, fate: str) -> bool:
        """Start another guest for the rest, if this one's kernel has died or hung in this test for the first time."""
        if len(self._died_in) == DEATHS or self._running in self._died_in:
            return False
        self._died_in.append(self._running)
        died = self._path.with_name(f"{self._path.name}.died{len(self._died_in)}")
        warnings.warn(f"the kernel of {self._pair} {fate}, and is booted again; see {died}", stacklevel=1)
        self._guest.kill()
        self._path.rename(died)
        self._path.mkdir()
        self._running = None
        self._console_before = 0
        self._start([name for name in self._limits if name not in self._finished | self._broken.keys()])
        return True

    def _end(self, reason: str) -> None:
        self._over = reason

    def _lost(self, item: pytest.Item, name: str) -> pytest.TestReport:
        """The report of a test that the guest did not finish."""
        what = self._broken.get(name) or self._over or ""
        if name not in self._broken and self._running not in (None, name):
            what = f"not run: while {self._running} ran, {what}"
        when: Literal["call", "setup"] = "call" if self._running == name else "setup"
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", what, when)

    def _finish(self) -> None:
        """All tests have their reports: let the guest power off, and have its results looked at."""
        if self._guest.status is None and not self._guest.running:
            return
        try:
            result = self._guest.wait(self._grace)
        except LabError as error:
            self._failed = True
            warnings.warn(f"all its tests had ended, but {error}", stacklevel=1)
            return
        self._config.hook.pytest_guest_finished(
            config=self._config, machine=self._pair.machine, kernel=self._pair.kernel, result=result
        )

    def close(self) -> None:
        """End the guest, and forget what it left unless somebody may want it."""
        self._guest.kill()
        if not self._failed and not self._config.getoption("--guest-out"):
            shutil.rmtree(self._path)


def _options(config: pytest.Config) -> str:
    chosen = ["-q"]
    if config.getoption("--tb", "auto") != "auto":
        chosen.append(f"--tb={config.getoption('--tb')}")
    return " ".join(chosen)


def _settings() -> str:
    """The variables of :data:`HANDED_ON`, as the shell wants them."""
    found = {name: value for name, value in os.environ.items() if name.startswith(HANDED_ON)}
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in found.items())


def _time_limit(item: pytest.Item) -> float:
    """Seconds that the test may take (pytest-timeout)."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else USUAL_TIME_LIMIT


def _directory(config: pytest.Config, pair: Pair) -> Path:
    if chosen := config.getoption("--guest-out"):
        path = Path(chosen).absolute() / str(pair)
        for old in (path, *path.parent.glob(f"{path.name}.died*")):
            shutil.rmtree(old, ignore_errors=True)
        path.mkdir(parents=True)
        return path
    return Path(tempfile.mkdtemp(prefix=f"vmqos-guest-{pair}-"))
