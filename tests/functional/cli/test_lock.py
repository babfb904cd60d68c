# SPDX-License-Identifier: Apache-2.0
"""``vmqos lock`` on the simulator: what it does, what it refuses, and how it lives beside an agent and its VMs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, SHARED_3, group
from tests.functional.agent.tree import Tree
from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace
from vmqos.pseudo_lock import lifecycle
from vmqos.pseudo_lock.exceptions import LockError
from vmqos.pseudo_lock.lifecycle import Wanted
from vmqos.pseudo_lock.regions import Host
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.feature("lock")

WAY = 1310720
"""Bytes of a way of the simulated Broadwell: 25 MiB in 20 ways."""

broadwell = pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
CLASS = "vmqos.shared-ways2"
TABLE = ("lock", "create", "table", "--cache", "L3:0", "--size", "256K")


@pytest.fixture
def host(make_agent: MakeAgent) -> Agent:
    """The configuration of an agent that does not run: lock needs none."""
    return make_agent()


@pytest.fixture
def tree(simulator: Simulator) -> Tree:
    return Tree(simulator.root)


def read(host: Agent, *arguments: str) -> Any:
    done = vmqos(host, *arguments, "-f", "json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def refusal(host: Agent, *arguments: str) -> str:
    """What a command says that has to fail, in one line."""
    done: subprocess.CompletedProcess[str] = vmqos(host, *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def state(root: Path) -> dict[str, str]:
    """Every mask and mode there is."""
    return {
        f"{directory.name}/{name}": (directory / name).read_text()
        for directory in sorted(root.iterdir())
        if directory.is_dir() and (directory / "mode").exists()
        for name in ("mode", "schemata")
    } | {"schemata": (root / "schemata").read_text()}


@broadwell
def test_a_lock_is_made_listed_shown_and_removed(host: Agent, tree: Tree) -> None:
    before = state(tree.root)
    made = read(host, *TABLE)
    assert made == {
        "name": "table",
        "group": "vmqos.lock-table",
        "owner": "vmqos",
        "state": "pseudo-locked",
        "resource": "L3",
        "cache_id": 0,
        "mask": "1",
        "size": WAY,
        "cpus": (tree.root / "vmqos.lock-table/cpus_list").read_text().strip(),
        "device": "",
        "users": [],
    }
    assert tree.mode("vmqos.lock-table") == "pseudo-locked"
    assert (tree.root / "info/L3/bit_usage").read_text().startswith("0=XXSSSSSSSSSSSSSSSSSP;")
    assert tree.masks() == {0: 0xFFFFE, 1: 0xFFFFF}
    assert read(host, "lock", "show", "table") == made
    assert read(host, "lock", "list") == [{key: value for key, value in made.items() if key != "users"}]
    assert "1.2 MiB" in vmqos(host, "lock", "list").stdout
    removed = vmqos(host, "lock", "remove", "table")
    assert removed.returncode == 0
    assert removed.stdout == "Removed the lock table (1.2 MiB of L3:0, ways 0).\n"
    assert state(tree.root) == before
    assert read(host, "lock", "list") == []
    assert vmqos(host, "lock", "list").stdout == "No cache is locked.\n"


@broadwell
def test_a_size_is_rounded_up_to_whole_ways(host: Agent, tree: Tree) -> None:
    made = read(host, "lock", "create", "big", "--cache", "L3:1", "--size", str(2 * WAY + 1))
    assert (made["size"], made["mask"]) == (3 * WAY, "7")
    assert tree.masks()[1] == 0xFFFF8


@broadwell
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--cache", "L2:0", "--size", "4K"), "there are: L3:0, L3:1"),
        (("--cache", "L3:7", "--size", "4K"), "there are: L3:0, L3:1"),
        (("--cache", "L3:0", "--size", "4M"), "Ask for 3932160 bytes or less"),
        (("--cache", "L3:0", "--size", "3000", "--vm", str(uuid.UUID(int=7))), "a power of two from 4096 bytes on"),
        (("--cache", "L3:0", "--size", "4096", "--vm", str(uuid.UUID(int=7))), "libvirt has none of that UUID"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_touched(
    host: Agent, tree: Tree, arguments: tuple[str, ...], told: str
) -> None:
    before = state(tree.root)
    assert told in refusal(host, "lock", "create", "x", *arguments)
    assert state(tree.root) == before


@broadwell
def test_a_bad_name_and_one_that_is_taken_are_refused(host: Agent, tree: Tree) -> None:
    assert "up to 32 letters" in refusal(host, "lock", "create", "a/b", *TABLE[3:])
    read(host, *TABLE)
    before = state(tree.root)
    assert "there is a lock 'table' already" in refusal(host, *TABLE)
    told = refusal(host, "lock", "create", "second", *TABLE[3:])
    assert "table on L3:0" in told and "one in each hierarchy" in told
    assert state(tree.root) == before


@pytest.mark.parametrize(
    ("simulator", "told"),
    [("cascade-lake", "Pseudo-locking not supported"), (("broadwell", "cdp"), "mounted with CDP")],
    indirect=["simulator"],
)
@pytest.mark.feature("lock", kept=False)
def test_a_machine_that_can_not_lock_says_so_and_is_left_as_it_was(
    host: Agent, simulator: Simulator, told: str
) -> None:
    before = state(simulator.root)
    assert told in refusal(host, *TABLE)
    assert state(simulator.root) == before


@broadwell
def test_ways_of_others_reserved_ones_and_the_floor_are_kept(make_agent: MakeAgent, tree: Tree) -> None:
    host = make_agent({"allocation": {"reserved_ways": "3", "default_ways_min": 4}})
    (tree.root / "foreign").mkdir()
    (tree.root / "foreign/schemata").write_text("L3:0=ff0\n")
    (tree.root / "schemata").write_text("L3:0=fff00\n")
    made = read(host, "lock", "create", "a", "--cache", "L3:0", "--size", "4096")
    assert made["mask"] == "4"
    assert tree.masks()[0] == 0xFFF00, "ways that nobody had are taken first"
    vmqos(host, "lock", "remove", "a")
    (tree.root / "schemata").write_text("L3:0=f0000\n")
    (tree.root / "foreign/schemata").write_text("L3:0=ffff0\n")
    before = state(tree.root)
    told = refusal(host, "lock", "create", "a", "--cache", "L3:0", "--size", str(3 * WAY))
    assert f"at most 2 ways are, {2 * WAY} bytes" in told
    assert state(tree.root) == before


def refused_to_nobody(action: Callable[[], object]) -> str:
    """What a user without any right is told; in a process of its own, which has imported all that it needs."""
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                try:
                    action()
                except LockError as error:
                    told.write(str(error))
                    told.flush()
            os._exit(0)
        os.waitpid(child, 0)
        told.seek(0)
        return told.read()


@broadwell
def test_without_the_right_to_change_resctrl_root_is_asked_for(simulator: Simulator, workspace: Workspace) -> None:
    for directory in (simulator.root.parent, workspace.path):
        directory.chmod(0o755)
    host = Host(str(simulator.root), sysfs=str(simulator.sysfs))
    for action in (
        lambda: lifecycle.create(host, Wanted("x", "L3", 0, WAY)),
        lambda: lifecycle.remove(host, "x"),
    ):
        assert refused_to_nobody(action) == f"no right to change {simulator.root}: run it as root, such as with sudo"


@broadwell
def test_without_a_class_of_service_left_nothing_is_locked(host: Agent, tree: Tree) -> None:
    for number in range(15):
        (tree.root / f"g{number}").mkdir()
        (tree.root / f"g{number}/schemata").write_text("L3:0=80000;1=80000\n")
    before = state(tree.root)
    assert "All CLOSIDs are in use" in refusal(host, *TABLE)
    assert state(tree.root) == before


@pytest.mark.parametrize("step", range(4))
@broadwell
def test_interrupted_before_any_of_its_writes_it_leaves_everything_as_it_was(
    simulator: Simulator, tree: Tree, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    (tree.root / CLASS).mkdir()
    (tree.root / CLASS / "schemata").write_text("L3:0=3\n")
    before, write, writes = state(tree.root), Filesystem.write, itertools.count()

    def interrupted(filesystem: Filesystem, relative: str, text: str) -> None:
        if next(writes) == step:
            raise KeyboardInterrupt
        write(filesystem, relative, text)

    monkeypatch.setattr(Filesystem, "write", interrupted)
    host = Host(str(simulator.root), sysfs=str(simulator.sysfs))
    with pytest.raises(KeyboardInterrupt):
        lifecycle.create(host, Wanted("table", "L3", 0, WAY))
    assert state(tree.root) == before
    made = lifecycle.create(host, Wanted("table", "L3", 0, WAY))
    assert made.size == WAY and tree.masks(CLASS)[0].bit_count() == 2


@broadwell
def test_what_somebody_else_locked_is_listed_and_never_removed(host: Agent, tree: Tree) -> None:
    (tree.root / "schemata").write_text("L3:0=ffff0\n")
    (tree.root / "realtime").mkdir()
    (tree.root / "realtime/mode").write_text("pseudo-locksetup\n")
    listed = read(host, "lock", "list")
    assert [(one["name"], one["owner"], one["state"]) for one in listed] == [
        ("realtime", "foreign", "pseudo-locksetup")
    ]
    (tree.root / "realtime/schemata").write_text("L3:0=3\n")
    (listed,) = read(host, "lock", "list")
    assert (listed["owner"], listed["state"], listed["mask"]) == ("foreign", "pseudo-locked", "3")
    before = state(tree.root)
    assert "realtime is no lock of vmqos" in refusal(host, "lock", "remove", "realtime")
    assert "there are: realtime" in refusal(host, "lock", "remove", "other")
    assert "there are: realtime" in refusal(host, "lock", "show", "other")
    assert state(tree.root) == before
    assert read(host, "lock", "show", "realtime")["mask"] == "3"


@broadwell
def test_what_was_never_finished_is_removed_and_the_default_group_gets_its_ways_back(host: Agent, tree: Tree) -> None:
    before = state(tree.root)
    (tree.root / "vmqos.lock-half").mkdir()
    (tree.root / "vmqos.lock-half/mode").write_text("pseudo-locksetup\n")
    (tree.root / "schemata").write_text("L3:0=ffffe\n")
    (listed,) = read(host, "lock", "list")
    assert (listed["name"], listed["state"], listed["cache_id"]) == ("half", "pseudo-locksetup", None)
    assert vmqos(host, "lock", "remove", "half").returncode == 0
    assert state(tree.root) == before


@pytest.fixture
def held(simulator: Simulator) -> Iterator[Any]:
    # Guests have no FUSE, and use another test of this module.
    from tests.functional.agent.steered_simulator import steered

    with steered(simulator, "broadwell") as steer:
        yield steer


@pytest.mark.feature("lock", machine="broadwell")
def test_ways_that_a_group_left_locked_are_listed_and_lock_their_cache(held: Any, host: Agent, tree: Tree) -> None:
    read(host, *TABLE)
    held("open vmqos.lock-table")
    (tree.root / "vmqos.lock-table").rmdir()
    (left,) = read(host, "lock", "list")
    assert (left["group"], left["owner"], left["mask"], left["cache_id"]) == ("", "foreign", "1", 0)
    assert "have a locked region already" in refusal(host, *TABLE)


@broadwell
def test_a_reset_leaves_locks_alone(host: Agent, tree: Tree) -> None:
    read(host, *TABLE)
    done = vmqos(host, "reset", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert tree.groups() == ["vmqos.lock-table"]


@broadwell
def test_an_agent_and_its_vms_are_not_disturbed_by_a_lock(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    own, capped = make_vm(EXCLUSIVE_4), make_vm(SHARED_3)

    def told(uuid: str) -> dict[str, Any]:
        found: dict[str, Any] = agent.get(f"/v1/vms/{uuid}")
        return found

    wait_for(lambda: {told(vm.uuid)["state"] for vm in (own, capped)} == {"kept"}, "both VMs being kept")
    wait_for(lambda: agent.get("/v1/caches")["caches"][0]["groups"] != [], "the caches being known")
    had = tree.masks(group(own))
    made = read(agent, *TABLE)
    locked = int(made["mask"], 16)
    passes = agent.get("/v1/health")["passes"]
    wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 3, "the agent having looked")
    assert tree.masks(group(own)) == had
    assert not any(tree.masks(name)[0] & locked for name in ["", *tree.groups()] if name != made["group"])
    assert {told(vm.uuid)["state"] for vm in (own, capped)} == {"kept"}
    later = make_vm(EXCLUSIVE_4)
    wait_for(lambda: told(later.uuid)["state"] == "kept", "a later VM being kept")
    assert not tree.masks(group(later))[0] & locked
    (shown,) = (cache for cache in agent.get("/v1/caches")["caches"] if cache["id"] == 0)
    assert any(one["mode"] == "pseudo-locked" for one in shown["groups"])
    assert vmqos(agent, "lock", "remove", "table").returncode == 0
    wait_for(lambda: made["group"] not in str(agent.get("/v1/caches")), "the agent seeing that it is gone")
    assert {told(vm.uuid)["state"] for vm in (own, capped, later)} == {"kept"}
    assert not agent.get("/v1/health")["last_error"]


@broadwell
def test_a_region_for_a_vm_needs_a_device_that_a_simulator_has_not(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm()
    before, defined = state(tree.root), vm.domain.XMLDesc()
    told = refusal(agent, *TABLE, "--vm", vm.uuid)
    assert "a simulated region has no device" in told
    assert (state(tree.root), vm.domain.XMLDesc()) == (before, defined)
