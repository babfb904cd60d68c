# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while counters are read, beside what :mod:`vmqos.resctrl.exceptions` has."""

from __future__ import annotations

from vmqos.resctrl.exceptions import ResctrlError


class SweepFailed(ResctrlError):
    """A sweep failed for a reason that the code does not foresee."""

    msg_fmt = "counters can't be read: {cause}: report this with the traceback in the log"


class SweepTakesLong(ResctrlError):
    """No sweep has ended yet, and the one under way takes longer than any should."""

    msg_fmt = "no counters have been read yet: the first look at them has taken {seconds} s so far"
