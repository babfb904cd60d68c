# SPDX-License-Identifier: Apache-2.0
"""Where a resctrl comes from: what is the same system call on both targets is in :mod:`tests.conformance.resctrl`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Target(Protocol):
    """A machine whose resctrl can be mounted.

    :ivar root: where it is mounted.
    """

    root: str

    def mount(self, options: str) -> str | None:
        """Mount it.

        :param options: joined by commas.
        :return: the name of the error if it is refused.
        """

    def umount(self) -> str | None:
        """Unmount it; the machine is then ready for the next mount.

        :return: the name of the error if it is refused.
        """

    def registers(self, wanted: Sequence[tuple[int, int]]) -> list[int | str]:
        """What ``rdmsr`` says.

        :param wanted: a CPU and the number of a register, each.
        :return: the values; for one that cannot be read, the name of the error.
        """

    def let_limbo_pass(self) -> None:
        """Let freed RMIDs come nearer to being free."""

    def lasting_limbo(self, rmids: int) -> AbstractContextManager[None]:
        """As long as the block runs, no RMID that is freed becomes free, however long that is.

        :param rmids: how many the machine has.
        """

    def close(self) -> None:
        """End what was started for it."""
