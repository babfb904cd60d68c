# SPDX-License-Identifier: Apache-2.0
"""The figures of a judged campaign, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.worth.neighbours.judge import IN_TIME, SIGHTS

Found = Mapping[str, Mapping[str, Any]]
WITH_PMU, WITHOUT = 0.95, 0.80
"""The shares of planted culprits that have to be named."""


def figures(found: Found, sight: str) -> dict[str, int]:
    """Counts of one sight."""
    planted = [one for one in found.values() if one["kind"] == "planted" and one["counts"]]
    named = [one for one in planted if _in_time(one["said"][sight]["named"])]
    result = {"planted": len(planted), "named": len(named)}
    for meant in ("cache", "bandwidth"):
        result[f"planted {meant}"] = sum(one["meant"] == meant for one in planted)
        result[f"named {meant}"] = sum(one["meant"] == meant for one in named)
    result["late"] = sum(one["said"][sight]["named"] is not None for one in planted) - len(named)
    kinds = {
        "planted": planted,
        "harmless": [one for one in found.values() if one["kind"] == "planted" and not one["counts"]],
        "quiet": [one for one in found.values() if one["kind"] == "quiet" and one["counts"]],
        "restless": [one for one in found.values() if one["kind"] == "quiet" and not one["counts"]],
    }
    for kind, of in kinds.items():
        result[kind] = len(of)
        result[f"false in {kind}"] = sum(
            any(each["verdict"] == "false" for each in one["said"][sight]["accusations"]) for one in of
        )
    result["accused in quiet"] = sum(bool(one["said"][sight]["accusations"]) for one in kinds["quiet"])
    return result


def seconds(found: Found, sight: str) -> list[int]:
    """From the onset to the moment at which the culprit was named, of each planted mix in which it was, in order."""
    named = (one["said"][sight]["named"] for one in found.values() if one["kind"] == "planted" and one["counts"])
    return sorted(one for one in named if one is not None)


def lines(found: Found) -> Iterator[str]:
    """A row for each sight."""
    yield f"{'sight':<24}{'named':>12}{'cache':>10}{'memory':>10}{'late':>6}   mixes with a false accusation"
    for sight in SIGHTS:
        f = figures(found, sight)
        yield (
            f"{sight:<24}{_of(f['named'], f['planted']):>12}{_of(f['named cache'], f['planted cache']):>10}"
            f"{_of(f['named bandwidth'], f['planted bandwidth']):>10}{f['late']:>6}   "
            + ", ".join(
                f"{_of(f[f'false in {kind}'], f[kind])} {kind}" for kind in ("planted", "harmless", "quiet", "restless")
            )
        )


def holds(found: Found) -> bool:
    """Whether what has to be shown is shown."""
    with_pmu, without = figures(found, "pmu"), figures(found, "no pmu")
    return (
        with_pmu["named"] >= WITH_PMU * with_pmu["planted"]
        and without["named"] >= WITHOUT * without["planted"]
        and not any(f[f"false in {kind}"] for f in (with_pmu, without) for kind in ("planted", "harmless", "quiet"))
    )


def details(found: Found) -> Iterator[str]:
    """What was missed, and what is false."""
    for key, one in found.items():
        for sight in SIGHTS:
            said = one["said"][sight]
            if one["kind"] == "planted" and one["counts"] and not _in_time(said["named"]):
                yield f"{key}, {sight}: {one['meant']} of {one['onset']} missed ({said['named']}); harm {one['harm']}"
            for each in said["accusations"]:
                if each["verdict"] == "false":
                    who = f"{each['culprit']} -> {each['victim']} by {each['cause']}"
                    yield f"{key}, {sight}: FALSE {who} at {each['second']}"
                    yield from (f"    {text}" for text in each["evidence"])


def _in_time(named: int | None) -> bool:
    return named is not None and named <= IN_TIME


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}"
