# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from tools.lab.workspace import CHECKOUT
from vmqos.conf import loader
from vmqos.host import doctor
from vmqos.host.finding import Finding, Status
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed


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


LOG = "journalctl --unit vmqos-agent"
LIST = "vmqos vm list"
LIBVIRT = {"error": "libvirt does not answer X"}


@pytest.mark.parametrize(
    ("changes", "status", "words", "command"),
    [
        ({}, Status.OK, "3 passes so far", ""),
        ({"status": "starting", "vms": {}, "passes": 0}, Status.OK, "0 passes so far", ""),
        ({"vms": {"kept": 3, "pending": 2}}, Status.OK, "3 passes so far", ""),
        ({"last_error": "no time"}, Status.OK, "3 passes so far; a pass failed once: no time", ""),
        (
            {"last_error": "no time", "last_error_age_seconds": 7200.2},
            Status.OK,
            "3 passes so far; a pass failed 7200 s ago: no time",
            "",
        ),
        ({"status": "degraded", "libvirt": LIBVIRT}, Status.WARNING, "libvirt does not answer X", LOG),
        (
            {"status": "degraded", "stale": ["vms", "pass"], "ages": {"vms": None, "pass": 6.1, "counters": 1.0}},
            Status.WARNING,
            "what it knows is old: the look at the VMs (never), the last good pass (6 s)",
            LOG,
        ),
        (
            {"status": "degraded", "unserved": {"u1": "no PID file"}},
            Status.WARNING,
            "VM u1 is not served: no PID file",
            LOG,
        ),
        (
            {"libvirt": {"error": None, "starts_watched": False, "watch_error": "/run can't be watched: No such file"}},
            Status.WARNING,
            "VMs that start get their ways only once they run: /run can't be watched: No such file",
            LOG,
        ),
        ({"libvirt": {"error": None, "starts_watched": True, "watch_error": None}}, Status.OK, "3 passes so far", ""),
        ({"status": "failing", "resctrl": {"error": "not mounted"}}, Status.PROBLEM, "not mounted", LOG),
        (
            {"status": "failing", "resctrl": {"error": "not mounted"}, "last_error": "not mounted"},
            Status.PROBLEM,
            "3 passes so far; not mounted",
            LOG,
        ),
        ({"status": "a later one's"}, Status.PROBLEM, "3 passes so far", LOG),
    ],
)
def test_a_running_agent_tells_of_itself(changes: dict[str, Any], status: Status, words: str, command: str) -> None:
    running, _ = doctor.agent(lambda: health(**changes))
    assert (running.title, running.status, running.command) == ("Agent", status, command)
    assert words in running.detail


@pytest.mark.parametrize(
    ("changes", "status", "words", "command"),
    [
        ({}, Status.OK, "VMs: 3 kept", ""),
        ({"vms": {"kept": 0}}, Status.OK, "no VM runs", ""),
        ({"vms": {"kept": 0}, "ages": {"vms": 0.1, "pass": 0.1, "counters": None}}, Status.OK, "no VM runs", ""),
        (
            {"status": "degraded", "vms": {"kept": 0}, "ages": {"vms": None, "pass": None, "counters": 1.0}},
            Status.WARNING,
            "the agent does not know yet which VMs run",
            LOG,
        ),
        (
            {"status": "failing", "vms": {}, "ages": {"vms": 0.1, "pass": None, "counters": 1.0}},
            Status.WARNING,
            "the agent does not know yet which VMs run",
            LOG,
        ),
        ({"vms": {"kept": 1, "pending": 2}}, Status.WARNING, "VMs: 1 kept, 2 pending", LIST),
        ({"vms": {"degraded": 1}}, Status.WARNING, "VMs: 1 degraded", LIST),
        ({"status": "degraded", "libvirt": LIBVIRT}, Status.OK, "VMs: 3 kept", ""),
        ({"status": "starting", "vms": {}}, Status.WARNING, "first look is still under way", "vmqos doctor"),
    ],
)
def test_how_the_promises_stand_is_a_finding_of_its_own(
    changes: dict[str, Any], status: Status, words: str, command: str
) -> None:
    _, found = doctor.agent(lambda: health(**changes))
    assert (found.title, found.status, found.command) == ("Promises", status, command)
    assert words in found.detail


