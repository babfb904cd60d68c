# SPDX-License-Identifier: Apache-2.0
"""What the native library finds of mixes that a guest ran, with the ways that the VMs had there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kernel.lab.job import CHECKOUT
from tests.worth.neighbours import carried, law, mixes, truth
from tests.worth.neighbours.in_guest import SIGHTS, WITHIN, told
from tests.worth.neighbours.judge import judge
from tests.worth.neighbours.machine import run
from tests.worth.neighbours.mixes import Mix, Work

KEPT = CHECKOUT / "build/guest_mixes.json"
"""What came of mixes in a guest. It is forgotten as soon as a law or a mix has changed."""
MODULES = ("carried", "hardware", "in_guest", "judge", "mixes", "truth")
"""Those of this package that decide what comes of a mix in a guest."""

Found = dict[str, Any]


def digest() -> str:
    """Of all that decides what comes of a mix, but for the model of the caches."""
    return law.digest([*(Path(__file__).with_name(f"{name}.py") for name in MODULES), *law.sources()])


def kept() -> Found:
    """What is kept, if it is of these laws."""
    read: Found = json.loads(KEPT.read_text()) if KEPT.exists() else {"of": ""}
    found: Found = read["found"] if read["of"] == digest() else {}
    return found


def keep(found: Found) -> None:
    """Keep what a guest found."""
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({"of": digest(), "found": found}))


def mix_of(key: str, masks: list[int], instructions: list[int]) -> Mix:
    """The mix of a kind and seed, with the ways that the VMs had, and the instructions that each access took them."""
    kind, seed = key.split()
    mix = carried.carried(mixes.planted(int(seed)) if kind == "planted" else mixes.quiet(int(seed)))
    assert mix is not None
    vms = [
        replace(vm, mask=mask, phases=[replace(phase, work=_taking(phase.work, took)) for phase in vm.phases])
        for vm, mask, took in zip(mix.vms, masks, instructions, strict=True)
    ]
    planted = mix.planted
    if planted is not None:
        planted = replace(planted, work=_taking(planted.work, instructions[planted.vm]))
    return replace(mix, vms=vms, planted=planted)


def _taking(work: Work, instructions: int) -> Work:
    return work if work == carried.IDLE else replace(work, load=replace(work.load, instructions=max(1, instructions)))


def natively(key: str, of_guest: Found) -> Found:
    """What the native library finds of the same mix."""
    mix = mix_of(key, of_guest["masks"], of_guest["instructions"])
    whole = run(mix)
    done = {} if mix.planted is None else truth.done_by_planted(mix, whole, run(mix, planted=False), WITHIN)
    harm = truth.harmed(done)
    return {
        "vms": len(mix.vms),
        "onset": mix.planted.onset if mix.planted is not None else 0,
        "culprit": mix.planted.vm if mix.planted is not None else None,
        "quiet": mix.planted is None and truth.is_quiet(mix),
        "done": {str(vm): [round(one.slower, 3), sorted(one.causes)] for vm, one in done.items()},
        "said": {name: told(judge(mix, whole, harm, SIGHTS[name])) for name in SIGHTS},
    }


def complete(found: Found) -> Found:
    """Each mix as the guest found it, and beside it as the native library does."""
    keep(found)
    return {key: {"guest": one, "native": natively(key, one)} for key, one in found.items()}
