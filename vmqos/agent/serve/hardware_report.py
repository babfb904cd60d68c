# SPDX-License-Identifier: Apache-2.0
"""What the VMs' tasks execute, as the JSON of ``/v1/telemetry/hardware-events``.

The kernel's perf events count it. For a VM that they do not count, the processor's packages may count the cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.agent.sample.hardware_counts import HardwareCounts, Look, Uncounted, VmCounts
from vmqos.agent.sample.sampler import OLD_AFTER, Telemetry
from vmqos.agent.serve import health_report
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.resctrl.monitoring import CYCLES
from vmqos.telemetry import Rates, Snapshot, VmReading
from vmqos.telemetry.hardware_events import NAMES

NO_PERF = "no-perf"
"""Why perf counts no VM at all, as a word; the text says more."""

_CYCLES = NAMES[0]


def report(hardware: HardwareCounts, telemetry: Telemetry | None = None) -> contract.HardwareEvents:
    """The newest look.

    :param telemetry: where the packages' counters are; ``None`` where nothing reads them.
    """
    return of_look(hardware.newest(), hardware.interval, telemetry)


def of_look(look: Look, interval: float, telemetry: Telemetry | None = None) -> contract.HardwareEvents:
    """One look; see :func:`report`.

    :param interval: seconds between two looks.
    """
    vms = {uuid: _vm(found) for uuid, found in look.vms.items()}
    taken_at, taken, unavailable = look.wall, look.monotonic, look.unavailable
    sampled = _sampled(telemetry) if telemetry is not None and _lacks_some(look) else None
    if sampled is not None and not (look.vms and _is_much_older(sampled[0], look, interval)):
        snapshot, rates = sampled
        for uuid, vm in snapshot.vms.items():
            if vm.since is None or not (unavailable or isinstance(look.vms.get(uuid), Uncounted)):
                continue
            why = look.vms.get(uuid) or Uncounted(NO_PERF, unavailable)
            assert isinstance(why, Uncounted)
            vms[uuid] = _by_packages(vm, rates[uuid], why)
        if unavailable and vms:
            taken_at, taken, unavailable = snapshot.wall, snapshot.monotonic, ""
    return {
        "taken_at": taken_at,
        "interval": interval,
        "age_seconds": health_report.age(taken),
        "unavailable": unavailable,
        "unavailable_code": look.unavailable_code,
        "vms": vms,
    }


def _is_much_older(snapshot: Snapshot, look: Look, interval: float) -> bool:
    """Whether what packages counted is of another time than what perf did, whose age is told for both."""
    return look.monotonic is not None and look.monotonic - snapshot.monotonic > max(3 * interval, OLD_AFTER)


def _lacks_some(look: Look) -> bool:
    return bool(look.unavailable) or any(isinstance(found, Uncounted) for found in look.vms.values())


def _sampled(telemetry: Telemetry) -> tuple[Snapshot, Mapping[str, Rates]] | None:
    try:
        snapshot, rates = telemetry.sampled()
    except ResctrlError:
        return None
    return (snapshot, rates) if CYCLES in snapshot.host.events else None


def _by_packages(vm: VmReading, rates: Rates, why: Uncounted) -> contract.VmHardwareEvents:
    """Cycles, which packages count too, and why there is no more."""
    rate = rates.packages.get(CYCLES)
    return {
        **_vm(why),
        "since": vm.since,
        "counts": {**_by_name(None), _CYCLES: vm.totals[CYCLES].value},
        "rates": {**_by_name(None), _CYCLES: rate.value if rate is not None else None},
        "source": "aet",
    }


def _vm(found: VmCounts | Uncounted) -> contract.VmHardwareEvents:
    if isinstance(found, Uncounted):
        nothing = _by_name(None)
        return {
            "since": None,
            "counts": nothing,
            "rates": nothing,
            "share": None,
            "source": "",
            "reason": found.text,
            "reason_code": found.word,
        }
    return {
        "since": found.since,
        "counts": _by_name(found.counts),
        "rates": _by_name(found.rates),
        "share": found.share,
        "source": "perf",
        "reason": "",
        "reason_code": "",
    }


def _by_name(values: Sequence[float] | None) -> contract.Counts:
    return dict(zip(NAMES, values, strict=True)) if values is not None else dict.fromkeys(NAMES)
