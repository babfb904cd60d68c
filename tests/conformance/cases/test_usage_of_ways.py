# SPDX-License-Identifier: Apache-2.0
"""``bit_usage``: who may fill a way, one letter a way, the highest first."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done
from tests.conformance.layout import HIGH, LOW, apart, exclusive


def letters(cache, free, **ways):
    """``bit_usage`` with a letter for the given ways, and ``free`` elsewhere but for the ways of devices."""
    found = []
    for way in reversed(range(cache.ways)):
        bit = 1 << way
        letter = next((letter for letter, mask in ways.items() if mask & bit), free)
        if cache.shareable_bits & bit:
            letter = "X" if letter == "S" else "H"
        found.append(letter)
    return "".join(found)


def test_on_an_untouched_machine_everything_is_shared(rdt, cache):
    assert set(rdt.usage(cache.name).values()) == {letters(cache, "S")}


def test_a_way_of_nobody_is_a_zero_and_of_devices_alone_an_h(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0={HIGH:x}\n") == done()
    assert rdt.usage(cache.name)[0] == letters(cache, "0", S=HIGH)
    assert rdt.usage(cache.name)[1] == letters(cache, "S")


def test_a_shareable_groups_ways_are_shared(rdt, cache):
    apart(rdt)
    assert rdt.usage(cache.name)[0] == letters(cache, "0", S=LOW | HIGH)


@needs.WAYS_WITHOUT_DEVICES
def test_an_exclusive_groups_ways_are_exclusive(rdt, cache):
    exclusive(rdt)
    assert rdt.usage(cache.name)[0] == letters(cache, "0", S=HIGH, E=LOW)
    assert rdt.write("mode", "exclusive\n") == done()
    assert rdt.usage(cache.name)[0] == letters(cache, "0", E=LOW | HIGH)


@needs.WAYS_WITHOUT_DEVICES
def test_a_removed_groups_ways_are_nobodys(rdt, cache):
    exclusive(rdt)
    assert rdt.rmdir("g").errno is None
    assert rdt.usage(cache.name)[0] == letters(cache, "0", S=HIGH)


@needs.PSEUDO_LOCK
def test_a_group_in_pseudo_locksetup_uses_nothing(rdt, cache):
    apart(rdt)
    assert rdt.write("g/mode", "pseudo-locksetup\n") == done()
    assert rdt.usage(cache.name)[0] == letters(cache, "0", S=HIGH)


@needs.CDP
def test_with_cdp_code_and_data_are_told_apart(bare):
    assert bare.mount("cdp") is None
    cache = bare.profile.l3
    assert bare.write("schemata", f"L3CODE:0={HIGH:x}\n") == done()
    assert bare.usage("L3CODE")[0] == letters(cache, "0", S=HIGH)
    assert bare.usage("L3DATA")[0] == letters(cache, "S")
