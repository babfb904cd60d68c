# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the lab. Each message says what to do."""

from __future__ import annotations


class LabError(Exception):
    """The lab can't do what it was asked."""


class NoSuchMachine(LabError):
    """A machine or a kernel that the lab does not know."""


class NoMirror(LabError):
    """No mirror of Debian to fetch packages from."""


class Lacking(LabError):
    """Something that this machine would need; the message says how to get it."""


class NotBuilt(LabError):
    """A part of the lab that is not in the cache."""


class BuildFailed(LabError):
    """A part of the lab that could not be built; the message has the end of its log."""


class GuestDied(LabError):
    """A guest that ended, or fell silent, before its work was done; the message has the console's end."""
