# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests with an agent and VMs."""

from __future__ import annotations

from tests.functional.agent.conftest import tree, wait_for_vm

__all__ = ["tree", "wait_for_vm"]