SENT = {"where": "rabbit://h:5672/", "error": None, "sent": 4, "failures": 1, "waiting": 0, "lost": 0}
PLACEMENT = {"where": "Placement", "error": None, "told_at": 1.0, "inventories": {"CUSTOM_LLC_WAYS": 9}}


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"placement": PLACEMENT}, Finding("Placement", Status.OK, "Placement has CUSTOM_LLC_WAYS=9")),
        ({"placement": PLACEMENT | {"told_at": None}}, Finding("Placement", Status.OK, "Placement: not told yet")),
        (
            {"placement": PLACEMENT | {"changed_by_other": "another client has changed it"}},
            Finding("Placement", Status.WARNING, "another client has changed it", "journalctl --unit vmqos-gateway"),
        ),
        (
            {"placement": PLACEMENT | {"error": "refused"}},
            Finding("Placement", Status.WARNING, "refused", "journalctl --unit vmqos-gateway"),
        ),
        ({"nova": {"error": None, "waiting": 0}}, Finding("Nova", Status.OK, "no VM waits for its flavor")),
        ({"nova": {"error": None, "waiting": 2}}, Finding("Nova", Status.OK, "still without their flavor: 2 VMs")),
        (
            {"nova": {"error": "refused", "waiting": 2}},
            Finding("Nova", Status.WARNING, "refused; still without their flavor: 2 VMs", "vmqos vm list"),
        ),
        ({"notifications": SENT}, Finding("Notifications", Status.OK, "rabbit://h:5672/ has taken 4")),
        (
            {"notifications": SENT | {"lost": 2}},
            Finding("Notifications", Status.OK, "rabbit://h:5672/ has taken 4; never sent: 2 events"),
        ),
        (
            {"notifications": SENT | {"error": "refused", "waiting": 3}},
            Finding(
                "Notifications",
                Status.WARNING,
                "rabbit://h:5672/: refused; still to be sent: 3 events",
                "journalctl --unit vmqos-gateway",
            ),
        ),
    ],
)
def test_a_gateway_that_speaks_to_openstack_tells_how_that_goes(changes: dict[str, Any], finding: Finding) -> None:
    running, cloud = doctor.gateway(loader.defaults(), lambda: health(**changes))
    assert running == Finding("Gateway", Status.OK, "vmqos-gateway answers")
    assert cloud == finding


def test_a_change_from_credentials_to_a_file_is_warned_of_before_the_gateway_is_restarted(tmp_path: Path) -> None:
    path = "/etc/nova/provider_config/vmqos.yaml"
    conf = configured(tmp_path, f"[placement]\nprovider_yaml = {path}\n")
    told = health(placement=PLACEMENT | {"where": "Placement, resource provider c7_LLC"})
    _, found = doctor.gateway(conf, lambda: told)
    assert found.status is Status.PROBLEM
    assert path in found.detail and "c7_LLC" in found.detail and "move away the servers" in found.detail
    _, found = doctor.gateway(conf, lambda: health(placement=PLACEMENT | {"where": path}))
    assert found.status is Status.OK
    assert len(list(doctor.gateway(conf, lambda: health(placement=None)))) == 1


@pytest.mark.parametrize("changes", [{}, {"placement": None, "nova": None, "notifications": None}])
def test_a_gateway_that_does_not_has_nothing_to_tell_of_it(changes: dict[str, Any]) -> None:
    assert len(list(doctor.gateway(loader.defaults(), lambda: health(**changes)))) == 1


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("", Status.WARNING, "there are no metrics and no page"),
        ("[placement]\nprovider_yaml = /etc/nova/vmqos.yaml\n", Status.PROBLEM, "OpenStack is told and asked nothing"),
        ("[nova]\nauth_type = password\n", Status.PROBLEM, "OpenStack is told and asked nothing"),
        ("[notifications]\ntransport_url = rabbit://h/\n", Status.PROBLEM, "OpenStack is told and asked nothing"),
    ],
)
def test_a_gateway_that_does_not_run_costs_what_the_configuration_wants_of_it(
    tmp_path: Path, text: str, status: Status, words: str
) -> None:
    (found,) = doctor.gateway(
        configured(tmp_path, text), AgentClient(str(tmp_path / "none"), program="vmqos-gateway").health
    )
    assert (found.title, found.status, found.command) == ("Gateway", status, "systemctl start vmqos-gateway")
    assert words in found.detail and "vmqos-gateway does not run" in found.detail


def test_a_gateway_that_nothing_is_wanted_of_need_not_run(tmp_path: Path) -> None:
    assert list(doctor.gateway(configured(tmp_path, "[http]\nport = 0\n"), silent)) == []


def test_a_gateway_whose_agent_is_away_is_fine_itself() -> None:
    def waits() -> dict[str, Any]:
        raise AgentFailed("vmqos-gateway", text="vmqos-agent does not run", status=503)

    (found,) = doctor.gateway(loader.defaults(), waits)
    assert found == Finding("Gateway", Status.OK, "vmqos-gateway answers, and waits for the agent")


def test_an_agent_that_does_not_answer_is_a_problem_with_the_reason() -> None:
    assert list(doctor.agent(silent)) == [
        Finding("Agent", Status.PROBLEM, "nobody answers on /run/vmqos/agent.sock", "systemctl start vmqos-agent")
    ]


