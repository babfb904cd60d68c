# SPDX-License-Identifier: Apache-2.0
"""What libvirt's files in its run directory say of a VM."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.hypervisor import bounded_xml, exceptions, run_files
from vmqos.hypervisor.domain_xml import Pinning
from vmqos.hypervisor.run_files import DomainStatus

UUID = "38c43823-3651-469c-b344-166d1c87d77b"
NAMES = f"<name>instance-00000005</name><uuid>{UUID}</uuid>"


def status(
    body: str = "", *, state: str = "paused", reason: str = "starting up", pid: str = "0", private: str = ""
) -> str:
    return (
        f"<domstatus state='{state}' reason='{reason}' pid='{pid}'>{private}"
        f"<domain type='kvm' id='4'>{NAMES}{body}</domain></domstatus>"
    )


def test_a_vm_that_is_not_forked_yet() -> None:
    found = run_files.parse_status(status())
    assert (found.domain.uuid, found.domain.libvirt_id, found.pid) == (UUID, 4, 0)
    assert found.is_starting and not found.is_incoming


def test_a_vm_that_is_forked() -> None:
    assert run_files.parse_status(status(pid="4711")).pid == 4711


@pytest.mark.parametrize(
    ("state", "reason"), [("running", "booted"), ("paused", "user"), ("paused", "migration"), ("shutoff", "crashed")]
)
def test_a_vm_that_is_started(state: str, reason: str) -> None:
    assert not run_files.parse_status(status(state=state, reason=reason)).is_starting


@pytest.mark.parametrize(("job", "incoming"), [("migration in", True), ("migration out", False), ("start", False)])
def test_a_vm_that_comes_by_migration(job: str, incoming: bool) -> None:
    private = f"<job type='none' async='{job}' phase='prepare' flags='0x0'/>"
    assert run_files.parse_status(status(private=private)).is_incoming is incoming


@pytest.mark.parametrize(
    ("body", "pinning"),
    [
        ("", Pinning(("",), "")),
        ("<vcpu>2</vcpu>", Pinning(("", ""), "")),
        ("<vcpu placement='static' cpuset='0-3'>2</vcpu>", Pinning(("0-3", "0-3"), "0-3")),
        ("<vcpu current='1' cpuset='0-3'>4</vcpu>", Pinning(("0-3",), "0-3")),
        (
            "<vcpu>2</vcpu><cputune><vcpupin vcpu='1' cpuset='5'/><emulatorpin cpuset='0,5'/></cputune>",
            Pinning(("", "5"), "0,5"),
        ),
        ("<vcpu>many</vcpu>", Pinning(("",), "")),
    ],
)
def test_where_its_threads_are_to_run(body: str, pinning: Pinning) -> None:
    assert run_files.parse_status(status(body)).pinning == pinning


def test_no_more_vcpus_are_read_than_a_vm_can_have() -> None:
    assert len(run_files.parse_status(status("<vcpu>999999</vcpu>")).pinning.vcpus) == 8192


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<domain/>",
        f"<domain>{NAMES}</domain>",
        "<domstatus state='paused' reason='starting up' pid='1'/>",
        status(pid=""),
        status(pid="-1"),
        status(pid="99999999"),
        "<domstatus pid='1'><domain id='4'/></domstatus>",
    ],
)
def test_anything_else_is_refused(xml: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription):
        run_files.parse_status(xml)


@given(st.text())
def test_no_text_does_harm(text: str) -> None:
    for xml in (text, status(text), status(pid=text.replace("'", "")), status(private=text)):
        with contextlib.suppress(exceptions.UnreadableDescription):
            assert isinstance(run_files.parse_status(xml), DomainStatus)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "instance-00000005.xml"
    path.write_text(status(pid="7"))
    found = run_files.read_status(str(path))
    assert found is not None and found.pid == 7


def test_what_is_no_file_of_libvirts_is_no_status(tmp_path: Path) -> None:
    good, link, pipe, large, binary = (tmp_path / name for name in ("good", "link", "pipe", "large", "binary"))
    good.write_text(status())
    link.symlink_to(good)
    os.mkfifo(pipe)
    large.write_text(status(" " * bounded_xml.LONGEST))
    binary.write_bytes(status().encode() + b"\xff")
    for path in (tmp_path / "missing", tmp_path, link, pipe, large, binary):
        assert run_files.read_status(str(path)) is None
    assert run_files.read_status(str(good)) is not None


def test_a_file_that_another_user_wrote_is_no_status(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(status())
    if os.geteuid() != 0:
        pytest.fail("this test gives a file to another user, which only root can")
    os.chown(path, 65534, 65534)
    assert run_files.read_status(str(path)) is None
