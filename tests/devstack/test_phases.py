# SPDX-License-Identifier: Apache-2.0
"""What the plugin asks of DevStack, phase by phase; DevStack's functions are stand-ins that write it down."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from tests.devstack.stack import (
    ALL_IN_ONE,
    CHECKOUT,
    COMPUTE,
    CONTROLLER,
    FILTERS,
    STACK,
    Call,
    Refused,
    Stack,
    names,
)
from vmqos.conf import loader

NODES = {"all in one": ALL_IN_ONE, "controller": CONTROLLER, "compute": COMPUTE}
FILTER = "nova_plugin.scheduler.filters.CacheWaysFilter"
WEIGHER = "nova_plugin.scheduler.weights.CacheWaysWeigher"

NOVA = {
    ("filter_scheduler", "enabled_filters"): f"{FILTERS},CacheWaysFilter",
    ("filter_scheduler", "available_filters"): f"nova.scheduler.filters.all_filters\n{FILTER}",
    ("filter_scheduler", "weight_classes"): f"nova.scheduler.weights.all_weighers,{WEIGHER}",
}


AGENT, WITHDRAW = "devstack@vmqos-agent.service", "devstack@vmqos-withdraw"


def mount_calls(calls: Iterable[Call]) -> list[str]:
    """What systemd was asked of the mount of resctrl."""
    return [line for line in names(calls, "systemctl") if "sys-fs-resctrl.mount" in line]


def unit(file: Path) -> dict[str, dict[str, str]]:
    """The sections of a unit; of an option that is there several times, the last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file.read_text())
    return {name: dict(parser[name]) for name in parser.sections()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "machine"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("all in one", ["setup_develop {dest}/vmqos agent,simulator"]),
        ("controller", ["setup_develop {dest}/vmqos cli"]),
        ("compute", ["setup_develop {dest}/vmqos agent,simulator"]),
    ],
)
def test_a_node_gets_the_extras_that_its_services_need(root: Path, node: str, expected: list[str]) -> None:
    made = Stack(root, NODES[node]).run("stack install")
    assert names(made, "setup_develop") == [line.format(dest=root / "stack") for line in expected]


@pytest.mark.parametrize(
    ("node", "started"),
    [
        ("all in one", ["vmqos-simulator", "vmqos-agent", "vmqos-gateway"]),
        ("controller", []),
        ("compute", ["vmqos-simulator", "vmqos-agent", "vmqos-gateway"]),
    ],
)
def test_the_services_are_started_in_order_where_nova_compute_runs(root: Path, node: str, started: list[str]) -> None:
    made = Stack(root, NODES[node]).stack()
    assert [call[1] for call in made if call[0] == "run_process"] == started


@pytest.mark.parametrize(("node", "configured"), [("all in one", True), ("controller", True), ("compute", False)])
def test_the_scheduler_is_configured_where_it_runs(root: Path, node: str, configured: bool) -> None:
    stack = Stack(root, NODES[node])
    before = stack.options("nova.conf")
    stack.stack()
    assert stack.options("nova.conf") == (NOVA if configured else before)


@pytest.mark.parametrize(("node", "made"), [("all in one", True), ("controller", True), ("compute", False)])
def test_the_agents_user_is_made_where_keystone_runs(root: Path, node: str, made: bool) -> None:
    calls = Stack(root, NODES[node]).stack()
    assert names(calls, "create_service_user") == ["create_service_user vmqos"] * made


@pytest.mark.parametrize(("node", "merged"), [("all in one", True), ("controller", True), ("compute", False)])
def test_gnocchi_gets_the_meters_where_the_notification_agent_runs(root: Path, node: str, merged: bool) -> None:
    stack = Stack(root, NODES[node])
    calls = stack.stack()
    resources = stack.ceilometer / "gnocchi_resources.yaml"
    assert names(calls, "vmqos") == [f"vmqos gnocchi-resources merge {resources} --write"] * merged
    assert resources.exists() == merged


def test_without_gnocchi_its_resources_are_left_alone(root: Path) -> None:
    stack = Stack(root, CEILOMETER_BACKENDS="sg-core")
    assert names(stack.stack(), "vmqos") == []
    assert not (stack.ceilometer / "gnocchi_resources.yaml").exists()


def test_a_copy_of_gnocchis_resources_that_is_there_is_added_to(root: Path) -> None:
    stack = Stack(root)
    resources = stack.ceilometer / "gnocchi_resources.yaml"
    resources.write_text("resources: [] # mine\n")
    stack.stack()
    assert resources.read_text() == "resources: [] # mine\n"


