# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

import libvirt
import pytest

from vmqos.bench import exceptions, vms
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine

ONE, OTHER, THIRD = (f"{digit * 8}-3651-469c-b344-166d1c87d77b" for digit in "abc")


def vm(uuid: str, name: str, instance_name: str) -> VirtualMachine:
    return VirtualMachine(
        uuid, name, 1, Process(7, 100), None, False, NovaMetadata(instance_name, "flavor", "project", None)
    )


RUNNING = {
    ONE: vm(ONE, "instance-1", "web"),
    OTHER: vm(OTHER, "instance-2", "web"),
    THIRD: vm(THIRD, "instance-3", ONE),
}


class Libvirt:
    """A connection to a libvirtd that has these VMs."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self, wait: bool) -> None:
        pass

    def list_running(self) -> dict[str, int]:
        return dict.fromkeys(RUNNING, 1)

    def describe(self, uuid: str) -> VirtualMachine | None:
        return RUNNING[uuid]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.hypervisor.connection.Connection", Libvirt)


@pytest.mark.parametrize(
    ("wanted", "found"), [("instance-2", OTHER), (OTHER.upper(), OTHER), (ONE, ONE), ("instance-3", THIRD)]
)
def test_a_vm_is_found_by_its_uuid_before_its_names(wanted: str, found: str) -> None:
    assert vms.find("test:///", "/run", wanted).uuid == found


def test_of_two_vms_of_one_name_neither_is_taken() -> None:
    with pytest.raises(exceptions.AmbiguousVm, match=f"{ONE}, {OTHER}"):
        vms.find("test:///", "/run", "web")


def test_a_vm_that_does_not_run_is_named() -> None:
    with pytest.raises(exceptions.NoSuchVm, match="'we'"):
        vms.find("test:///", "/run", "we")


class _Error(libvirt.libvirtError):  # type: ignore[misc]  # libvirt has no types
    """An error of libvirt's with that code."""

    def __init__(self, code: int) -> None:
        super().__init__("an error")
        self.err = (code, 0, "an error", 0, "", "", "", 0, 0)


def test_a_paused_vm_that_has_ended_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    code = libvirt.VIR_ERR_NO_DOMAIN

    def look_up(uuid: str) -> None:
        raise _Error(code)

    connection = SimpleNamespace(lookupByUUIDString=look_up, close=lambda: None)
    monkeypatch.setattr(libvirt, "open", lambda uri: connection)
    vms.resume("test:///", ONE)
    for ask in (vms.pause, vms.is_running):
        with pytest.raises(exceptions.LoadFailed, match=ONE):
            ask("test:///", ONE)
    code = libvirt.VIR_ERR_INTERNAL_ERROR
    with pytest.raises(exceptions.LoadFailed, match=ONE):
        vms.resume("test:///", ONE)
