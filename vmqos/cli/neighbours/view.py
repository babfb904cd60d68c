# SPDX-License-Identifier: Apache-2.0
"""What is said of neighbours: to people in sentences, to programs a row for each pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from vmqos.cli.show import units, utc
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.insight import say
from vmqos.insight.neighbours import FEWEST
from vmqos.local_api import contract

TITLES = (
    "Victim",
    "Culprit",
    "Cause",
    "Slower",
    "Since",
    "Until",
    "Confidence",
    "Taken",
    "Advice",
    "Victim UUID",
    "Culprit UUID",
)

FEWEST_SAMPLES = 2 * FEWEST + 2
"""Samples without which no verdict on a pair is possible: those on either side of a step, and two at it."""


_CAUSES = {
    "cache": "the cache",
    "memory-bandwidth": "the memory's bandwidth",
    "neither": "neither the cache nor memory",
}
_USES = {
    "fits": "it holds what it needs of the cache",
    "starves": "more cache would spare it misses",
    "fills-without-gain": "what it holds of the cache spares it no misses",
    "unknown": "that can't be said",
}
_BESIDE = {"own past": "before at the same work", "flavor": "others of its flavor at the same work"}


def of_vm(found: contract.Neighbours, uuid: str) -> contract.Neighbours:
    """What of an answer concerns one VM: as the victim, as the culprit, and its own use of the cache."""
    return {
        **found,
        "vms": [vm for vm in found["vms"] if vm["uuid"] == uuid],
        "pairs": [pair for pair in found["pairs"] if uuid in (pair["victim"], pair["culprit"])],
    }


def rows(found: contract.Neighbours, called: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The cells of :data:`TITLES`, a row for each pair.

    :param called: a name for each VM, by UUID.
    """
    return [
        (
            _name(pair["victim"], called),
            _name(pair["culprit"], called),
            neutralise(pair["cause"]),
            f"{pair['slower']:.2f}",
            utc.clock(pair["since"]),
            "" if pair["until"] is None else utc.clock(pair["until"]),
            f"{pair['confidence']:.2f}",
            f"{pair['taken']:.0f}",
            neutralise(pair["advice"]),
            neutralise(pair["victim"]),
            neutralise(pair["culprit"]),
        )
        for pair in found["pairs"]
    ]


def draw(found: contract.Neighbours, called: Mapping[str, str], vm: str | None, screen: Terminal) -> Group:
    """The sentences.

    :param called: a name for each VM, by UUID.
    :param vm: the UUID of the one that the answer is about; ``None`` if it is about all.
    """
    lines = [*_summary(found, called, vm)]
    for pair in found["pairs"]:
        lines += [Text(), *_pair(pair, called, found)]
    victims = {pair["victim"] for pair in found["pairs"]}
    for one in found["vms"]:
        # Whose culprit is known has been told of.
        if one["sufferings"] and (vm or one["uuid"] not in victims):
            lines += [Text(), *_suffering(one, called, one["uuid"] in victims)]
    for use, title in (
        ("starves", "These VMs lack cache:"),
        ("fills-without-gain", "These VMs fill the cache without gain:"),
    ):
        listed = [one for one in found["vms"] if one["use"] == use]
        if listed and vm is None:
            lines += [Text(), Text(title, style="bold")]
            for one in listed:
                lines += _use(one, _name(one["uuid"], called))
    for one in found["vms"] if vm else ():
        lines += [Text(), Text(f"What the cache is to {_name(one['uuid'], called)}:", style="bold")]
        lines += _use(one, _USES.get(one["use"], neutralise(one["use"])))
    return Group(*_fitted(lines, screen))


def count_of(number: int, what: str = "VM") -> str:
    """A number of things."""
    return f"{number} {what}{'s' * (number != 1)}"


def _basis(found: contract.Neighbours, is_of_all: bool) -> str:
    """What an answer is based on: how much of a past, and with which counters."""
    count, interval = found["samples"], found["interval"]
    past = f" ({units.duration(count * interval)})" if count * interval >= 60 else ""
    # The agent counts those of the VM that has most: one that has just come has fewer.
    most, of = ("", f" of {count_of(len(found['vms']))}") if is_of_all else ("at most ", "")
    events = "with hardware events" if found["counted"] else "without hardware events"
    return f"{most}{count_of(count, 'sample')} of {interval:g} s{past}{of}, {events}"


