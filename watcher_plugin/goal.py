# SPDX-License-Identifier: Apache-2.0
"""The goal, and by which figures it is judged."""

from __future__ import annotations

from typing import Any

from watcher.decision_engine.goal import base as goal
from watcher.decision_engine.goal.efficacy import base, indicators
from watcher.decision_engine.solution import efficacy

NAME = "vmqos_noisy_neighbour"
"""Of the goal and of the strategy: that of their entry points."""


class _Count(indicators.IndicatorSpecification):  # type: ignore[misc]
    """A number of VMs."""

    @property
    def schema(self) -> dict[str, Any]:
        """What the number may be."""
        return {"type": "integer", "minimum": 0}


class SlowedInstancesCount(_Count):
    """How many VMs are slowed by a neighbour."""

    def __init__(self) -> None:
        super().__init__("slowed_instances_count", "The number of instances that a neighbour slows.")


class FreedInstancesCount(_Count):
    """How many of them are expected not to be slowed any more."""

    def __init__(self) -> None:
        super().__init__(
            "freed_instances_count", "The number of them that are expected not to be slowed after the action plan."
        )


class FreedInstances(base.EfficacySpecification):  # type: ignore[misc]
    """A plan is as good as its share of slowed VMs that it frees."""

    def get_indicators_specifications(self) -> list[Any]:
        """The figures of a plan."""
        return [SlowedInstancesCount(), FreedInstancesCount(), indicators.InstanceMigrationsCount()]

    def get_global_efficacy_indicator(self, indicators_map: Any = None) -> list[Any]:
        """The one figure that plans are compared by, in per cent; 100 where no VM is slowed."""
        slowed = indicators_map.slowed_instances_count if indicators_map else 0
        share = 100.0 * indicators_map.freed_instances_count / slowed if slowed else 100.0
        text = "Share of the slowed instances that are expected not to be slowed after the action plan."
        return [efficacy.Indicator(name="freed_instances_ratio", description=text, unit="%", value=share)]


class NoisyNeighbour(goal.Goal):  # type: ignore[misc]
    """No VM is slowed by another one on its node."""

    @classmethod
    def get_name(cls) -> str:
        """The name of its entry point."""
        return NAME

    @classmethod
    def get_display_name(cls) -> str:
        """What people read."""
        return cls.get_translatable_display_name()

    @classmethod
    def get_translatable_display_name(cls) -> str:
        """The same in English."""
        return "No noisy neighbours (vmqos)"

    @classmethod
    def get_efficacy_specification(cls) -> FreedInstances:
        """By which figures a plan is judged."""
        return FreedInstances()
