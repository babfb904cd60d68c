# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, in a guest: real VMs and the agent's own counters, beside the native library on the same mixes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table

HARMED = 1.10
"""``tests.worth.neighbours.truth.HARMED``."""
MUCH = 1.5
IN_TIME = 30
MIXES = 40
"""``tests.worth.experiments.guest_mixes.MIXES``."""
NO_PMU, PMU_OF_THE_L3 = "no pmu", "pmu of the L3"
TITLES = {
    NO_PMU: "what the agent has on this AMD: what VMs hold and move, and how long they run",
    PMU_OF_THE_L3: "perf's cycles and instructions, too, and references and misses of the L3, from the model",
}

Mix = Mapping[str, Mapping[str, Any]]


def section(found: Mapping[str, Mix]) -> Section:
    """See :func:`tests.worth.experiments.guest_mixes.run` and :func:`tests.worth.neighbours.beside.complete`."""
    planted = {key: one for key, one in found.items() if one["native"]["culprit"] is not None}
    quiet = {key: one for key, one in found.items() if one["native"]["culprit"] is None}
    harmful = [one for one in planted.values() if harmed(one["guest"])]
    ratios = losses(planted.values())
    host = statistics.fmean(one["guest"]["host"] for one in found.values())
    return Section(
        "Who slows whom: mixes in a guest",
        "The section before, whose mixes run on the model of the caches as a library, without a kernel, VMs or an "
        "agent.",
        f"{len(found)} of {MIXES} mixes of the same generator were run so far, by seeds from 100 000 on, of 2 to 4 "
        f"VMs, as far as a guest can carry them: {len(planted)} in which a VM begins to fill the cache, and "
        f"{len(quiet)} in which none does. They are real VMs "
        "under KVM on the emulated machine, with an L3 of 4 MiB; what insight sees is what the agent reads of the "
        "kernel's files and of perf. The truth is the model's counts of each VM, of a run with the culprit and one "
        "without, by the rules of the section before. Then the native library runs the same mix, with the ways that "
        "the VMs had. A second is no second of a clock, for the emulation is as slow as it is: it is 60 000 000 "
        "cycles of each VM, counted by the model, and a VM that has had its cycles stands still until the others "
        "have had theirs. So the agent reads its counters when all stand still, and what it reads is divided by such a "
        "second; its live judgement, by the clock, is not asked, but the same functions are. How long a VM runs in "
        "such a second is taken from the cycles that perf counts: the CPU time that the agent reads is that of the "
        "clock, and no part of these figures.",
        [_verdicts(planted, quiet), _of_each(planted)],
        [
            Bars(
                "guest-mixes",
                "How much slower the VM is that the culprit slows most",
                "times as many cycles for an instruction",
                [key.split()[1] for key in planted],
                {
                    "in the guest": [_most(one, "guest")[0] for one in planted.values()],
                    "natively": [_most(one, "native")[0] for one in planted.values()],
                },
                axis="the mix's seed",
            )
        ],
        [
            *(
                _named(harmful, sight, share, title)
                for sight, share, title in (
                    (NO_PMU, 0.8, "Without a PMU"),
                    (PMU_OF_THE_L3, 0.95, "With the L3's events"),
                )
            ),
            *(
                Claim(
                    f"{title}, no accusation is false (in the guest, {_of(_false(found.values(), sight), len(found))} "
                    "mixes have one).",
                    not _false(found.values(), sight),
                )
                for sight, title in ((NO_PMU, "Without a PMU"), (PMU_OF_THE_L3, "With the L3's events"))
            ),
            Claim(
                "A VM beside a culprit is as much slower in the guest as natively: half of them differ by less than "
                f"{statistics.median(ratios):.0%}, the furthest by {max(ratios):.0%}.",
                statistics.median(ratios) <= SAME,
            ),
        ],
        "Only culprits of the cache: the channel to memory of the emulated machine counts in real time, and how fast "
        "the emulation is beside that, is chance. VMs get their cycles in turns of 2 000 000. Within a turn one may "
        "run before another, and takes more than it would natively. perf of an AMD counts misses of the L2, by which "
        "the agent does not judge. A VM does one thing, and waits for each line before it asks for the next; a culprit "
        "that natively has several on their way gets as many more cycles for each second. VMs have phases only in that "
        "they slow down. The host's own work fills two ways of a group of its own: on an emulated CPU it takes "
        f"{host:.0%} of a VM's second. A mix is quiet by the native library's word. The emulation makes no two runs "
        f"the same: {_told_by_harm(harmful)} Some culprits begin less than four seconds before their victim slows "
        "down, so that hardly more samples of one work are there than have to be; whether these are named is chance.",
    )


