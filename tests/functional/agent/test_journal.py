# SPDX-License-Identifier: Apache-2.0
"""What the agent says, in a real systemd-journald: real VMs on the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.conftest import MakeVm, Pace, WaitFor
from tools.lab.agent import Agent
from tools.lab.program import Program
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT

NAMESPACE = "vmqos-test"

START = f"""\
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir -p /run/systemd/journal.{NAMESPACE} /run/systemd/journal
mount --bind /run/systemd/journal.{NAMESPACE} /run/systemd/journal
exec /lib/systemd/systemd-journald {NAMESPACE}
"""
"""A journal that the host's programs do not see, and where the programs in its mount namespace look for theirs."""

CONNECTED = 'cd "$0" && JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"'
"""What systemd does for a service beside what systemd-cat does: it says which stream is the journal's."""


@dataclass(frozen=True)
class Journald:
    """A running journal.

    :ivar pid: its process.
    """

    pid: int

    def launch(self, module: str, arguments: Sequence[str], log: Path) -> Program:
        """Start a program whose output goes to the journal (:data:`tools.lab.program.Launch`)."""
        service = ["systemd-cat", "--identifier=vmqos-agent", "sh", "-c", CONNECTED, str(CHECKOUT)]
        command = [*self._inside(), *service, sys.executable, "-m", module, *arguments]
        with log.open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def lines(self, *wanted: str) -> list[dict[str, str]]:
        """The entries that journalctl finds."""
        command = [*self._inside(), "journalctl", f"--namespace={NAMESPACE}", "--no-pager", "-o", "json", *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _inside(self) -> list[str]:
        return ["nsenter", "--mount", f"--target={self.pid}"]


@pytest.fixture
def journald(tmp_path: Path, simulator: Simulator, wait_for: WaitFor) -> Iterator[Journald]:
    command = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation", "slave", "sh", "-c", START]
    said = tmp_path / "journald.log"
    with said.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(
            lambda: Path(f"/proc/{process.pid}/root/run/systemd/journal/stdout").is_socket(), "the journal's start"
        )
        yield Journald(process.pid)
    finally:
        print(said.read_text())
        process.kill()
        process.wait()


@pytest.fixture
def pace(pace: Pace, request: pytest.FixtureRequest) -> Pace:
    """Agents that are started as systemd starts them."""

    def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
        started: Journald = request.getfixturevalue("journald")
        return started.launch(module, arguments, log)

    return replace(pace, launch=launch)


def test_the_journal_finds_all_that_became_of_a_vms_promise_and_has_each_line_once(
    journald: Journald, agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    first = make_vm({"hw:cache_ways": "9"})
    wait_for_vm(first, "kept")
    vm = make_vm({"hw:cache_ways": "8"})
    wait_for_vm(vm, "pending")
    first.domain.destroy()
    wait_for_vm(vm, "kept")
    events = [event for event in agent.get("/v1/events")["events"] if event["uuid"] == vm.uuid]
    vm.domain.destroy()

    def entries() -> list[dict[str, str]]:
        return journald.lines(f"VMQOS_VM={vm.uuid}")

    wait_for(lambda: [one.get("VMQOS_STATE") for one in entries()][-1:] == ["ended"], "its end in the journal")
    found = entries()
    numbered = {int(entry["VMQOS_EVENT"]): entry for entry in found if "VMQOS_EVENT" in entry}
    for event in events:
        # A promise that has another group, and is kept as before, is an event and no line.
        entry = numbered.get(event["number"])
        assert entry or event["state"] == event["before"], event
        if entry:
            assert (entry["VMQOS_STATE"], entry.get("VMQOS_REASON_CODE", "")) == (event["state"], event["reason_code"])
            assert entry["PRIORITY"] == ("4" if event["state"] in ("pending", "degraded") else "6")
    assert {"kept", "pending", "ended"} <= {entry.get("VMQOS_STATE") for entry in found}
    assert {entry["_PID"] for entry in found} == {str(agent.pid)}

    everything = journald.lines("SYSLOG_IDENTIFIER=vmqos-agent")
    prefix = f"VM {vm.uuid} ({vm.name}): "
    lines = [entry["MESSAGE"] for entry in everything if prefix in entry["MESSAGE"]]
    assert lines == [entry["MESSAGE"] for entry in found]
    ended = [event for event in agent.get("/v1/events")["events"] if event["kind"] == "ended"]
    assert found[-1]["VMQOS_EVENT"] in [str(event["number"]) for event in ended if event["uuid"] == vm.uuid]
    # The lines without fields come as before, over the stream.
    assert {entry["_TRANSPORT"] for entry in everything} == {"journal", "stdout"}
