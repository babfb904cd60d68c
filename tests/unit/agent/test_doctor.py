# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmqos.agent import doctor
from vmqos.agent.finding import Finding, Status
from vmqos.conf import loader


def health(**changes: Any) -> dict[str, Any]:
    return {
        "status": "ok",
        "version": "1.0",
        "passes": 3,
        "last_error": None,
        "resctrl": {"error": None},
        "libvirt": {"error": None},
        "vms": {"kept": 3, "pending": 0},
    } | changes


class Silence(Exception):
    """What an agent that does not run is to the one that asks it."""

    command = "systemctl start vmqos-agent"


def silent() -> dict[str, Any]:
    raise Silence("nobody answers on /run/vmqos/agent.sock")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, Status.OK, "VMs: 3 kept"),
        ({"vms": {"kept": 0}}, Status.OK, "no VM runs"),
        ({"status": "degraded", "vms": {"pending": 2}}, Status.WARNING, "VMs: 2 pending"),
        ({"status": "failing", "resctrl": {"error": "not mounted"}}, Status.PROBLEM, "not mounted"),
        ({"status": "a later one's"}, Status.PROBLEM, "VMs"),
    ],
)
def test_a_running_agent_tells_of_itself(changes: dict[str, Any], status: Status, words: str) -> None:
    running, promises = doctor.agent(lambda: health(**changes))
    assert running.status is Status.OK
    assert promises.status is status
    assert words in promises.detail
    assert bool(promises.command) is (status is not Status.OK)


def test_an_agent_that_does_not_answer_is_a_problem_with_the_reason() -> None:
    assert list(doctor.agent(silent)) == [
        Finding("Agent", Status.PROBLEM, "nobody answers on /run/vmqos/agent.sock", "systemctl start vmqos-agent")
    ]


def test_a_host_without_anything_is_examined_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text(
        f"[resctrl]\npath = {tmp_path}/resctrl\n[libvirt]\nuri = test:///default\nrun_dir = {tmp_path}/run\n"
        "[allocation]\ndefault_wais_min = 3\n"
    )
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    findings = doctor.examine(conf, silent, proc=str(tmp_path))
    by_title = {finding.title: finding for finding in findings}
    assert by_title["CPU"].status is Status.PROBLEM
    assert by_title["Kernel"].status is Status.PROBLEM
    assert by_title["resctrl mount"].status is Status.PROBLEM
    assert by_title["libvirt"].status is Status.OK
    assert "default_wais_min is unknown" in by_title["Configuration"].detail
    assert by_title["Agent"].status is Status.PROBLEM
    for finding in findings:
        assert finding.detail
        assert finding.title
