# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built, installed on a fresh Debian 13 that runs, upgraded from an earlier version, and purged.

One machine is used for all tests, in their order in this file: what a fixture has done to it stays done.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.functional.conftest import MakeAgent, MakeVm, Pace, WaitFor
from tests.packages.container import PATIENCE, Container
from tests.packages.debian_packages import EARLIER, PACKAGES, Built, version
from tests.packages.debian_root import ENVIRONMENT, DebianRoot, Failed
from tools.lab import processes, unix_http
from tools.lab.program import Program
from tools.lab.workspace import CHECKOUT

AGENT, GATEWAY = "vmqos-agent.service", "vmqos-gateway.service"
UNITS = (AGENT, GATEWAY, "sys-fs-resctrl.mount", "resctrl-access.service", "vmqos-withdraw.timer")
"""Those that an administrator enables."""
BOTH_ACTIVE = f"systemctl is-active {AGENT} && systemctl is-active {GATEWAY}"
CONF = "/etc/vmqos/vmqos.conf"
CHANGE = "\n[agent]\n# An administrator's.\naudit_interval = 7\n"
HOST = ("bash-completion", "dbus", "man-db", "systemd", "systemd-sysv", "zsh")
"""What the machine has beside Debian's smallest system."""
PROGRAMS = {"vmqos.agent.main": "vmqos-agent", "vmqos.gateway.main": "vmqos-gateway"}

LOADED = """
import sys
from importlib.metadata import distribution
for point in distribution(sys.argv[1]).entry_points:
    if point.group != "console_scripts":
        point.load()
        print(point.group, point.name)
"""

SCHEDULER = """
from nova.cmd import scheduler
from nova import config
config.parse_args(["nova-scheduler"], default_config_files=[])
from nova.scheduler import filters, weights
from nova.api.validation.extra_specs import validators
ours = ["nova_plugin.scheduler.filters.CacheWaysFilter"]
print(*(one.__name__ for one in filters.HostFilterHandler().get_matching_classes(ours)))
ours = ["nova_plugin.scheduler.weights.CacheWaysWeigher"]
print(*(one.__name__ for one in weights.HostWeightHandler().get_matching_classes(ours)))
validators.validate("hw:cache_ways", "2")
try:
    validators.validate("hw:cache_ways", "two")
except Exception as error:
    print(error)
"""

POLLSTERS = """
from ceilometer import service
from ceilometer.polling.manager import AgentManager
conf = service.prepare_service([], [])
found = AgentManager._extensions("poll", "compute", conf)
print(*sorted(one.name for one in found))
"""


@pytest.fixture(scope="module")
def machine(built: Built, scratch: Path) -> Iterator[Container]:
    """A fresh Debian 13 that runs, with the packages of the earlier version."""
    root = DebianRoot.make(scratch / "machine", HOST)
    for name, files in {"earlier": built.earlier, "now": built.now}.items():
        (root.path / name).mkdir()
        for file in files:
            shutil.copy(file, root.path / name)
    # Inside there is no network.
    root.shell("apt-get install --yes --download-only /earlier/*.deb ansible-core")
    booted = Container(root, f"vmqos-packages-{os.getpid()}")
    try:
        booted.start()
        (root.path / "before").write_text(ours(booted))
        booted.shell("apt-get install --yes /earlier/*.deb")
        yield booted
    finally:
        booted.stop()


@pytest.fixture(scope="module")
def upgraded(machine: Container) -> Container:
    """The machine with this tree's packages, and a configuration that its administrator has changed."""
    conf = machine.root.path / CONF[1:]
    with conf.open("a") as file:
        file.write(CHANGE)
    machine.shell("apt-get install --yes --option=Dpkg::Options::=--force-confold /now/*.deb")
    return machine


@pytest.fixture(scope="module")
def purged(upgraded: Container) -> Container:
    upgraded.shell(f"apt-get purge --yes {' '.join(PACKAGES)}")
    return upgraded