def test_the_agent_is_told_where_resctrl_libvirt_and_placement_are(root: Path) -> None:
    stack = Stack(root)
    calls = stack.stack()
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    assert stack.options("vmqos.conf") == {
        ("DEFAULT", "debug"): "True",
        ("resctrl", "path"): f"{root}/run/vmqos-sim/resctrl",
        ("resctrl", "sysfs_cpu_path"): f"{root}/run/vmqos-sim/cpu",
        ("libvirt", "uri"): "qemu:///system",
        ("resctrl", "readers_group"): group,
        ("api", "socket_group"): group,
        ("gateway", "user"): str(root.owner()),
        ("gateway", "socket"): f"{root}/data/vmqos/gateway.sock",
        ("placement", "region_name"): "RegionOne",
    }
    assert names(calls, "configure_keystoneauth") == [f"configure_keystoneauth {stack.agent_conf} vmqos placement"]
    assert names(calls, "setup_logging") == [f"setup_logging {stack.agent_conf}"]


def test_nobody_else_may_read_the_agents_password(root: Path) -> None:
    stack = Stack(root)
    stack.stack()
    assert stack.agent_conf.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("services", "option", "value"),
    [
        (f"{ALL_IN_ONE},tls-proxy", "cafile", "/bundle.pem"),
        (ALL_IN_ONE, "cafile", None),
        (COMPUTE, "region_name", "RegionOne"),
        ("n-cpu", "region_name", None),
    ],
)
def test_the_agent_is_told_of_placement_as_far_as_the_node_knows(
    root: Path, services: str, option: str, value: str | None
) -> None:
    stack = Stack(root, services)
    stack.stack()
    assert stack.options("vmqos.conf").get(("placement", option)) == value


@pytest.mark.parametrize(
    ("rdt", "wanted", "simulated"),
    [
        ("False", "auto", True),
        ("True", "auto", False),
        ("True", "True", True),
        ("False", "False", False),
    ],
)
def test_resctrl_is_simulated_where_there_is_no_rdt_or_where_local_conf_says_so(
    root: Path, rdt: str, wanted: str, simulated: bool
) -> None:
    stack = Stack(root, RDT=rdt, VMQOS_SIMULATE=wanted)
    calls = stack.stack()
    path = f"{root}/run/vmqos-sim/resctrl" if simulated else "/sys/fs/resctrl"
    assert stack.options("vmqos.conf")["resctrl", "path"] == path
    assert stack.options("ceilometer.conf") == {("vmqos", "resctrl_path"): path}
    assert any(call[:2] == ("run_process", "vmqos-simulator") for call in calls) == simulated
    assert (stack.systemd / "sys-fs-resctrl.mount").exists() != simulated
    assert (root / "mounts").read_text() == f"{path}\n"


@pytest.mark.parametrize("rdt", ["False", "True"])
def test_resctrl_is_there_before_any_service_of_the_phase_extra_starts(root: Path, rdt: str) -> None:
    stack = Stack(root, RDT=rdt)
    stack.run("stack pre-install", "stack install", "stack post-config")
    assert (root / "mounts").read_text()


def test_the_services_are_waited_for(root: Path) -> None:
    stack = Stack(root)
    relevant = [call[:3] for call in stack.stack() if call[0] in ("run_process", "test_with_retry")]
    binary = f"{root}/bin"
    assert relevant == [
        (
            "run_process",
            "vmqos-simulator",
            f"{binary}/vmqos simulate {root}/run/vmqos-sim/resctrl --profile cascade-lake "
            f"--sysfs {root}/run/vmqos-sim/cpu",
        ),
        ("test_with_retry", f"mountpoint -q {root}/run/vmqos-sim/resctrl", "vmqos-simulator did not start"),
        ("run_process", "vmqos-agent", f"{binary}/vmqos-agent --config-file {stack.agent_conf}"),
        (
            "test_with_retry",
            f"{binary}/vmqos --config-file {stack.agent_conf} vm list >/dev/null 2>&1",
            "vmqos-agent did not start",
        ),
        ("run_process", "vmqos-gateway", f"{binary}/vmqos-gateway --config-file {stack.agent_conf}"),
        (
            "test_with_retry",
            f"{binary}/vmqos --socket {root}/data/vmqos/gateway.sock vm list >/dev/null 2>&1",
            "vmqos-gateway did not start",
        ),
    ]


