# SPDX-License-Identifier: Apache-2.0
"""What holds for all unit tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine, and what else it is doing, than about the code.
settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("unhurried")
