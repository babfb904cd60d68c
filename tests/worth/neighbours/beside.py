# SPDX-License-Identifier: Apache-2.0
"""What is made outside of mixes that a guest ran.

The native library runs them, too, with the ways that the VMs had there. And what was counted in the guest is kept, so
that another law can judge it without a guest.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kernel.lab.job import CHECKOUT
from tests.worth.neighbours import carried, law, mixes, truth
from tests.worth.neighbours.in_guest import SIGHTS, WITHIN, judged, told
from tests.worth.neighbours.judge import judge
from tests.worth.neighbours.machine import run
from tests.worth.neighbours.mixes import Mix, Work
from tests.worth.neighbours.recorded import WHOLE, NotRunError, unpacked

KEPT = CHECKOUT / "build/guest_mixes.json"
"""What came of mixes in a guest. It is forgotten as soon as a law or a mix has changed."""
RECORDED = CHECKOUT / "build/guest_mixes_recorded.json"
"""What was counted of mixes in a guest. It is forgotten as soon as a mix, or how a guest runs it, has changed."""
RUNNING = ("carried", "hardware", "in_guest", "mixes", "recorded")
"""The modules of this package that decide what is counted."""
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
    """Each mix as the guest found it, and beside it as the native library does; what was counted is kept apart."""
    record(found)
    bare = {key: {name: value for name, value in one.items() if name != "recorded"} for key, one in found.items()}
    keep(bare)
    return {key: {"guest": one, "native": natively(key, one)} for key, one in bare.items()}


def record(found: Found) -> None:
    """Keep what was counted of those mixes that a guest has run now."""
    new = {key: one for key, one in found.items() if "recorded" in one}
    if new:
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text(json.dumps({"of": _digest_of_runs(), "found": recorded() | new}))


def recorded() -> Found:
    """The mixes of which it is kept what was counted, as a guest found them."""
    read: Found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {"of": ""}
    found: Found = read["found"] if read["of"] == _digest_of_runs() else {}
    return found


def again() -> Found:
    """What a guest found, judged by the law as it is now.

    A mix is left out if it has to be run again, because the law accuses a VM without which it was not run.
    """
    found: Found = {}
    for key, one in recorded().items():
        mix, runs = mix_of(key, one["masks"], one["instructions"]), unpacked(one["recorded"])
        try:
            found[key] = one | judged(mix, runs.runs[WHOLE], runs.seen, runs.run)
        except NotRunError as error:
            print(f"{key} has to be run in a guest again: {error}")
    return found


def _digest_of_runs() -> str:
    return law.digest(Path(__file__).with_name(f"{name}.py") for name in RUNNING)