@pytest.mark.parametrize(
    ("node", "variables", "there"),
    [
        ("all in one", {}, True),
        ("controller", {}, False),
        ("compute", {}, True),
        ("compute", {"DISABLED_SERVICES": "vmqos-agent"}, False),
        ("compute", {"VIRT_DRIVER": "fake"}, False),
    ],
)
def test_a_host_is_withdrawn_when_its_agent_stays_away(
    root: Path, node: str, variables: dict[str, str], there: bool
) -> None:
    stack = Stack(root, NODES[node], **variables)
    calls = stack.stack()
    timer, service = (stack.systemd / f"{WITHDRAW}.{kind}" for kind in ("timer", "service"))
    assert [timer.exists(), service.exists(), (stack.systemd / f"{AGENT}.d").exists()] == [there] * 3
    assert (("systemctl", "enable", timer.name) in calls) == there
    if not there:
        return
    shipped = unit(CHECKOUT / "etc/systemd/vmqos-withdraw.timer")
    assert unit(timer) == shipped | {"Unit": shipped["Unit"] | {"Before": AGENT}}
    command = f"{root}/bin/vmqos"
    found, shipped = unit(service), unit(CHECKOUT / "etc/systemd/vmqos-withdraw.service")
    changed = {
        "ExecCondition": f"/bin/sh -c '! /bin/systemctl --quiet is-active {AGENT}'",
        "ExecStart": f"{command} --config-file {stack.agent_conf} placement withdraw",
    }
    assert found["Service"] == shipped["Service"] | changed
    assert found["Unit"] == shipped["Unit"] | {"ConditionPathExists": command}


def test_the_agents_end_starts_the_timer_and_its_start_ends_it(root: Path) -> None:
    stack = Stack(root)
    calls = stack.stack()
    assert unit(stack.systemd / f"{AGENT}.d/withdraw.conf") == {
        "Service": {
            "ExecStartPost": f"-+/bin/systemctl --no-block stop {WITHDRAW}.timer {WITHDRAW}.service",
            "ExecStopPost": f"-+/bin/systemctl --no-block start {WITHDRAW}.timer",
        }
    }
    # systemd has to know of it when the agent starts.
    assert calls.index(("systemctl", "enable", f"{WITHDRAW}.timer")) < next(
        index for index, call in enumerate(calls) if call[:2] == ("run_process", "vmqos-agent")
    )


def test_unstack_ends_the_timer_after_the_agent_whose_end_starts_it(root: Path) -> None:
    stack = Stack(root)
    stack.stack()
    made = [" ".join(call) for call in stack.run("unstack")]
    wanted = [
        "stop_process vmqos-agent",
        f"systemctl stop {WITHDRAW}.timer",
        f"systemctl stop {WITHDRAW}.service",
        f"systemctl disable {WITHDRAW}.timer",
        "systemctl daemon-reload",
    ]
    assert [line for line in made if line in wanted] == wanted
    assert not [path for path in stack.systemd.rglob("*") if "withdraw" in path.name or path.name == f"{AGENT}.d"]


def test_the_gateway_runs_as_the_user_of_all_services_and_the_others_as_root(root: Path) -> None:
    started = {call[1]: call[3:] for call in Stack(root).stack() if call[0] == "run_process"}
    assert started == {"vmqos-simulator": ("", "root"), "vmqos-agent": ("", "root"), "vmqos-gateway": ()}


@pytest.mark.parametrize(
    ("disabled", "started"),
    [
        ("vmqos-agent", []),
        ("vmqos-gateway", ["vmqos-simulator", "vmqos-agent"]),
        ("vmqos-simulator", ["vmqos-simulator", "vmqos-agent", "vmqos-gateway"]),
    ],
)
def test_a_service_that_local_conf_disables_is_not_waited_for(root: Path, disabled: str, started: list[str]) -> None:
    """DevStack's run_process leaves alone what is not enabled."""
    made = Stack(root, DISABLED_SERVICES=disabled).stack()
    assert [call[1] for call in made if call[0] == "run_process"] == started
    assert not [line for line in names(made, "test_with_retry") if f"{disabled} did not start" in line]