def _told_by_harm(harmful: Sequence[Mix]) -> str:
    """How many culprits are named of those that slow a VM much, and of the others."""
    parts = []
    for much, words in ((True, f"make a VM's work take {MUCH} times as long or longer"), (False, "slow it less")):
        some = [one for one in harmful if (_most(one, "guest")[0] >= MUCH) == much]
        named = (
            _of(sum(_is_named(one["guest"]["said"][sight]) for one in some), len(some))
            for sight in (NO_PMU, PMU_OF_THE_L3)
        )
        parts.append(f"of the culprits that {words}, {' and '.join(named)} are named")
    return f"{'; '.join(parts)}, without a PMU and with the L3's events."


def harmed(one: Mapping[str, Any]) -> bool:
    """Whether the planted culprit harms any VM."""
    return any(slower > HARMED for slower, _ in one["done"].values())


def losses(planted: Any) -> Sequence[float]:
    """By how much the guest and the native library differ in how much slower each VM is."""
    found = [
        abs(one["guest"]["done"][vm][0] / slower - 1)
        for one in planted
        for vm, (slower, _) in one["native"]["done"].items()
    ]
    return found or [0.0]


def _most(one: Mix, where: str) -> tuple[float, str]:
    """How much slower the VM is that is slowed most in the guest, and which it is."""
    vm = max(one["guest"]["done"], key=lambda vm: one["guest"]["done"][vm][0])
    return one[where]["done"][vm][0], vm


def _is_named(said: Mapping[str, Any]) -> bool:
    return said["named"] is not None and said["named"] <= IN_TIME


def _false(mixes: Any, sight: str, where: str = "guest") -> int:
    return sum(any(each["verdict"] == "false" for each in one[where]["said"][sight]["accusations"]) for one in mixes)


def _named(harmful: Sequence[Mix], sight: str, share: float, title: str) -> Claim:
    named = sum(_is_named(one["guest"]["said"][sight]) for one in harmful)
    return Claim(
        f"{title}, at least {100 * share:.0f} % of the culprits that harm a VM are named with the cause within "
        f"{IN_TIME} s (in the guest {_of(named, len(harmful))}).",
        named >= share * len(harmful),
    )


def _verdicts(planted: Mapping[str, Mix], quiet: Mapping[str, Mix]) -> Table:
    rows = []
    for sight, title in TITLES.items():
        cells = [title]
        for where in ("guest", "native"):
            harmful = [one for one in planted.values() if harmed(one[where])]
            cells += [
                _of(sum(_is_named(one[where]["said"][sight]) for one in harmful), len(harmful)),
                _of(_false(planted.values(), sight, where), len(planted)),
                _of(sum(bool(one[where]["said"][sight]["accusations"]) for one in quiet.values()), len(quiet)),
            ]
        rows.append(cells)
    header = ["insight has"]
    for where in ("guest", "natively"):
        header += [f"Named, {where}", f"Mixes with a false accusation, {where}", f"Accused in quiet mixes, {where}"]
    return Table(header, rows)


def _of_each(planted: Mapping[str, Mix]) -> Table:
    rows = []
    for key, one in planted.items():
        guest, vm = _most(one, "guest")
        of_guest = one["guest"]
        lost = of_guest["lost"][int(vm)][0]
        rows.append(
            (
                key.split()[1],
                f"VM {one['native']['culprit']} of {one['native']['vms']}",
                f"{guest:.2f}",
                f"{_most(one, 'native')[0]:.2f}",
                " or ".join(of_guest["done"][vm][1]),
                f"{lost * 64 / (1 << 20):.1f} MiB",
                *(_said(one[where]["said"][sight]) for where in ("guest", "native") for sight in TITLES),
            )
        )
    header = ("Seed", "Culprit", "Victim, in the guest", "natively", "Cause", "Lost to the culprit")
    sights = ("Guest, no PMU", "with the L3's events", "Natively, no PMU", "with the L3's events")
    return Table((*header, *sights), rows)


def _said(said: Mapping[str, Any]) -> str:
    parts = [f"named after {said['named']} s"] if said["named"] is not None else []
    false = [each for each in said["accusations"] if each["verdict"] == "false"]
    parts += [f"false: {each['culprit']} slows {each['victim']} by {each['cause']}" for each in false]
    return "; ".join(parts) or "nothing"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"
