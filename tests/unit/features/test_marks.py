# SPDX-License-Identifier: Apache-2.0
"""A test's mark says what it shows, and where is known from its guest or its simulator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.features.marks import PROPERTY, pytest_collection_modifyitems, shown_by
from tests.features.place import Place
from tests.kernel.lab.pair import Pair

CASCADE_LAKE = Place("simulator", "6.12", "cascade-lake")


def item(*marks: pytest.MarkDecorator, **params: Any) -> Any:
    """A test with these marks, the closest first, and these parameters."""
    return SimpleNamespace(
        nodeid="test_x.py::test_x",
        iter_markers=lambda name: [mark.mark for mark in marks if mark.name == name],
        callspec=SimpleNamespace(params=params),
        user_properties=[],
    )


def test_without_a_parameter_it_is_the_simulators_usual_machine() -> None:
    assert list(shown_by(item(pytest.mark.feature("cdp")))) == [("cdp", True, CASCADE_LAKE)]


@pytest.mark.parametrize("simulator", ["sapphire-rapids", ("sapphire-rapids", "cdp")])
def test_the_simulators_parameter_names_the_machine_and_its_kernel(simulator: object) -> None:
    (shown,) = shown_by(item(pytest.mark.feature("cdp"), simulator=simulator))
    assert shown == ("cdp", True, Place("simulator", "7.2", "sapphire-rapids"))


def test_a_machine_can_be_named_in_the_mark() -> None:
    (shown,) = shown_by(item(pytest.mark.feature("lock", machine="broadwell")))
    assert shown[2] == Place("simulator", "6.12", "broadwell")


def test_in_a_guest_it_is_the_guests_machine_and_kernel() -> None:
    (shown,) = shown_by(item(pytest.mark.feature("smba"), guest_machine=Pair("genoa", "newest")))
    assert shown == ("smba", True, Place("kernel", "newest", "genoa"))


def test_the_closest_mark_of_a_feature_is_the_one_and_other_features_are_shown_too() -> None:
    marks = (pytest.mark.feature("cdp", kept=False), pytest.mark.feature("l2", kept=False), pytest.mark.feature("cdp"))
    assert [shown[:2] for shown in shown_by(item(*marks))] == [("cdp", False), ("l2", False)]


def test_a_feature_that_there_is_not_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="there is no feature 'l3'; there are: ways, cdp"):
        list(shown_by(item(pytest.mark.feature("l3"))))


@pytest.mark.parametrize(("name", "params"), [("l2", {}), ("io_alloc", {"guest_machine": Pair("genoa", "6.12")})])
def test_what_a_machine_or_its_kernel_lacks_can_not_be_kept_there(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(pytest.UsageError, match=r"has not .*: is it kept=False"):
        list(shown_by(item(pytest.mark.feature(name), **params)))
    assert list(shown_by(item(pytest.mark.feature(name, kept=False), **params)))


def test_the_report_is_told_and_a_test_without_a_mark_tells_nothing() -> None:
    marked, plain = item(pytest.mark.feature("cdp")), item()
    pytest_collection_modifyitems([marked, plain])
    assert marked.user_properties == [(PROPERTY, ["cdp", True, *CASCADE_LAKE])]
    assert plain.user_properties == []
