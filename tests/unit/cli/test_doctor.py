# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from types import MethodType

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.bench import left_paused
from vmqos.bench.left_paused import LeftPaused
from vmqos.local_api.client import AgentClient


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """A host on which resctrl is missing and libvirt answers."""
    path = tmp_path / "vmqos.conf"
    path.write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n[libvirt]\nuri = test:///default\nrun_dir = {tmp_path}\n")
    return str(path)


def test_a_host_that_lacks_something_ends_with_status_1_and_the_command(run: Run, conf: str) -> None:
    ran = run("--config-file", conf, "doctor")
    assert (ran.status, ran.err) == (1, "")
    assert "| resctrl mount " in ran.out
    assert "-> systemctl start vmqos-agent" in ran.out


def test_what_is_fine_can_be_left_out(agent: FakeAgent, run: Run, conf: str) -> None:
    ran = run("--config-file", conf, "doctor", "--problems", "-f", "json")
    findings = json.loads(ran.out)
    assert findings
    assert all(set(finding) == {"title", "status", "detail", "command"} for finding in findings)
    assert all(finding["status"] != "ok" for finding in findings)
    assert "Agent" not in {finding["title"] for finding in findings}


def test_an_agent_that_may_not_count_is_a_warning_with_the_drop_in(agent: FakeAgent, run: Run, conf: str) -> None:
    why = {"unavailable": "the agent lacks CAP_PERFMON", "unavailable_code": "no-capability", "vms": {}}
    agent.answers["/v1/telemetry/hardware-events"] = examples.hardware_events() | why
    ran = run("--config-file", conf, "doctor", "--problems", "-f", "json")
    (found,) = (finding for finding in json.loads(ran.out) if finding["title"] == "Hardware events")
    assert found["status"] == "warning" and found["detail"].startswith("not counted: the agent lacks CAP_PERFMON")
    assert "vmqos-agent.service.d/hardware-events.conf" in found["command"]


def test_a_vm_that_an_experiment_left_paused_is_a_warning_with_the_command_that_lets_it_run(
    run: Run, conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_paused, "DIRECTORY", str(tmp_path / "run"))
    left_paused.note(LeftPaused("nowhere:///", "a-uuid", "batch"))
    ran = run("--config-file", conf, "doctor", "--problems", "-f", "json")
    (found,) = (finding for finding in json.loads(ran.out) if finding["title"] == "Paused VM")
    assert (found["status"], found["command"]) == ("warning", "virsh --connect nowhere:/// resume a-uuid")
    assert "VM batch was paused for an experiment" in found["detail"]
    monkeypatch.setattr("vmqos.host.single_instance.is_running", lambda path, who: True)
    assert "Paused VM" not in run("--config-file", conf, "doctor", "--problems", "-f", "json").out


def test_a_configuration_that_is_wrong_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_text("[allocation]\ndefault_ways_min = none\n")
    ran = run("--config-file", str(tmp_path / "bad.conf"), "doctor")
    assert (ran.status, ran.out) == (1, "")
    assert "default_ways_min" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_gateway_has_time_to_say_that_the_agent_hangs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AgentClient] = []

    def examine(conf: object, ask_agent: MethodType, ask_gateway: MethodType, *_: object, **__: object) -> list[object]:
        asked.extend((ask_agent.__self__, ask_gateway.__self__))
        return []

    monkeypatch.setattr("vmqos.host.doctor.examine", examine)
    run("doctor")
    agent, gateway = asked
    assert gateway.timeout >= agent.timeout + 2.0
