# SPDX-License-Identifier: Apache-2.0
"""The functional tests' fixtures: the simulator, a private libvirtd and its VMs."""

from __future__ import annotations

from tests.functional.conftest import (
    _session_libvirt,
    agent,
    free_port,
    libvirt_host,
    made_agents,
    make_agent,
    make_vm,
    pace,
    resctrl,
    simulator,
    virt_type,
    wait_for,
    workspace,
)

__all__ = [
    "_session_libvirt",
    "agent",
    "free_port",
    "libvirt_host",
    "made_agents",
    "make_agent",
    "make_vm",
    "pace",
    "resctrl",
    "simulator",
    "virt_type",
    "wait_for",
    "workspace",
]
