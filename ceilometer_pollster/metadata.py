# SPDX-License-Identifier: Apache-2.0
"""What a sample's ``resource_metadata`` says beyond what Ceilometer's own instance pollsters put there."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.telemetry import EVENTS, Reading, VmReading

Plain = str | int | float | None
"""Values that come out of a message queue as they went in: Ceilometer signs a message before and checks it after."""


def of_vm(vm: VmReading) -> dict[str, Plain | Mapping[str, Mapping[str, Plain]]]:
    """Where the VM's numbers come from.

    ``class`` is the control group, empty for the default group; ``policy`` is ``exclusive``, ``shared`` or ``None``.
    ``caches`` has by cache id the ``ways`` of the VM, and each event's number or the reason why there is none. All keys
    are strings: the signature of a message with other keys would not fit after JSON.
    """
    return {
        "class": vm.group,
        "policy": vm.policy,
        "caches": {
            str(cache): {"ways": vm.ways.get(cache), **{event: _plain(readings[event]) for event in EVENTS}}
            for cache, readings in vm.caches.items()
        },
    }


def _plain(reading: Reading) -> Plain:
    return str(reading.missing) if reading.value is None else reading.value
