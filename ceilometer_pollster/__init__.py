# SPDX-License-Identifier: Apache-2.0
"""Ceilometer's meters of each instance's share of the L3 caches and of its memory traffic.

Ceilometer had ``cpu_l3_cache`` and ``memory.bandwidth.*`` until 23.0; 24.0 removed them with the perf events that they
stood on. Here they come from resctrl, with some more. ``ceilometer-polling`` finds the pollsters by their entry points
(``ceilometer.poll.compute``), which are named as the meters. They stand on :mod:`vmqos.telemetry`, not on the agent.
"""
