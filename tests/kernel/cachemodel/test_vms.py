# SPDX-License-Identifier: Apache-2.0
"""What a VM in the guest accesses counts for the group that its process is in."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import LINE, Counts
from tests.kernel.pytest_guest import MountResctrl

pytestmark = [pytest.mark.guest(machines="milan-kvm", kernels="6.12"), pytest.mark.timeout(1800), pytest.mark.long]

WALKED = 512 << 10
"""Bytes that the payload walks through."""
ROUNDS = 8
"""Of the walk, which are watched."""
BOOT_PATIENCE = 200.0


@pytest.mark.parametrize("accelerator", ["kvm", "tcg"])
def test_a_vms_loads_count_for_its_group(mount_resctrl: MountResctrl, tmp_path: Path, accelerator: str) -> None:
    group = mount_resctrl("debug") / "vm"
    retry(group.mkdir, OSError)
    rmid = switch.rmid_of(group)
    subprocess.run(["modprobe", "kvm_amd"], check=True)
    with _vm(_payload(tmp_path), accelerator, group) as process, switch.on(l2size=64 << 10):
        counts = _walking(process, rmid)
        assert counts.l3_miss_ratio < 0.05, counts
        assert counts.occupancy > 0.9 * WALKED, counts
        (group / "schemata").write_text("L3:0=0\n")
        switch.empty()
        # Without ways nothing of it is held. What the kernel's own group holds is found all the same: the slower the
        # machine is, the more of it in a walk.
        assert _counted(rmid).l3_miss_ratio > 0.8
        assert switch.counts(0, rmid).occupancy == 0


def _payload(directory: Path) -> Path:
    source, image = Path(__file__).with_name("payload.s"), directory / "payload"
    subprocess.run(["as", "-o", directory / "payload.o", source], check=True)
    subprocess.run(["ld", "-Ttext=0x7c00", "--oformat=binary", "-o", image, directory / "payload.o"], check=True)
    image.write_bytes(image.read_bytes().ljust(64 << 10, b"\0"))
    return image


@contextmanager
def _vm(image: Path, accelerator: str, group: Path) -> Iterator[subprocess.Popen[bytes]]:
    def enter() -> None:
        os.sched_setaffinity(0, {0})
        (group / "tasks").write_text("0")

    command = ["qemu-system-x86_64", "-accel", accelerator, "-m", "32", "-nodefaults", "-display", "none"]
    command += ["-drive", f"file={image},format=raw,snapshot=on"]
    with subprocess.Popen(command, preexec_fn=enter) as process:
        try:
            yield process
        finally:
            process.kill()


def _walking(process: subprocess.Popen[bytes], rmid: int) -> Counts:
    """Counts of some of the time in which the payload walks: its firmware has ended."""
    deadline = time.monotonic() + BOOT_PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None
        counts = _counted(rmid)
        # The walk finds no line in the L2, and stores nothing.
        if counts.store.l3 + counts.data.memory < counts.load.l3 / 50:
            return counts
    raise TimeoutError(f"the VM does not walk: {counts}")


def _counted(rmid: int) -> Counts:
    """What was counted while the L2s lacked some rounds' lines."""
    before, deadline = switch.counts(0, rmid), time.monotonic() + BOOT_PATIENCE
    while True:
        counts = switch.counts(0, rmid) - before
        if counts.load.l3 + counts.load.memory > ROUNDS * WALKED // LINE:
            return counts
        if time.monotonic() > deadline:
            raise TimeoutError(f"the VM loads hardly anything: {counts}")
        time.sleep(0.1)
