# SPDX-License-Identifier: Apache-2.0
"""The page 'A customer says it is slow' shows what each of its commands printed, in one story."""

from __future__ import annotations

import re

from tests.unit.doc.pages import SOURCE

PAGE = (SOURCE / "operator" / "slow.rst").read_text(encoding="utf-8")
ANEW = "record the examples anew: doc/record_slow.py"


def example(name: str) -> str:
    return (SOURCE / "examples" / name).read_text(encoding="utf-8")


def test_each_command_is_followed_by_what_it_printed() -> None:
    _, *blocks = PAGE.split(".. code-block:: shell\n\n")
    assert len(blocks) > 9
    for block in blocks:
        commands = re.match(r"(?:   .*\n)+", block)
        assert commands
        printed = re.findall(r"examples/(slow-[a-z-]+\.txt)", block)
        # What OpenStack's own command prints is not ours to show.
        asked = [line for line in commands[0].splitlines() if "vmqos " in line]
        assert len(printed) == len(asked), block
    assert set(re.findall(r"examples/(.*\.txt)", PAGE)) == {path.name for path in (SOURCE / "examples").glob("slow-*")}


def test_the_outputs_tell_one_story() -> None:
    """What one step finds is what the next one does."""
    found = re.search(r"^web-1 needs (\d+) ways", example("slow-size.txt"), re.MULTILINE)
    assert found, ANEW
    ways = found[1]
    assert f"   vmqos plan --flavor-spec hw:cache_ways={ways}\n" in PAGE, ANEW
    assert f"   vmqos flavor set m1.large.cache{ways} --cache-ways {ways}\n" in PAGE, ANEW
    assert example("slow-plan.txt").startswith("kept: "), ANEW
    assert f"hw:cache_ways={ways}\n" in example("slow-flavor-set.txt"), ANEW
    before, after = example("slow-vm-show.txt"), example("slow-after-vm-show.txt")
    for shown, state, flavor in ((before, "none", "m1.large"), (after, "kept", f"m1.large.cache{ways}")):
        assert re.search(rf"^State +{state}$", shown, re.MULTILINE), ANEW
        assert re.search(rf"^Flavor +{re.escape(flavor)}$", shown, re.MULTILINE), ANEW
    assert re.findall(r"^UUID +(.*)$", before, re.MULTILINE) == re.findall(r"^UUID +(.*)$", after, re.MULTILINE), ANEW
    assert "\nweb-1 is slowed by batch-1, through the cache\n" in example("slow-neighbours.txt"), ANEW
    assert "Confirmed: batch-1 slows web-1." in example("slow-confirm.txt"), ANEW
    assert example("slow-after-neighbours.txt").startswith("No VM slows web-1"), ANEW
    assert "is slower than" not in example("slow-after-neighbours.txt"), ANEW
    assert _events("slow-after-events.txt")[: len(_events("slow-events.txt"))] == _events("slow-events.txt"), ANEW


def _events(name: str) -> list[list[str]]:
    """The first line of each event: its number, when it was, of which VM, and the states."""
    return [line.split()[:6] for line in example(name).splitlines() if re.match(r"\d", line)]
