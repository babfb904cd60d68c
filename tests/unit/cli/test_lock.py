# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli.lock import LockCreate
from vmqos.hypervisor.exceptions import HypervisorUnreachable, NoHypervisor
from vmqos.pseudo_lock import lifecycle, vm
from vmqos.pseudo_lock.exceptions import WaysNotGivenBack
from vmqos.pseudo_lock.regions import Host, Lock


def parsed(*arguments: str) -> object:
    return LockCreate(None, None).get_parser("vmqos lock create").parse_args(["name", *arguments])


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("256K", 262144), ("256KiB", 262144), ("1M", 1048576), ("1mb", 1048576), ("17B", 17)],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, count: int) -> None:
    assert vars(parsed("--cache", "L2:1", "--size", text))["size"] == count


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("--cache", "L2:1", "--size", "0"), "a number with K or M"),
        (("--cache", "L2:1", "--size", "1G"), "a number with K or M"),
        (("--cache", "L2:1", "--size", "256\u212a"), "a number with K or M"),
        (("--cache", "L2:1", "--size", "1" * 5000), "a number with K or M"),
        (("--cache", f"L2:{'1' * 5000}", "--size", "4K"), "such as L2:1"),
        (("--cache", "L2:1", "--size", "-4K"), "expected one argument"),
        (("--cache", "L1:0", "--size", "4K"), "such as L2:1"),
        (("--cache", "3", "--size", "4K"), "such as L2:1"),
        (("--cache", "L2:1", "--size", "4K", "--vm", "web"), "is no UUID"),
        (("--cache", "L2:1"), "required: --size"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_with_what_is_right(
    arguments: tuple[str, ...], allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)
    assert ended.value.code == 2
    assert allowed in capsys.readouterr().err


def test_what_is_for_a_vm_alone_needs_one(run: Run) -> None:
    ran = run("lock", "create", "x", "--cache", "L2:1", "--size", "4K", "--next-start")
    assert (ran.status, ran.out) == (2, "")
    assert "name one with --vm; see 'vmqos help lock create'" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("lock", "list"),
        ("lock", "show", "x"),
        ("lock", "remove", "x"),
        ("lock", "create", "x", "--cache", "L2:1", "--size", "4K"),
    ],
)
def test_a_host_without_resctrl_is_one_line_on_stderr(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "vmqos.conf").write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n")
    ran = run("--config-file", str(tmp_path / "vmqos.conf"), *command)
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("taken", "status", "out", "err"),
    [
        (vm.Taken(("web",), {}), 0, ["Taken out of the definition of VM web"], []),
        (
            vm.Taken(("web",), {"db": "libvirt failed: no space left"}),
            1,
            ["Taken out of the definition of VM web"],
            ["Still in the definition of VM db", "no space left", "virsh edit"],
        ),
        (HypervisorUnreachable(uri="qemu:///system", error="no answer"), 1, [], ["were not looked at", "no answer"]),
        (NoHypervisor(uri="qemu:///system", error="no such socket"), 0, [], ["were not looked at"]),
    ],
    ids=["all", "not all", "libvirt does not answer", "no libvirt"],
)
def test_a_removal_ends_well_only_if_no_definition_is_known_to_have_the_device(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    taken: vm.Taken | Exception,
    status: int,
    out: list[str],
    err: list[str],
) -> None:
    def take(uri: str, lock: Lock) -> vm.Taken:
        if isinstance(taken, Exception):
            raise taken
        return taken

    monkeypatch.setattr(lifecycle, "remove", lambda host, name: Lock(name, "vmqos.lock-a", True, "pseudo-locksetup"))
    monkeypatch.setattr(vm, "take", take)
    ran = run("lock", "remove", "a")
    assert ran.status == status
    assert "Removed the lock a" in ran.out
    assert all(words in ran.out for words in out) and all(words in ran.err for words in err)
    assert bool(ran.err) == bool(err)


@pytest.mark.parametrize(
    ("lock", "what"),
    [
        (Lock("a", "vmqos.lock-a", True, "pseudo-locksetup"), "never finished"),
        (Lock("a", "vmqos.lock-a", True, "pseudo-locked"), "its cache went offline"),
    ],
)
def test_of_a_lock_without_a_cache_it_is_told_why_it_has_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, lock: Lock, what: str
) -> None:
    monkeypatch.setattr(lifecycle, "remove", lambda host, name: lock)
    monkeypatch.setattr(vm, "take", lambda uri, of: vm.Taken((), {}))
    ran = run("lock", "remove", "a")
    assert (ran.status, ran.out, ran.err) == (0, f"Removed the lock a ({what}).\n", "")


def test_a_lock_whose_ways_were_not_given_back_is_taken_out_of_definitions_all_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(host: Host, name: str) -> Lock:
        lock = Lock(name, "vmqos.lock-a", True, "pseudo-locked", "L2", 0)
        raise WaysNotGivenBack(lock=lock, problem=OSError("EINVAL"))

    monkeypatch.setattr(lifecycle, "remove", remove)
    monkeypatch.setattr(vm, "take", lambda uri, of: vm.Taken((f"web with {of.group}",), {}))
    ran = run("lock", "remove", "a")
    assert (ran.status, ran.out) == (
        1,
        "Taken out of the definition of VM web with vmqos.lock-a, whose pins stay as they are.\n",
    )
    assert len(ran.err.splitlines()) == 1 and "the lock 'a' is removed, but" in ran.err
