# SPDX-License-Identifier: Apache-2.0
"""The simulator, in which VMs do what a test says, and not what their processes do.

It takes the simulator's own arguments. The file ``MOUNTPOINT.json`` has, by the UUID of a VM, the bytes that it holds
of cache 0, and the bytes a second that it moves between that cache and memory; it does nothing on the others. The file
is read whenever a counter is. Where it has ``limited``, that has ``vm``, a UUID, and ``vms``: what VMs do instead while
the memory bandwidth of this one is limited; or, with ``ways``, while it has a control group of its own that fills so
many ways of L3 cache 0 at most.

In the place of these two numbers there may be an object that has them by the number of ways that the VM has at that
moment (``2+3``: two for code and three for data), with ``more`` for all other numbers; and in the place of the bytes a
second a list of the fewest and the most, between which they vary by chance.

Behind the bytes a second there may be the hardware events a second: cycles, instructions, and references and misses of
the L3. The file ``MOUNTPOINT.events`` has those of now, by the UUID of a VM, for
:mod:`tests.functional.insight.counting_agent`.

While a VM has a control group of its own, its monitoring group elsewhere moves nothing. It holds the bytes that
``left`` has for the VM, by the number of ways as above; nothing unless it has any.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from vmqos.simulator import __main__ as simulator
from vmqos.simulator import service
from vmqos.simulator.files import schemata
from vmqos.simulator.files.state import Group
from vmqos.simulator.kernel.tree import Directory
from vmqos.simulator.machine import Machine


def played(file: Path) -> type[Machine]:
    """Machines whose counters say what is in a file."""

    class Played(Machine):
        def mount(self, text: str = "") -> Directory:
            root = super().mount(text)
            _play(self, file)
            return root

    return Played


def _play(machine: Machine, file: Path) -> None:
    counters = machine.hardware.counters
    real, moved, known = counters.read, dict[tuple[int, int], float](), [time.monotonic()]
    events = Events(file.with_suffix(".events"))

    def read(rmids: Sequence[int], domains: Sequence[int], event: str) -> str:
        before, known[0] = known[0], time.monotonic()
        for rmid, does in _by_rmid(machine, file, events).items():
            for domain in {0, *domains}:
                held, rate = does if domain == 0 else (0.0, 0.0)
                counter, key = counters.counter(rmid, domain), (rmid, domain)
                moved[key] = moved.get(key, counter.total) + rate * (known[0] - before)
                counter.occupancy, counter.total, counter.local = held, moved[key], moved[key]
        return real(rmids, domains, event)

    counters.read = read  # type: ignore[method-assign]


class Events:
    """The file of the hardware events; it is written when they change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._told: Mapping[str, Sequence[float]] = {}

    def tell(self, found: Mapping[str, Sequence[float]]) -> None:
        """What VMs execute now, by UUID."""
        if found != self._told:
            new = self._file.with_suffix(".new-events")
            new.write_text(json.dumps(found))
            os.replace(new, self._file)
            self._told = found


def _by_rmid(machine: Machine, file: Path, events: Events) -> Mapping[int, tuple[float, float]]:
    told = json.loads(file.read_text()) if file.exists() else {}
    if "limited" in told and _is_limited(machine, told["limited"]["vm"], told["limited"].get("ways")):
        told = told["limited"]["vms"]
    found, left, executed = {}, told.pop("left", {}), dict[str, Sequence[float]]()
    own = {control.directory.name: control for control in machine.mounted.groups}
    for control in machine.mounted.groups:
        for group in (control, *control.children):
            name = group.directory.name
            uuid = name.removeprefix("vmqos.")
            if uuid in told and group is not control and name in own:
                held, rate, *_ = _now(left.get(uuid, (0.0, 0.0)), machine, own[name])
                found[group.rmid] = held, rate
            elif uuid in told:
                held, rate, *executed[uuid] = _now(told[uuid], machine, control)
                found[group.rmid] = held, rate
    events.tell(executed)
    return found


def _now(does: Any, machine: Machine, control: Group) -> tuple[float, ...]:
    """What a VM holds, moves a second and executes a second, with the ways that its control group has now."""
    if isinstance(does, dict):
        masks = re.findall(r"L3(?:CODE|DATA)?:0=([0-9a-f]+)", schemata.show(machine.mounted, control))
        assert masks
        code_and_data = masks[::-1] if schemata.show(machine.mounted, control).find("L3DATA") >= 0 else masks
        does = does.get("+".join(str(int(mask, 16).bit_count()) for mask in code_and_data), does["more"])
    held, rate, *executes = does
    return held, random.uniform(*rate) if isinstance(rate, list) else rate, *executes


def _is_limited(machine: Machine, uuid: str, ways: int | None) -> bool:
    """Whether the control group that has a VM has a limit of memory bandwidth; or is its own, with few ways."""
    name = f"vmqos.{uuid}"
    for control in machine.mounted.groups:
        if ways is not None:
            if name == control.directory.name:
                (mask,) = re.findall(r"L3:0=([0-9a-f]+)", schemata.show(machine.mounted, control))
                return int(mask, 16).bit_count() <= ways
            continue
        if name in (control.directory.name, *(child.directory.name for child in control.children)):
            limits = schemata.show(machine.mounted, control).partition("MB:")[2].split("\n")[0]
            return any(part.partition("=")[2].strip() != "100" for part in limits.split(";"))
    return False


if __name__ == "__main__":
    with patch.object(service, "Machine", played(Path(f"{sys.argv[1]}.json"))):
        simulator.main()
