# SPDX-License-Identifier: Apache-2.0
"""In what the kernels differ from each other: the only place of the suite that knows of versions.

A case that depends on one of these asks ``rdt.has(difference)``; a case about something that older kernels do not have
at all is marked ``needs.kernel_with(difference)``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that newer kernels do in another way.

    :ivar what: the newer kernels' way.
    :ivar since: the first version that has it.
    :ivar reference: where it was changed.
    """

    what: str
    since: tuple[int, int]
    reference: str

    def is_in(self, version: str) -> bool:
        """Whether a kernel has it.

        :param version: such as ``6.12`` or ``7.2``.
        """
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) >= self.since


UNPADDED_VALUES = Difference(
    "schemata shows masks without leading zeros and bandwidths without leading blanks",
    (6, 13),
    "fs/resctrl/ctrlmondata.c: show_doms",
)
