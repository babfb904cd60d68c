# SPDX-License-Identifier: Apache-2.0
"""Where a test is run; guests import this, too, whose processors are slow."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A machine.

    :ivar target: ``simulator`` or ``kernel``.
    :ivar kernel: a guest's by its name in the lab, ``6.12`` or ``newest``; a simulated one's version.
    :ivar machine: its name.
    """

    target: str
    kernel: str
    machine: str