def test_a_node_whose_vms_are_not_libvirts_gets_no_agent(root: Path) -> None:
    stack = Stack(root, VIRT_DRIVER="fake")
    made = stack.stack()
    assert names(made, "run_process") == [] and not stack.agent_conf.exists()
    assert stack.options("nova.conf") == NOVA


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"USE_VENV": "True"}, "USE_VENV"),
        ({"USER_UNITS": "True"}, "the agent needs root"),
        ({"DEVSTACK_PLUGINS": ",vmqos,ceilometer"}, "ceilometer has to stand before"),
        ({"DEVSTACK_PLUGINS": ",vmqos,foo,ceilometer,bar"}, "ceilometer has to stand before"),
    ],
)
def test_what_could_not_work_is_refused_before_anything_is_installed(
    root: Path, variables: dict[str, str], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        Stack(root, **variables).run("stack pre-install")


@pytest.mark.parametrize(
    ("services", "variables"),
    [
        (CONTROLLER, {"USER_UNITS": "True"}),
        (ALL_IN_ONE, {"DEVSTACK_PLUGINS": ",vmqos"}),
        (ALL_IN_ONE, {"DEVSTACK_PLUGINS": ",ceilometer,foo,vmqos"}),
        (ALL_IN_ONE, {"DEVSTACK_PLUGINS": ",vmqos,my-ceilometer"}),
    ],
)
def test_what_can_work_is_not_refused(root: Path, services: str, variables: dict[str, str]) -> None:
    assert Stack(root, services, **variables).run("stack pre-install") == [("define_plugin", "vmqos")]


def test_the_meters_are_not_polled_twice_where_all_are_polled(root: Path) -> None:
    stack = Stack(root)
    before = (stack.ceilometer / "polling.yaml").read_text()
    stack.stack()
    assert (stack.ceilometer / "polling.yaml").read_text() == before


@pytest.mark.parametrize("times", [1, 2])
def test_the_meters_get_a_source_where_only_some_are_polled(root: Path, times: int) -> None:
    stack = Stack(root)
    polling = stack.ceilometer / "polling.yaml"
    polling.write_text("---\nsources:\n    - name: some\n      interval: 300\n      meters:\n        - cpu\n")
    for _ in range(times):
        stack.stack()
    sources = yaml.safe_load(polling.read_text())["sources"]
    assert [source["name"] for source in sources] == ["some", "vmqos"]
    assert "cpu_l3_cache" in sources[1]["meters"]


@pytest.mark.parametrize("rdt", ["False", "True"])
@pytest.mark.parametrize("node", NODES)
def test_stacking_again_changes_nothing(root: Path, node: str, rdt: str) -> None:
    def everything() -> tuple[object, ...]:
        contents = {name: (root / name).read_bytes() for name in stack.files()}
        return contents, [stack.options(file) for file in ("nova.conf", "vmqos.conf", "ceilometer.conf")]

    stack = Stack(root, NODES[node], RDT=rdt)
    stack.stack()
    once = everything()
    stack.stack()
    assert everything() == once


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("filter_scheduler", "available_filters", "nova.scheduler.filters.all_filters\nmine.Filter"),
        ("filter_scheduler", "weight_classes", "nova.scheduler.weights.ram.RAMWeigher, mine.Weigher"),
        ("filter_scheduler", "enabled_filters", "ComputeFilter, mine"),
    ],
)
def test_what_others_told_the_scheduler_stays(root: Path, section: str, name: str, value: str) -> None:
    stack = Stack(root)
    stack.set_option("nova.conf", section, name, value)
    stack.stack()
    changed = stack.options("nova.conf")[section, name]
    assert changed.startswith((value, value.replace(" ", ""))) and "CacheWays" in changed
    stack.run("unstack")
    stack.run("clean")
    assert stack.options("nova.conf")[section, name] in (value, value.replace(" ", ""))


@pytest.mark.parametrize("rdt", ["False", "True"])
def test_unstack_ends_the_agent_then_takes_the_groups_back_then_resctrl(root: Path, rdt: str) -> None:
    stack = Stack(root, RDT=rdt)
    stack.stack()
    made = [" ".join(call) for call in stack.run("unstack")]
    last = "systemctl stop sys-fs-resctrl.mount" if rdt == "True" else "stop_process vmqos-simulator"
    stopped = ["stop_process vmqos-gateway", "stop_process vmqos-agent"]
    wanted = [*stopped, f"sudo {root}/bin/vmqos --config-file {stack.agent_conf} reset --yes", last]
    assert [line for line in made if line in wanted] == wanted
    assert (root / "mounts").read_text() == ""


def test_unstack_stops_the_simulator_even_if_local_conf_says_meanwhile_that_there_shall_be_none(root: Path) -> None:
    stack = Stack(root)
    stack.stack()
    stack.variables["VMQOS_SIMULATE"] = "False"
    stack.run("unstack")
    assert (root / "mounts").read_text() == ""


