# SPDX-License-Identifier: Apache-2.0
"""Telling systemd how the service does: sd_notify(3) over the socket that systemd names."""

from __future__ import annotations

import logging
import os
import socket

from vmqos.daemon.log_once import LogOnce

LOG = logging.getLogger(__name__)

PATIENCE = 0.1
"""Seconds to wait where systemd reads nothing: a systemd that froze ("Freezing execution") never does again, and VMs
run on."""


def notify(state: str, once: LogOnce | None = None) -> bool:
    """Send one state, such as ``READY=1`` or ``WATCHDOG=1``; nothing happens where systemd does not listen.

    :param once: knows what was logged already; ``None``: each failure is logged.
    :returns: whether it was sent.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(PATIENCE)
            sender.connect(address)
            sender.sendall(state.encode())
    except OSError as error:
        (once or LogOnce(LOG)).log(logging.WARNING, "notify", "systemd's notification socket fails: %s", error)
        return False
    if once is not None:
        once.end("notify")
    return True


def watchdog_interval() -> float | None:
    """Seconds within which systemd wants a sign of life (``WatchdogSec=``); ``None`` where it wants none."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(os.environ["WATCHDOG_USEC"])
    except (KeyError, ValueError):
        return None
    return microseconds / 1e6 if microseconds > 0 else None