LACKS = "the agent lacks CAP_PERFMON"


@pytest.mark.parametrize(
    ("code", "paranoid", "status", "command"),
    [
        ("", "4", Status.OK, ""),
        ("switched-off", "4", Status.OK, ""),
        ("no-events", "4", Status.OK, ""),
        ("no-capability", "2", Status.WARNING, doctor.LET_COUNT),
        ("no-capability", "-1", Status.WARNING, doctor.LET_COUNT),
        ("no-capability", None, Status.WARNING, doctor.LET_COUNT),
        ("no-capability", "3", Status.WARNING, f"{doctor.LESS_PARANOID} && {doctor.LET_COUNT}"),
        ("not-permitted", "3", Status.WARNING, doctor.LESS_PARANOID),
        ("not-permitted", "2", Status.WARNING, doctor.LET_COUNT),
        ("refused", "3", Status.WARNING, LOG),
    ],
)
@pytest.mark.parametrize("by_packages", [False, True])
def test_an_agent_that_may_not_count_is_told_with_what_that_costs_and_the_command(
    tmp_path: Path, code: str, paranoid: str | None, status: Status, command: str, by_packages: bool
) -> None:
    if paranoid is not None:
        (tmp_path / "sys/kernel").mkdir(parents=True)
        (tmp_path / "sys/kernel/perf_event_paranoid").write_text(f"{paranoid}\n")
    told: dict[str, Any] = {"unavailable": LACKS if code else "", "unavailable_code": code, "vms": {}}
    if by_packages:
        told |= {"unavailable": "", "vms": {"u": {"reason": LACKS}}}
    (found,) = doctor.hardware_events(lambda: told, str(tmp_path))
    assert (found.title, found.status, found.command) == ("Hardware events", status, command)
    assert (LACKS in found.detail) is bool(code)
    assert ("how fast the VMs run" in found.detail) is (status is Status.WARNING)


def test_an_agent_that_does_not_tell_what_it_counts_is_no_finding_of_its_own() -> None:
    assert list(doctor.hardware_events(silent)) == []
    assert list(doctor.hardware_events(lambda: {"unavailable": "an earlier agent's", "vms": {}})) == []


def test_the_command_that_lets_the_agent_count_writes_the_drop_in_of_the_guide(tmp_path: Path) -> None:
    written = doctor.LET_COUNT.partition(" && ")[0]
    assert doctor.LET_COUNT.endswith(" && systemctl daemon-reload && systemctl restart vmqos-agent")
    (path,) = re.findall(r"/etc/\S+", written)
    subprocess.run(["bash", "-c", written.replace("/etc/", f"{tmp_path}/etc/")], check=True)
    guide = (CHECKOUT / "doc/source/operator/telemetry.rst").read_text()
    ((words, path_of_guide),) = re.findall(r"printf '%s\\n' (.*?) \|\s+sudo tee (\S+)", guide)
    assert (tmp_path / path.removeprefix("/")).read_text().splitlines() == shlex.split(words)
    assert path == path_of_guide
    assert all(line in guide for line in ("kernel.perf_event_paranoid = 2", "/etc/sysctl.d/60-perf.conf"))


def configured(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    path = tmp_path / "vmqos.conf"
    path.write_text(text)
    return loader.load(["--config-file", str(path)])


def test_a_host_without_anything_is_examined_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text(
        f"[resctrl]\npath = {tmp_path}/resctrl\n[libvirt]\nuri = test:///default\nrun_dir = {tmp_path}/run\n"
        "[allocation]\ndefault_wais_min = 3\n"
    )
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    findings = doctor.examine(conf, silent, silent, silent, proc=str(tmp_path))
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


@pytest.mark.parametrize(
    ("mode", "status", "command"),
    [(0o644, Status.WARNING, "chmod 640 '{}'"), (0o640, Status.OK, ""), (0o600, Status.OK, "")],
)
def test_a_file_with_credentials_that_everybody_may_read_is_a_warning(
    tmp_path: Path, mode: int, status: Status, command: str
) -> None:
    path = tmp_path / "a file.conf"
    path.write_text("[placement]\nauth_type = admin_token\ntoken = x\n")
    path.chmod(mode)
    conf = loader.load(["--config-file", str(path)])
    found = {finding.title: finding for finding in doctor.examine(conf, silent, silent, silent, proc=str(tmp_path))}
    assert found["Credentials"].status is status
    assert found["Credentials"].command == command.format(path)
    assert str(path) in found["Credentials"].detail


def test_a_host_without_credentials_is_not_told_of_any(tmp_path: Path) -> None:
    assert list(doctor.secrets([])) == []
    assert list(doctor.secrets([str(tmp_path / "gone.conf")])) == []