def ours(machine: Container) -> str:
    """The files that say by their names that they are ours, wherever they are."""
    plugins = "-name 'nova_plugin*' -o -name 'ceilometer_pollster*' -o -name 'watcher_plugin*'"
    named = rf"\( -name '*vmqos*' -o -name '*resctrl*' -o {plugins} \)"
    # /earlier and /now hold the packages; apt and man keep what they keep of every package.
    elsewhere = "-path /earlier -o -path /now -o -path /var/cache/apt -o -path /var/cache/man -o -path /var/log"
    return machine.shell(rf"find / -xdev \( {elsewhere} \) -prune -o {named} -print; find /run {named}")


def test_lintian_finds_no_fault(built: Built) -> None:
    try:
        said = built.root.shell("lintian --allow-root --fail-on=error,warning --tag-display-limit=0 /now/*.changes")
    except Failed as error:
        pytest.fail(str(error), pytrace=False)
    assert not re.search("^[EW]: ", said, re.MULTILINE)


def test_what_is_enabled_is_what_the_guide_enables(machine: Container) -> None:
    assert machine.shell(f"systemctl is-enabled {' '.join(UNITS)}").split() == ["enabled"] * len(UNITS)


def looked(socket: Path) -> dict[str, Any]:
    """What is told of the agent's health once its first look at the host is over: it is active before that."""
    health: dict[str, Any] = {}

    def is_over() -> bool:
        with contextlib.suppress(OSError, RuntimeError):
            health.update(unix_http.get(socket, "/v1/health"))
        return health.get("status", "starting") != "starting"

    processes.wait_until(is_over, "the agent's first look at its host", PATIENCE)
    return health


def test_without_resctrl_and_libvirt_all_runs_and_nothing_fails(machine: Container) -> None:
    machine.wait_for(BOTH_ACTIVE, "agent and gateway being active")
    init = machine.init
    for socket in ("vmqos/agent.sock", "vmqos-gateway/gateway.sock"):
        health = looked(Path(f"/proc/{init}/root/run/{socket}"))
        assert health["version"] == EARLIER
        assert health["status"] == "failing"
        assert not health["resctrl"]["mounted"] and not health["libvirt"]["connected"]
    assert machine.shell("systemctl --failed --no-legend --plain") == ""
    assert machine.shell(f"systemctl show --property=NRestarts --value {AGENT} {GATEWAY}").split() == ["0", "0"]
    # The kernel here offers no resctrl, so nothing is mounted, and nothing complains of that.
    assert machine.shell("systemctl show --property=ConditionResult --value sys-fs-resctrl.mount").strip() == "no"
    with pytest.raises(Failed, match="resctrl"):
        machine.shell("vmqos doctor")


def test_the_configuration_is_roots_and_closed_to_others(machine: Container) -> None:
    assert machine.shell(f"stat --format='%a %U:%G' {CONF}").strip() == "640 root:root"
    shown = machine.shell("dpkg-query --show --showformat='${Conffiles}\\n' " + " ".join(PACKAGES))
    assert re.findall(r"(/\S+)", shown) == [CONF]


def test_users_and_groups_are_there(machine: Container) -> None:
    assert machine.shell("getent passwd vmqos-gateway").strip().endswith("nologin")
    assert "resctrl" in machine.shell("id -nG ceilometer").split()
    assert machine.shell("stat --format=%U /run/vmqos-gateway/gateway.sock").strip() == "vmqos-gateway"
    assert machine.shell("stat --format='%a %U' /run/vmqos/gateway.sock").strip() == "600 vmqos-gateway"


def test_systemd_finds_no_fault_in_the_units_and_their_manual_pages(machine: Container) -> None:
    names = " ".join([*UNITS, "vmqos-withdraw.service"])
    assert machine.shell(f"systemd-analyze verify {names}") == ""


@pytest.mark.parametrize("page", ["1 vmqos", "5 vmqos.conf", "8 vmqos-agent", "8 vmqos-gateway"])
def test_a_manual_page_is_there_and_shown_without_a_warning(machine: Container, page: str) -> None:
    shown = machine.shell(f"MANWIDTH=100 man --warnings {page}")
    name = page.split()[1]
    assert shown.splitlines()[0].startswith(f"{name.upper()}(") and "troff" not in shown
    if page == "1 vmqos":
        assert "vm show" in shown and "--no-color" in shown
    if page == "5 vmqos.conf":
        assert "audit_interval" in shown


