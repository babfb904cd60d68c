# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with resctrl: one class a failure, its message what the operator should do."""

from __future__ import annotations


class ResctrlError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "resctrl failed"

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class InvalidBitmask(ResctrlError, ValueError):
    """A text is no capacity bitmask."""

    msg_fmt = "{text!r} is no capacity bitmask: write hexadecimal digits, such as 3f"


class IllegalBitmask(ResctrlError, ValueError):
    """A mask that this machine's kernel would refuse."""

    msg_fmt = "{resource} can't take the mask {mask}: {rule}"
