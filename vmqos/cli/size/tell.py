# SPDX-License-Identifier: Apache-2.0
"""Tells the agent how many ways a VM needs, for those who look at its page."""

from __future__ import annotations

import logging
from dataclasses import replace

from vmqos.cli.common.lease import ANSWER_TIME
from vmqos.cli.show.safe_text import display_name
from vmqos.insight.size import Size
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import LocalApiError

LOG = logging.getLogger(__name__)


def tell(agent: AgentClient, vm: contract.Vm, found: Size, part: contract.WaysFor = "") -> None:
    """Have the agent remember the curve of a VM; a warning says so where it does not.

    :param vm: as the agent told it before its ways were tried.
    :param part: whether these were its ways for code, or for data.
    """
    try:
        replace(agent, timeout=ANSWER_TIME).tell_size(vm["uuid"], vm["pid"], _told(found, part))
    except LocalApiError as error:
        name = display_name(vm)
        LOG.warning("the agent does not remember the curve of %s, so its page can't show it: %s", name, error)


def _told(found: Size, part: contract.WaysFor) -> contract.FoundSize:
    return {
        "ways": found.knee,
        "part": part,
        "at_least": found.is_least,
        "counted": found.is_counted,
        "steady": found.is_steady,
        "curve": [
            {
                "ways": ways,
                "missed": part if found.is_counted else None,
                "traffic_part": None if found.is_counted else part,
                "slower": found.slower.get(ways),
            }
            for ways, part in found.curve.items()
        ],
    }