def _summary(found: contract.Neighbours, called: Mapping[str, str], vm: str | None) -> Iterator[Text]:
    pairs = [pair for pair in found["pairs"] if pair["until"] is None]
    now = " now" if found["pairs"] else ""
    if vm:
        name = _name(vm, called)
        victims = sum(pair["culprit"] == vm for pair in pairs)
        culprits = len(pairs) - victims
        parts = [
            f"is slowed by {count_of(culprits, 'other VM')}" if culprits else "",
            f"slows {count_of(victims, 'other VM')}" if victims else "",
        ]
        told = f"{name} {' and '.join(filter(None, parts))}."
        nothing = f"No VM slows {name}{now}, and it slows none, as far as can be seen."
    else:
        victims = len({pair["victim"] for pair in pairs})
        culprits = len({pair["culprit"] for pair in pairs})
        told = f"{count_of(victims)} {'are' if victims != 1 else 'is'} slowed by {count_of(culprits, 'other VM')}."
        nothing = f"No VM slows another{now}, as far as can be seen."
    if pairs:
        yield Text(told, style="bold yellow")
    elif not found["interval"]:
        yield Text("Nothing can be said: the agent does not read the counters regularly.", style="bold")
        yield Text("[telemetry] interval is 0 in its configuration.")
        return
    elif found["samples"] < FEWEST_SAMPLES:
        yield Text("Nothing can be said yet: there are too few samples.", style="bold")
    elif not found.get("traffic_counted", True):
        yield Text("Who slows whom can't be said: traffic with memory is not counted (vmqos doctor).", style="bold")
    else:
        yield Text(nothing, style="bold")
    yield Text(f"This is based on {_basis(found, vm is None)}.", style="dim")
    if not found["counted"]:
        yield Text(
            "Without hardware events of the L3 only what VMs hold of it and their traffic with memory is seen: less is "
            "found, and how much slower a VM is can only be estimated.",
            style="dim",
        )
    if vm and not found["vms"]:
        yield Text(f"Of {_name(vm, called)} itself nothing is known yet.")


def _pair(pair: contract.NeighbourPair, called: Mapping[str, str], found: contract.Neighbours) -> Iterator[Text]:
    yield Text.assemble(
        (_name(pair["victim"], called), "bold"),
        " is slowed by " if pair["until"] is None else " was slowed by ",
        (_name(pair["culprit"], called), "bold"),
        f", through {_cause(pair['cause'])}",
    )
    about = "" if found["counted"] else "about "
    takes = "takes" if pair["until"] is None else "took"
    yield Text(f"  Its work {takes} {about}{pair['slower']:.1f} times as long.")
    yield Text(f"  {_time(pair, found['time'])}. Confidence: {say.percent(pair['confidence'])}.")
    yield from _evidence(pair["evidence"])
    culprit = _name(pair["culprit"], called)
    yield from _advice(f"What ends it, once {culprit} is resized to a copy of its flavor with this:", pair["advice"])


def _time(pair: contract.NeighbourPair, now: float | None) -> str:
    since = utc.clock(pair["since"], now)
    if pair["until"] is not None:
        return f"From {since} to {utc.clock(pair['until'], now)}: since then the other one moves less again"
    return f"Since {since}" + (f", for {units.duration(now - pair['since'])}" if now is not None else "")


def _suffering(vm: contract.NeighbourVm, called: Mapping[str, str], is_victim: bool) -> Iterator[Text]:
    for suffering in vm["sufferings"]:
        beside = _BESIDE.get(suffering["beside"], neutralise(suffering["beside"]))
        yield Text.assemble((_name(vm["uuid"], called), "bold"), f" is slower than {beside}")
        yield Text(f"  Its work takes {suffering['slower']:.1f} times as long.")
        if suffering["cause"] == "neither":
            yield Text("  The cause is neither the cache nor memory; it may be a shared core, or the clock.")
        else:
            unknown = "" if is_victim else "; whether a neighbour does it is not known"
            yield Text(f"  The cause is {_cause(suffering['cause'])}{unknown}.")
        yield Text(f"  Confidence: {say.percent(suffering['confidence'])}.")
        yield from _evidence(suffering["evidence"])


def _use(vm: contract.NeighbourVm, title: str) -> Iterator[Text]:
    sure = "" if vm["use"] == "unknown" else f" (confidence {say.percent(vm['confidence'])})"
    yield Text(f"  {title}{sure}")
    for line in _evidence(vm["evidence"]):
        yield Text("  ").append_text(line)
    yield from _advice("  What helps, once the VM is resized to a copy of its flavor with this:", vm["advice"])


def _evidence(sentences: Sequence[str]) -> Iterator[Text]:
    for sentence in sentences:
        yield Text(f"  - {neutralise(sentence)}")


def _advice(title: str, command: str) -> Iterator[Text]:
    if command:
        yield Text(f"  {title}")
        # A command is to be copied, so it is not broken between two lines.
        yield Text(f"    {'  ' * title.startswith(' ')}{neutralise(command)}", style="green", no_wrap=True)


def _fitted(lines: Sequence[Text], screen: Terminal) -> Iterator[Text]:
    """The lines in the terminal's width; what goes on on another line is indented under its own text."""
    for line in lines:
        if line.no_wrap:
            line.overflow = "ignore"
            yield line
        else:
            blanks = len(line.plain) - len(line.plain.lstrip(" -"))
            yield from wrapped([line], screen, blanks)


def _name(uuid: str, called: Mapping[str, str]) -> str:
    """What a VM is called; its UUID, where it is not there any more."""
    return called.get(uuid) or neutralise(uuid)


def _cause(cause: str) -> str:
    return _CAUSES.get(cause, neutralise(cause))