@pytest.mark.parametrize(
    ("given", "offered"), [("", "bench cache"), ("vm", "list names show"), ("gnocchi-resources", "merge")]
)
def test_the_shells_complete_the_command(machine: Container, given: str, offered: str) -> None:
    words = ["vmqos", *given.split(), ""]
    quoted = " ".join(f"'{word}'" for word in words)
    line = (
        f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1} COMP_LINE='{' '.join(words)}'; COMP_POINT=${{#COMP_LINE}}"
    )
    load = ". /usr/share/bash-completion/bash_completion; __load_completion vmqos || _comp_load vmqos"
    (machine.root.path / "bash-test").write_text(f'{load}\n{line}\n_vmqos\necho "${{COMPREPLY[@]}}"\n')
    assert machine.shell("bash /bash-test").startswith(offered)
    # Where zsh completes, compadd takes the words; here it prints them.
    (machine.root.path / "zsh-test").write_text(
        "autoload -Uz compinit\ncompinit -u -D\nprint $_comps[vmqos]\n"
        'compadd() { print -r -- "$@" }\n'
        f"words=({quoted}) CURRENT={len(words)} PREFIX=\nautoload +X _vmqos\n_vmqos\n"
    )
    function, *rest = machine.shell("zsh -f /zsh-test").splitlines()
    assert function == "_vmqos"
    assert rest[-1].startswith(f"-- {offered}")


@pytest.mark.parametrize(
    ("distribution", "some"),
    [
        ("vmqos", ["vmqos.cli top"]),
        ("vmqos-nova", ["nova.api.extra_spec_validators vmqos"]),
        ("vmqos-ceilometer", ["ceilometer.poll.compute cpu_l3_cache"]),
        ("vmqos-watcher", ["watcher_goals vmqos_noisy_neighbour", "watcher_strategies vmqos_noisy_neighbour"]),
    ],
)
def test_every_entry_point_loads_with_debians_libraries(machine: Container, distribution: str, some: list[str]) -> None:
    # Each in a process of its own, as their services are: Nova's options and Watcher's exclude each other.
    loaded = machine.shell(f"python3 -W ignore -c '{LOADED}' {distribution}")
    assert set(some) <= set(loaded.splitlines())


def test_each_plugin_brings_its_own_entry_points(machine: Container) -> None:
    where = machine.shell("grep -l '^nova_plugin\\|= nova_plugin' /usr/lib/python3/dist-packages/*/entry_points.txt")
    assert re.findall(r"/(vmqos[^/]*)/", where) == [f"vmqos_nova-{EARLIER}.dist-info"]
    where = machine.shell("grep -l '= ceilometer_pollster' /usr/lib/python3/dist-packages/*/entry_points.txt")
    assert re.findall(r"/(vmqos[^/]*)/", where) == [f"vmqos_ceilometer-{EARLIER}.dist-info"]
    where = machine.shell("grep -l '= watcher_plugin' /usr/lib/python3/dist-packages/*/entry_points.txt")
    assert re.findall(r"/(vmqos[^/]*)/", where) == [f"vmqos_watcher-{EARLIER}.dist-info"]


def test_debians_nova_finds_filter_weigher_and_validators(machine: Container) -> None:
    *_, filters, weighers, refused = machine.shell(f"python3 -W ignore -c '{SCHEDULER}'").splitlines()
    assert (filters, weighers) == ("CacheWaysFilter", "CacheWaysWeigher")
    assert "hw:cache_ways='two'" in refused


def test_an_upgrade_restarts_what_runs_and_keeps_what_the_administrator_wrote(upgraded: Container) -> None:
    upgraded.wait_for(BOTH_ACTIVE, "agent and gateway being active")
    for socket in ("vmqos/agent.sock", "vmqos-gateway/gateway.sock"):
        health = unix_http.get(Path(f"/proc/{upgraded.init}/root/run/{socket}"), "/v1/health")
        assert health["version"] == version()
    text = (upgraded.root.path / CONF[1:]).read_text()
    assert text.endswith(CHANGE) and "As the earlier version had it." in text
    assert upgraded.shell(f"stat --format='%a %U:%G' {CONF}").strip() == "640 root:root"
    assert upgraded.shell(f"systemctl is-enabled {' '.join(UNITS)}").split() == ["enabled"] * len(UNITS)
    assert upgraded.shell("systemctl --failed --no-legend --plain") == ""
    assert EARLIER not in upgraded.shell("ls /usr/lib/python3/dist-packages | grep vmqos")


@pytest.fixture
def pace(pace: Pace, upgraded: Container) -> Pace:
    """The programs that were installed: of their machine they see its files, of this one all processes."""
    root = upgraded.root.path
    enter = f'for name in dev proc sys tmp; do mount --rbind /$name {root}/$name; done; exec chroot {root} "$@"'

    def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
        command = [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            enter,
            "-",
            *ENVIRONMENT,
            f"/usr/bin/{PROGRAMS[module]}",
            *arguments,
        ]
        with log.open("ab") as output:
            return subprocess.Popen(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    return replace(pace, launch=launch)


def test_agent_and_gateway_keep_a_promise_on_the_simulator(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"gateway": {}})
    agent.start()
    vm = make_vm({"hw:cache_ways": "2"})
    wait_for(lambda: agent.gateway.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM's promise being kept")
    assert agent.get("/v1/health")["version"] == version()
    maps = Path(f"/proc/{agent.pid}/cmdline").read_bytes().split(b"\0")
    assert maps[:2] == [b"/usr/bin/python3", b"/usr/bin/vmqos-agent"]


def test_a_purge_leaves_the_accounts_alone_and_nothing_else(purged: Container) -> None:
    # An account that was removed could leave its number, with files of its, to the next one.
    assert purged.shell("getent passwd vmqos-gateway") and purged.shell("getent group resctrl")
    assert ours(purged) == (purged.root.path / "before").read_text()
    assert purged.shell("dpkg-query --show '*vmqos*' 2>/dev/null || true") == ""
    assert purged.shell("systemctl daemon-reload; systemctl list-units --all --no-legend '*vmqos*' 'resctrl*'") == ""
    assert purged.shell("systemctl --failed --no-legend --plain") == ""


@pytest.fixture(scope="module")
def played(purged: Container) -> tuple[Container, list[str]]:
    """The machine after the Ansible role has been applied twice, and what Ansible said at the end of each."""
    shutil.copytree(CHECKOUT / "packaging/ansible", purged.root.path / "ansible")
    (purged.root.path / "ansible/hosts").write_text("[compute]\nlocalhost ansible_connection=local\n")
    variables = "{vmqos_packages_from: /now, vmqos_conf: {agent: {audit_interval: 9}, placement: {password: hush}}}"
    purged.shell("apt-get install --yes ansible-core")
    return purged, [
        purged.shell(f"cd /ansible && ansible-playbook --diff -i hosts -e '{variables}' compute.yml") for _ in range(2)
    ]


def test_the_role_installs_and_a_second_run_changes_nothing(played: tuple[Container, list[str]]) -> None:
    machine, (first, second) = played
    assert re.search(r"changed=[1-9]\d* .* failed=0", first), first
    assert re.search(r"changed=0 .* failed=0", second), second
    assert machine.shell(f"systemctl is-active {AGENT} {GATEWAY}").split() == ["active", "active"]
    assert "audit_interval = 9" in machine.shell(f"cat {CONF}")
    assert "password = hush" in machine.shell(f"cat {CONF}") and "hush" not in first + second
    assert machine.shell(f"stat --format='%a %U:%G' {CONF}").strip() == "640 root:root"


def test_ansible_lint_finds_no_fault() -> None:
    command = ["ansible-lint", "--offline", "--strict", "--profile=production", "packaging/ansible"]
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