def test_resctrl_that_was_mounted_before_stays_mounted(root: Path) -> None:
    stack = Stack(root, RDT="True")
    (root / "mounts").write_text("/sys/fs/resctrl\n")
    assert mount_calls(stack.stack()) == []
    stack.run("unstack")
    assert (root / "mounts").read_text() == "/sys/fs/resctrl\n"


@pytest.mark.parametrize(
    ("mounted", "calls"), [("/sys/fs/resctrl\n", []), ("", ["systemctl start sys-fs-resctrl.mount"])]
)
def test_a_mount_unit_of_the_operators_own_is_used_and_stays(root: Path, mounted: str, calls: list[str]) -> None:
    stack = Stack(root, RDT="True")
    unit = stack.systemd / "sys-fs-resctrl.mount"
    unit.write_text("[Unit]\nDescription=My resctrl\n")
    (root / "mounts").write_text(mounted)
    assert mount_calls(stack.stack()) == calls
    stack.run("unstack")
    stack.run("clean")
    assert unit.read_text() == "[Unit]\nDescription=My resctrl\n"


def test_resctrl_stays_mounted_while_others_have_groups_there(root: Path) -> None:
    stack = Stack(root, RDT="True", GROUPS_LEFT="/sys/fs/resctrl/qemu-1-vm-vcpus_0")
    stack.stack()
    made = stack.run("unstack")
    assert (root / "mounts").read_text() == "/sys/fs/resctrl\n"
    assert [line for line in names(made, "warn") if "qemu-1-vm-vcpus_0" in line]
    stack.variables["GROUPS_LEFT"] = ""
    stack.run("unstack")
    assert (root / "mounts").read_text() == "" and not (stack.systemd / "sys-fs-resctrl.mount").exists()


@pytest.mark.parametrize("rdt", ["False", "True"])
@pytest.mark.parametrize("node", NODES)
def test_unstack_and_clean_leave_what_was_there_before(root: Path, node: str, rdt: str) -> None:
    stack = Stack(root, NODES[node], RDT=rdt)
    files, options = stack.files(), stack.options("nova.conf")
    stack.stack()
    stack.run("unstack")
    # Ceilometer's plugin cleans before this one: enable_plugin has it first.
    for path in stack.ceilometer.iterdir():
        path.unlink()
    stack.run("clean")
    assert stack.files() == {name for name in files if not name.startswith("etc/ceilometer/")}
    assert stack.options("nova.conf") == options
    assert not stack.agent_conf.parent.exists()
    assert not (root / "mounts").exists() or (root / "mounts").read_text() == ""


def test_clean_takes_away_what_agent_and_gateway_leave_to_the_next_ones(root: Path) -> None:
    stack = Stack(root)
    stack.stack()
    left = loader.defaults().telemetry.minutes_file
    kept = next(word for word in names(stack.run("unstack") + stack.run("clean"), "sudo") if left in word)
    assert kept.startswith(f"sudo rm -f {left} ") and kept.endswith("gateway.counters")


@pytest.mark.parametrize("phases", [("unstack",), ("clean",), ("unstack", "unstack", "clean", "clean")])
def test_there_is_nothing_to_undo_where_nothing_was_done(root: Path, phases: tuple[str, ...]) -> None:
    stack = Stack(root)
    files, options = stack.files(), stack.options("nova.conf")
    for phase in phases:
        stack.run(phase)
    assert stack.files() == files and stack.options("nova.conf") == options


def test_a_machine_that_stopped_halfway_is_cleaned_too(root: Path) -> None:
    stack = Stack(root)
    stack.run(*STACK[:3])
    stack.run("unstack")
    stack.run("clean")
    assert not stack.agent_conf.exists() and (root / "mounts").read_text() == ""


@pytest.mark.parametrize(("global_venv", "removed"), [("True", []), ("False", ["pip_uninstall vmqos"])])
def test_the_package_leaves_the_python_environment_unless_that_leaves_as_a_whole(
    root: Path, global_venv: str, removed: list[str]
) -> None:
    assert names(Stack(root, GLOBAL_VENV=global_venv).run("clean"), "pip_uninstall") == removed


@pytest.mark.parametrize("phase", ["stack some-later-phase", "stack test-config", "some-later-mode"])
def test_a_phase_that_has_nothing_to_do_does_nothing(root: Path, phase: str) -> None:
    assert Stack(root).run(phase) == [("define_plugin", "vmqos")]
