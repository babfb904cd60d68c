# SPDX-License-Identifier: Apache-2.0
"""The plugin's phases with DevStack's own functions, and the services that come of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from oslo_config import cfg

from tests.devstack.real.conftest import MakeNode
from tests.devstack.real.node import Node
from tests.devstack.stack import FILTERS, STACK
from tools.lab import processes, vms
from tools.lab.private_libvirt import PrivateLibvirt
from vmqos.conf import loader

UNITS = [
    "devstack@vmqos-agent.service",
    "devstack@vmqos-gateway.service",
    "devstack@vmqos-simulator.service",
    "devstack@vmqos-withdraw.service",
    "devstack@vmqos-withdraw.timer",
]


def read(file: Path, section: str, options: list[cfg.Opt]) -> Any:
    """A file as the services read it."""
    conf = cfg.ConfigOpts()
    conf.register_opts(options, group=section)
    conf(["--config-file", str(file)])
    return conf[section]


def scheduler(file: Path) -> Any:
    """Nova's options of the scheduler that concern the plugin, with Nova's defaults."""
    return read(
        file,
        "filter_scheduler",
        [
            cfg.MultiStrOpt("available_filters", default=["nova.scheduler.filters.all_filters"]),
            cfg.ListOpt("enabled_filters", default=[]),
            cfg.ListOpt("weight_classes", default=["nova.scheduler.weights.all_weighers"]),
        ],
    )


def verdict(unit: Path) -> str:
    """What systemd has against a unit."""
    command = ["systemd-analyze", "verify", "--man=no", "--generators=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    # The machine's own units may have faults, too.
    return "".join(line for line in checked.stderr.splitlines(keepends=True) if unit.name in line)


def test_nova_scheduler_gets_the_filter_and_the_weigher(stacked: Node) -> None:
    found = scheduler(stacked.nova_conf)
    assert found.available_filters == [
        "nova.scheduler.filters.all_filters",
        "nova_plugin.scheduler.filters.CacheWaysFilter",
    ]
    assert found.enabled_filters == [*FILTERS.split(","), "CacheWaysFilter"]
    assert found.weight_classes == [
        "nova.scheduler.weights.all_weighers",
        "nova_plugin.scheduler.weights.CacheWaysWeigher",
    ]


def test_the_package_goes_into_the_global_environment_with_devstacks_constraints(stacked: Node) -> None:
    constraints = f"{stacked.root}/stack/requirements/upper-constraints.txt"
    assert stacked.calls("edit-constraints") == [f"edit-constraints {constraints} -- vmqos"]
    assert stacked.calls("pip") == [f"pip install -c {constraints} -e {stacked.root}/stack/vmqos[agent,simulator]"]


def test_the_agent_knows_every_option_that_is_written_for_it(stacked: Node) -> None:
    conf = loader.load([f"--config-file={stacked.agent_conf}"])
    assert list(loader.unknown_options(conf)) == []
    assert conf.resctrl.path == str(stacked.resctrl)


def test_the_user_of_the_agent_has_the_role_service(stacked: Node) -> None:
    made = stacked.calls("openstack")
    assert any(" user create vmqos --password secret " in line for line in made)
    assert any(" role add service --user vmqos --project service " in line for line in made)


def test_the_agent_logs_in_to_placement_as_that_user(stacked: Node) -> None:
    from keystoneauth1 import loading

    conf = cfg.ConfigOpts()
    loading.register_auth_conf_options(conf, "placement")
    loading.register_adapter_conf_options(conf, "placement")
    conf(["--config-file", str(stacked.agent_conf)])
    plugin = loading.load_auth_from_conf_options(conf, "placement")
    adapter = loading.load_adapter_from_conf_options(conf, "placement", session=loading.session.Session())
    assert plugin.auth_url == "http://127.0.0.1/identity"
    assert (plugin._username, plugin._password, plugin._project_name) == ("vmqos", "secret", "service")
    assert (adapter.interface, adapter.region_name) == ("public", "RegionOne")


def test_ceilometer_is_told_where_resctrl_is(stacked: Node) -> None:
    options = read(stacked.ceilometer / "ceilometer.conf", "vmqos", [cfg.StrOpt("resctrl_path")])
    assert options.resctrl_path == str(stacked.resctrl)


def test_gnocchi_keeps_the_meters(stacked: Node) -> None:
    resources = yaml.safe_load((stacked.ceilometer / "gnocchi_resources.yaml").read_text())["resources"]
    assert {"cpu", "cpu_l3_cache", "memory.traffic.total"} <= set(resources[0]["metrics"])


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_in_a_unit(stacked: Node, unit: str) -> None:
    assert verdict(stacked.systemd / unit) == ""


def test_the_agent_answers_on_the_simulated_machine(stacked: Node) -> None:
    assert "L3" in stacked.vmqos("cache", "show")
    assert (stacked.resctrl / "info" / "L3" / "cbm_mask").is_file()


def test_the_gateway_has_the_agents_answers_and_is_no_service_of_roots(stacked: Node) -> None:
    assert "L3" in stacked.vmqos("--socket", str(stacked.gateway_socket), "cache", "show")
    unit = (stacked.systemd / "devstack@vmqos-gateway.service").read_text()
    conf = loader.load([f"--config-file={stacked.agent_conf}"])
    assert f"User={conf.gateway.user}\n" in unit.replace(" = ", "=")


@pytest.mark.parametrize("profile", ["cascade-lake", "milan"])
def test_a_vm_gets_its_ways_and_unstack_and_clean_leave_nothing(
    make_node: MakeNode, libvirt_host: PrivateLibvirt, profile: str
) -> None:
    node = make_node({"VMQOS_SIMULATOR_PROFILE": profile})
    nova_conf = node.nova_conf.read_text().split()
    node.run(*STACK)
    vm = vms.run(libvirt_host, vms.Vm("instance-00000001", vms.Flavor("c1.cache2", {"hw:cache_ways": "2"})))
    group = node.resctrl / f"vmqos.{vm.uuid}"
    processes.wait_until(lambda: group.is_dir() and vm.pid in tasks(group), "the VM being in its group", 20.0)

    said = node.run("unstack")

    assert f"vmqos.{vm.uuid}" in said, said
    assert not node.resctrl.exists() and not node.vmqos_runs()
    assert processes.start_time(vm.pid) is not None
    node.run("clean")
    assert node.nova_conf.read_text().split() == nova_conf
    assert not node.agent_conf.parent.exists() and not node.resctrl.parent.exists()
    assert not node.gateway_socket.parent.exists()
    assert [path.name for path in node.systemd.iterdir()] == []


@pytest.mark.timeout(900)
def test_pip_installs_what_nova_ceilometer_and_systemd_load(make_node: MakeNode) -> None:
    node = make_node({})
    node.make_real_environment()
    node.run("stack pre-install", "stack install")
    # From elsewhere: the source tree must not be what is found.
    groups = "import importlib.metadata as m; print(*(e.value for e in m.entry_points(group='{}')))"
    for group, module in {
        "nova.api.extra_spec_validators": "nova_plugin.validators",
        "ceilometer.poll.compute": "ceilometer_pollster.pollsters:L3Cache",
    }.items():
        command = [node.venv / "bin" / "python", "-c", groups.format(group)]
        found = subprocess.run(command, cwd=node.root, capture_output=True, text=True, check=True)
        assert module in found.stdout.split()
    assert node.vmqos("--version").startswith("vmqos ")
    node.run("stack post-config", "stack extra")
    assert "L3" in node.vmqos("cache", "show")


def test_resctrl_of_the_kernels_own_is_mounted_by_a_unit_that_unstack_removes(make_node: MakeNode) -> None:
    node = make_node({"VMQOS_SIMULATE": "False"})
    unit = node.systemd / "sys-fs-resctrl.mount"
    node.run("stack post-config")
    assert node.calls("systemctl") == [
        "systemctl daemon-reload",
        "systemctl enable sys-fs-resctrl.mount",
        "systemctl start sys-fs-resctrl.mount",
    ]
    assert "Description=Devstack resctrl\n" in unit.read_text()
    assert verdict(unit) == ""
    node.run("unstack")
    assert not unit.exists()
    assert node.calls("systemctl")[-3:] == [
        "systemctl stop sys-fs-resctrl.mount",
        "systemctl disable sys-fs-resctrl.mount",
        "systemctl daemon-reload",
    ]


def tasks(group: Path) -> set[int]:
    """The tasks of a control group."""
    return {int(line) for line in (group / "tasks").read_text().split()}


def written(node: Node) -> dict[Path, str]:
    """The agent's configuration, the units and their drop-ins."""
    return {path: path.read_text() for path in (node.agent_conf, *node.systemd.rglob("*")) if path.is_file()}


def test_stacking_again_after_unstack_gives_the_same(make_node: MakeNode) -> None:
    node = make_node({})
    node.run(*STACK)
    before = written(node)
    node.run("unstack")
    node.run(*STACK)
    assert written(node) == before
    assert "L3" in node.vmqos("cache", "show")
