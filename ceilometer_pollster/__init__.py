# SPDX-License-Identifier: Apache-2.0
"""Ceilometer's meters of each instance's share of the L3 caches, of its memory traffic, and of what it executes.

Ceilometer had ``cpu_l3_cache`` and ``memory.bandwidth.*`` until 23.0; 24.0 removed them with the perf events that they
stood on. It still has ``perf.*``, which ask libvirt. ``ceilometer-polling`` finds the pollsters by their entry points
(``ceilometer.poll.compute``), which are named as the meters, with ``vmqos.`` before those of Ceilometer's own names.

Those of caches and memory traffic stand on :mod:`vmqos.telemetry`, which reads resctrl, and need no agent. Those of
what an instance executes ask the agent's socket: only root may count other users' processes.
"""
