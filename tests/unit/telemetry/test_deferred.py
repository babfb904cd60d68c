# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.deferred."""

from vmqos.telemetry.deferred import Deferred


def test_nothing_is_made_until_somebody_looks_and_then_only_once():
    made = []

    def make(values):
        made.append(values)
        return {"sum": sum(values)}

    mapping = Deferred(make, [1, 2])
    assert made == []
    assert mapping["sum"] == 3
    assert dict(mapping) == {"sum": 3}
    assert made == [[1, 2]]


def test_it_is_equal_to_the_mapping_it_stands_for():
    assert Deferred(lambda values: {1: values[0]}, ["a"]) == {1: "a"}
    assert repr(Deferred(lambda values: {1: values[0]}, ["a"])) == "{1: 'a'}"
    assert len(Deferred(lambda values: {}, [])) == 0
