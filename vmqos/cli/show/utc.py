# SPDX-License-Identifier: Apache-2.0
"""Moments as people read them: in UTC, and with that word, for hosts and operators may be in several time zones."""

from __future__ import annotations

from datetime import UTC, datetime


def time_of_day(moment: float) -> str:
    """The time of day, such as ``21:20:22 UTC``.

    :param moment: seconds since 1970.
    """
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S} UTC"


def clock(moment: float | None, now: float | None = None) -> str:
    """The time of day, after the day where that is another one than now; ``-`` for no moment.

    :param moment: seconds since 1970, as the agent or a recording has them; what is no date is given as it is.
    :param now: the same; ``None`` to have the day in any case.
    """
    if moment is None:
        return "-"
    try:
        day = datetime.fromtimestamp(moment, UTC).date()
        is_today = now is not None and datetime.fromtimestamp(now, UTC).date() == day
    except (OverflowError, ValueError, OSError):
        return f"{moment:g}"
    return time_of_day(moment) if is_today else f"{day} {time_of_day(moment)}"
