# SPDX-License-Identifier: Apache-2.0
"""To which names the gateway answers.

A foreign web page can have its own name resolve to this machine, and then read what the gateway says, because the
browser takes both for one origin (DNS rebinding). Such a request carries that page's name. Addresses can't be rebound,
nor can the names that only this machine's administrators decide about.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

LOCAL = frozenset({"localhost", "vmqos-agent"})
"""``vmqos-agent`` is what :mod:`vmqos.local_api.client` asks for over a Unix socket."""

_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(?::[0-9]{0,5})?", re.ASCII)


def own_names() -> frozenset[str]:
    """What this machine calls itself."""
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]} - {""})


def is_ours(host: str | None, names: Collection[str]) -> bool:
    """Whether the value of a ``Host`` header is an address, or one of these names in lower case.

    :param host: ``None`` without such a header: browsers always send one.
    """
    if host is None:
        return True
    parts = _HOST.fullmatch(host.strip())
    if parts is None:
        return False
    if parts["address"]:
        return _is_address(parts["address"])
    name = parts["name"].lower().removesuffix(".")
    return name in names or _is_address(name)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
