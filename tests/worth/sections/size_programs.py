# SPDX-License-Identifier: Apache-2.0
"""How many ways real programs need: what ``vmqos size`` says in a guest, beside the truth of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import Bars, Claim, Section, Table
from tests.worth.size.programs.loads import PROGRAMS

POINTS = 0.05
"""Of the references: how far a curve may be from the truth."""
CHEAP = 0.01
"""What being asked may cost a VM, of what it does."""


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.size_programs.run`."""
    programs: Mapping[str, Mapping[str, Any]] = found["programs"]
    number = len(programs)
    close = sum(worst(one) <= POINTS for one in programs.values())
    whole = {name: one for name, one in programs.items() if not one["cut"]}
    changed = sum(not one["is steady"] for one in whole.values())
    cheap = sum(one["cost"] < CHEAP for one in whole.values())
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    first = min(min(map(int, one["missed"])) for one in programs.values())
    return Section(
        "How many ways real programs need",
        "The section before, whose loads are ours.",
        f"{number} of {len(PROGRAMS)} programs were run so far, of Debian 13 ({versions}), each in a VM of its own in "
        "a guest: a Linux under KVM, with the guest's own kernel and the program in a RAM disk. It is run on the same "
        "data again and again. ``vmqos size`` is what an operator runs, with the agent and the kernel's resctrl as "
        f"they are. The VM has {first} of 16 ways of 256 KiB, and is tried with up to 8, or until it misses next to "
        "nothing. A run that was *cut short*, because the guest's time was over or its agent did not answer in time, "
        "tells of fewer ways, and of no knee. "
        "The truth is its stack distances, counted by the model while it had each number of ways; all that runs in its "
        "name counts in both: its own kernel, QEMU, and the host's kernel. perf of an AMD counts misses of the L2, so "
        "references and misses of the L3 are put into the agent's samples from the model; *without a PMU* the same "
        "samples have none. The *cost* is by how much less of the same work was done in a cycle while the VM was tried "
        "than would have been with the ways that it is promised: its stack distances tell what it would have missed "
        "with these. What the kernel did more in a second than in the 10 seconds before comes on top, as a part of a "
        "second of a server with 4 GHz. The cost is less than nothing where more ways helped.",
        [
            Table(
                ("Program", "Does", "Curve wrong by at most", "Knee", "true", "without a PMU", "Cost", "Samples"),
                [
                    (name, PROGRAMS[name].what, f"{100 * worst(one):.1f} points", *_found(one), str(one["samples"]))
                    for name, one in programs.items()
                ],
            ),
            Table(
                ("Program", "Misses with 1, 2, ... ways", "in truth"),
                [(name, _curve(one["missed"]), _curve(one["true"])) for name, one in programs.items()],
            ),
        ],
        [
            Bars(
                "size-programs",
                "How far the curves of real programs are from the truth where they are farthest",
                "points",
                list(programs),
                {"with the L3's events": [100 * worst(one) for one in programs.values()]},
                axis="program",
            )
        ],
        [
            Claim(
                f"With a PMU, the curve is within 5 points of the truth at every way ({_of(close, number)}).",
                close == number,
            ),
            *(
                _knees(whole, knee, title)
                for knee, title in (("knee", "With a PMU"), ("knee without", "Without a PMU"))
            ),
            Claim(
                f"Being asked costs a VM less than 1 % of what it does ({_of(cheap, len(whole))}).",
                cheap == len(whole) > 0,
            ),
        ],
        f"One run of each, on one CPU. {changed} of {len(whole)} VMs seemed to do other work with some number of ways: "
        "the command says of such a VM that its curve is not to be trusted. What is done in a cycle can't be compared "
        "with the time before: by that measure the trial cost SQLite 37.7 % in one run, and -43.4 % and -35.3 % in "
        "two others, and it missed less with each further way in all three. Clocks tick by the second, and an "
        "emulated processor does less between two ticks when the machine below is busy. In a sample, a part of a "
        "second, it makes as many accesses as a server's in some milliseconds: a program that takes longer than that "
        "for a round has phases that the law sees one by one, and that a server's samples would have the mean of.",
    )


def worst(one: Mapping[str, Any]) -> float:
    """By how much the curve is wrong where it is most wrong."""
    wrong: float = max(abs(missed - one["true"][ways]) for ways, missed in one["missed"].items())
    return wrong


def _found(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Knee, true knee, knee without a PMU, and cost."""
    if one["cut"]:
        return "cut short", "-", "-", "-"
    return str(one["knee"]), str(one["true knee"]), str(one["knee without"]), f"{100 * one['cost']:.1f} %"


def _knees(programs: Mapping[str, Mapping[str, Any]], knee: str, title: str) -> Claim:
    near = sum(abs(one[knee] - one["true knee"]) <= 1 for one in programs.values())
    text = f"{title}, the knee is within one way of the truth for nine of ten programs ({_of(near, len(programs))})."
    return Claim(text, near >= 0.9 * len(programs) > 0)


def _curve(curve: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * missed:.0f} %" for missed in curve.values())


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"
