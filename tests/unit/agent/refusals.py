# SPDX-License-Identifier: Apache-2.0
"""A kernel that refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.unit.agent.host import SHARED, Host
from vmqos.allocation import PromiseState

SHARED_4, LIMIT = {**SHARED, "hw:cache_ways": "4"}, {"hw:mem_bandwidth_percent": "50"}
KEPT, DEGRADED, PENDING = PromiseState.KEPT, PromiseState.DEGRADED, PromiseState.PENDING


@contextlib.contextmanager
def group_refused(host: Host, name: str) -> Iterator[None]:
    """The kernel makes no group of this name."""

    def refuse(path: str) -> None:
        if path == name:
            raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.resctrl, "before", refuse)
        yield


@contextlib.contextmanager
def writes_refused(host: Host, *paths: str) -> Iterator[None]:
    """The kernel refuses every write to these files."""
    real = host.resctrl.write

    def write(relative: str, text: str) -> None:
        def refuse(path: str) -> None:
            raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            if relative in paths:
                patch.setattr(host.resctrl, "before", refuse)
            real(relative, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.resctrl, "write", write)
        yield


def refuse_tasks(host: Host, directory: str) -> list[str]:
    """Have the kernel refuse to read and write the tasks of a group; what is tried is noted in the list."""
    tried = list[str]()

    def refuse(path: str) -> None:
        if path == f"{directory}/tasks":
            tried.append(path)
            raise OSError(16, "Device or resource busy")

    host.resctrl.before = refuse
    return tried


def assert_counted_once_the_kernel_refuses_nothing(host: Host, vm: str) -> None:
    host.resctrl.before = lambda path: None
    host.clock += 1.0
    host.settle()
    assert host.told(vm).state is KEPT and not host.unmonitored(vm)
