# SPDX-License-Identifier: Apache-2.0
"""No VM is refused for want of a safe order where there is one (rule 5).

Small caches in any state are planned for. Where the plan says that no order is safe, every order is tried. A plain run
takes a sample with a fixed seed; ``VMQOS_SAFE_ORDER_CASES=1000000`` in the environment makes that so many, from another
seed each time, and ``python -m tests.unit.allocation.test_safe_order CASES SEED`` tells what it found.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.unit.allocation.brute_force import Cache, can_be_reached
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import follow
from vmqos.allocation import Policy, PromiseState, Request, plan, reasons
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask

CASES = int(os.environ.get("VMQOS_SAFE_ORDER_CASES", "4000"))
SEED = random.SystemRandom().randrange(1 << 32) if "VMQOS_SAFE_ORDER_CASES" in os.environ else 13


@dataclass
class Case:
    """A cache in some state, and one VM that wants more."""

    kernel: Kernel
    policy: Policy
    requests: list[Request]
    wanting: Request
    cache: Cache
    now: list[int]
    goals: list[int]
    newcomers: list[int]


def make(luck: random.Random) -> Case:
    """Up to 12 ways and 6 groups; the fuller the cache, the harder."""
    width, fewest = luck.randint(6, 12), luck.choice([1, 1, 1, 2])
    io = luck.choice([0, 0, 0, 1, 2])
    shareable = ((1 << io) - 1) << (width - io)
    floor = luck.randint(fewest, 3)
    reserved = luck.choice([0, 0, 0, 1, 1 << luck.randrange(width)])
    cap = luck.choice([0, 0, 0, luck.randint(fewest, 4)])
    kernel = Kernel(machine(width, shareable=shareable, fewest=fewest))
    every = (1 << width) - 1
    free, foreign = every & ~reserved, 0
    for number in range(luck.choice([0, 0, 1, 1, 2])):
        mask = _place(luck, luck.randint(fewest, 2), every & ~foreign, width)
        kernel.masks[f"other{number}"] = {0: mask}
        foreign |= mask
    free &= ~foreign
    shared_ways, vm_ways = free, free & ~shareable
    least = max(floor, cap)
    default = _place(luck, luck.randint(least, least + 1), free, width)
    kernel.masks[""] = {0: default}
    free &= ~default
    now, requests = [], []
    for number in range(1, luck.randint(2, 6)):
        mask = _place(luck, luck.randint(fewest, 4), free & vm_ways, width)
        if mask:
            now.append(mask)
            free &= ~mask
            kernel.masks[vm_group(uuid(number))] = {0: mask}
            requests.append(request(number, mask.bit_count()))
    if cap and default:
        kernel.masks[class_group(CacheRequest(cap))] = {0: _place(luck, cap, default, width)}
        requests.append(request(98, cap, SHARED))
    goals, newcomers = [mask.bit_count() for mask in now], list[int]()
    more = luck.randint(1, 3)
    if now and luck.random() < 0.3:
        goals[0] += more
        wanting = requests[0] = request(int(requests[0].uuid[:8], 16), goals[0])
    else:
        newcomers.append(max(fewest, more))
        wanting = request(99, newcomers[0])
        requests.append(wanting)
    policy = Policy(
        default_ways_min=floor, reserved_ways=CapacityBitmask(reserved), kernel_exclusive=luck.random() < 0.5
    )
    return Case(kernel, policy, requests, wanting, Cache(width, shared_ways, vm_ways, least), now, goals, newcomers)


def _place(luck: random.Random, size: int, within: int, width: int) -> int:
    """A mask of that size somewhere within the ways; 0 where there is none."""
    masks = [((1 << size) - 1) << low for low in range(width - size + 1)]
    return luck.choice([mask for mask in masks if not mask & ~within] or [0])


def judge(case: Case) -> str:
    """What became of the VM that wants more. A plan is carried out, and every state on the way checked."""
    kernel, default = case.kernel, case.kernel.masks[""][0]
    found = plan(kernel.capabilities, kernel.layout(), case.requests, case.policy)
    follow(kernel, case.requests, case.policy, found)
    verdict = found.allocations[case.wanting.uuid]
    others = {each.state for uuid_, each in found.allocations.items() if uuid_ != case.wanting.uuid}
    if not others <= {PromiseState.KEPT}:
        return "others harmed"
    if verdict.state is PromiseState.KEPT:
        return "kept"
    if reasons.NO_SAFE_ORDER.text not in verdict.reason.text:
        return "no room"
    missed = can_be_reached(case.cache, default, case.now, case.goals, case.newcomers)
    return "order missed" if missed else "no safe order"


def cases(count: int, seed: int) -> Iterator[tuple[str, Case, str]]:
    """What was tried, as text, and what became of it."""
    luck = random.Random(seed)
    for _ in range(count):
        case = make(luck)
        if case.kernel.masks[""][0]:
            shown = {name: f"{mask[0]:b}" for name, mask in case.kernel.masks.items()}
            yield f"{shown} {case.cache} {case.goals} {case.newcomers} {case.policy}", case, judge(case)


def test_who_is_refused_for_want_of_a_safe_order_has_none() -> None:
    seen = Counter[str]()
    for shown, _, found in cases(CASES, SEED):
        seen[found] += 1
        assert found in ("kept", "no room", "no safe order"), f"{found} with seed {SEED}: {shown}"
    assert min(seen[found] for found in ("kept", "no room", "no safe order")) > CASES // 1000


if __name__ == "__main__":
    found_all = Counter[str]()
    for text, _, end in cases(int(sys.argv[1]), int(sys.argv[2])):
        found_all[end] += 1
        if end not in ("kept", "no room", "no safe order"):
            print(end, text, flush=True)
    print(dict(found_all))
