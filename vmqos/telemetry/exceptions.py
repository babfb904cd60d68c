# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while counters are read, beside what :mod:`vmqos.resctrl.exceptions` has."""

from __future__ import annotations

from vmqos.resctrl.exceptions import ResctrlError


class SweepFailed(ResctrlError):
    """A sweep stumbled over something that nobody thought of."""

    msg_fmt = "counters can't be read: {cause}: report this with the traceback in the log"
