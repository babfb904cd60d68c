# SPDX-License-Identifier: Apache-2.0
"""What a VM's last minutes tell of the ways that it needs, without a trial (:mod:`vmqos.insight.passive`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos.cli import exceptions
from vmqos.cli.neighbours import ask
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import display_name
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.size.view import bars, count
from vmqos.insight.passive import Passive, passive
from vmqos.insight.size import ENOUGH
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient

OWN = (
    "it has ways of its own, so no other VM moves what it holds, and its past tells nothing of other numbers of ways; "
    "without --passive it is tried with more"
)
NO_SAMPLES = "the agent has no samples of it"


@dataclass(frozen=True, slots=True)
class Past:
    """What the past of a VM tells.

    :ivar ways: how many it may fill, together with others.
    :ivar seconds: for how long it was looked at.
    """

    vm: contract.Vm
    found: Passive
    ways: int
    seconds: float


def find(agent: AgentClient, vm: contract.Vm) -> Past:
    """What the past of a VM tells.

    :raises vmqos.cli.exceptions.NothingToSize: if it tells nothing; with the reason.
    """
    if vm["ways_requested"] and vm["policy"] != "shared":
        raise exceptions.NothingToSize(vm=display_name(vm), problem=OWN)
    told = ask.samples(agent)
    samples = [ask.plain(one) for one in told["samples"].get(vm["uuid"], [])]
    sampled = told["host"]["vms"].get(vm["uuid"])
    if not samples or sampled is None or not sampled["masks"]:
        raise exceptions.NothingToSize(vm=display_name(vm), problem=NO_SAMPLES)
    ways = max(units.parse_mask(mask).bit_count() for mask in sampled["masks"].values())
    caches = [told["host"]["caches"][cache] for cache in sampled["masks"]]
    found = passive(samples, ways, sum(one["size"] / one["ways"] for one in caches))
    past = Past(vm, found, ways, samples[-1].time - samples[0].time)
    if found.why_not:
        raise exceptions.NothingToSize(vm=display_name(vm), problem=f"{found.why_not}. {_seen(past)}")
    return past


def fields(past: Past) -> dict[str, Any]:
    """What is told, for programs."""
    found = past.found
    return {
        "vm": past.vm["uuid"],
        "ways": found.knee,
        "fills": past.ways,
        "held_least": round(found.least, 2),
        "held_most": round(found.most, 2),
        "seconds": past.seconds,
        "curve": [
            {"ways": ways, "missed": missed, "samples": found.samples[ways]} for ways, missed in found.curve.items()
        ],
    }


def flat(told: dict[str, Any]) -> dict[str, Any]:
    """The fields for formats that have no nested values."""
    return told | {"curve": " ".join(f"{one['ways']}={one['missed']:.4f}" for one in told["curve"])}


def draw(past: Past, screen: Terminal) -> RenderableType:
    """The curve as far as it is told, and what follows."""
    found = past.found
    rows = [
        (ways, missed, f"{100 * missed:.1f} %, {found.samples[ways]} samples") for ways, missed in found.curve.items()
    ]
    curve = bars("Misses", rows, found.knee, screen)
    return Group(*wrapped(_verdict(past), screen, 0), Text(), *curve, Text(), *wrapped(_advice(past), screen, 0))


def _verdict(past: Past) -> Iterator[Text]:
    curve, knee = past.found.curve, past.found.knee
    fewer = [ways for ways in curve if ways < knee]
    if not fewer:
        needs = f"needs no more than {count(knee)}, the fewest that its past tells of"
    elif knee == max(curve):
        needs = f"gains by all {count(knee)} that its past tells of, and may gain by more"
    else:
        needs = f"needs no more than {count(knee)}, and more than {max(fewer)}"
    yield Text(f"{display_name(past.vm)} {needs}.", style="bold")
    shown = dict.fromkeys((min(curve), knee, max(curve)))
    shares = ", ".join(f"{100 * curve[ways]:.1f} % with {count(ways)}" for ways in shown)
    yield Text(f"Of its references it misses {shares}. Less than {100 * ENOUGH:g} of 100 is no gain.")
    yield Text(f"Nothing was tried. {_seen(past)}")


def _seen(past: Past) -> str:
    """What the VM held, in a sentence."""
    found = past.found
    held = f"between {found.least:.1f} and {found.most:.1f} of the {past.ways} ways that it may fill"
    return f"In the last {units.duration(past.seconds)} it held what fits in {held}."


def _advice(past: Past) -> Iterator[Text]:
    yield Text(
        "Numbers of ways that are not here it was not seen to hold for long enough. To know them, try it: "
        "'vmqos size --from 1' lets it have ways of its own for some minutes."
    )
