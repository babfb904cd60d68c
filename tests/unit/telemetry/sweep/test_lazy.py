# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.lazy."""

import pytest

from vmqos.telemetry.sweep.lazy import LazyMapping


def test_nothing_is_made_until_somebody_looks_and_then_only_that_and_only_once():
    made = []

    def make(key, source):
        made.append(key)
        return source * 2

    mapping = LazyMapping({"a": 1, "b": 2}, make)
    assert (len(mapping), list(mapping), "a" in mapping, "c" in mapping) == (2, ["a", "b"], True, False)
    assert made == []
    assert mapping["b"] == 4
    assert made == ["b"]
    assert dict(mapping) == {"a": 2, "b": 4}
    assert made == ["b", "a"]


def test_it_is_equal_to_the_mapping_it_stands_for():
    mapping = LazyMapping({1: "a"}, lambda key, source: (key, source))
    assert mapping == {1: (1, "a")}
    assert repr(mapping) == "{1: (1, 'a')}"


def test_what_is_not_there_is_not_made():
    mapping = LazyMapping({}, lambda key, source: source)
    assert mapping.get("a") is None
    with pytest.raises(KeyError):
        mapping["a"]
