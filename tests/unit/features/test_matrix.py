# SPDX-License-Identifier: Apache-2.0
"""A cell of the matrix says what was shown, what was told, and what nobody tried."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.counted.page import CHECKOUT, Place
from tests.features.catalog import FEATURES
from tests.features.machines import PROFILE_AT
from tests.features.marks import PROPERTY
from tests.features.matrix import EXPLAINED, KEPT, PAGES, TOLD, explained
from tests.kernel.lab.machines import MACHINES
from vmqos.simulator.hardware.profiles import PROFILES

SIMULATOR, KERNEL = PAGES
CASCADE_LAKE = ("simulator", "6.12", "cascade-lake")
GENOA = ("kernel", "newest", "genoa")


def report(*shown: object) -> pytest.TestReport:
    """The report of a test that shows this, as it comes out of a guest or a worker."""
    properties: Any = json.loads(json.dumps([("other", 1), *((PROPERTY, one) for one in shown)]))
    return pytest.TestReport("t.py::t", ("", 1, ""), {}, "passed", None, "call", user_properties=properties)


def cells(text: str, title: str) -> dict[str, dict[str, str]]:
    """The table under a title: by feature and machine."""
    rows: list[list[str]] = []
    for line in text.partition(f"\n{title}\n---")[2].partition(":header-rows: 1\n")[2].splitlines():
        if line.startswith("   * -"):
            rows.append([])
        elif not line.startswith("     -") and rows:
            break
        if rows:
            rows[-1].append(line[6:].strip())
    (_, *machines), *others = rows
    return {feature: dict(zip(machines, told, strict=True)) for feature, *told in others}


def title_of(name: str) -> str:
    return FEATURES[name].title


def test_a_test_counts_on_its_target_alone_once_for_each_feature_it_shows() -> None:
    one = report(["cdp", True, *CASCADE_LAKE], ["percent", False, *CASCADE_LAKE])
    assert list(SIMULATOR.places(one)) == [("cdp", KEPT, *CASCADE_LAKE), ("percent", TOLD, *CASCADE_LAKE)]
    assert list(KERNEL.places(one)) == []
    assert list(KERNEL.places(report(["smba", True, *GENOA]))) == [("smba", KEPT, *GENOA)]
    assert list(SIMULATOR.places(report())) == []


def test_a_cell_says_what_was_kept_and_what_was_told() -> None:
    passed: dict[Place, int] = {("cdp", KEPT, *CASCADE_LAKE): 3, ("cdp", TOLD, *CASCADE_LAKE): 1}
    passed["l2", TOLD, *CASCADE_LAKE] = 2
    rows = cells(SIMULATOR.text(passed), "On the simulator")
    here = "cascade-lake (6.12)"
    assert rows[title_of("cdp")][here] == "kept (3), told (1)"
    assert rows[title_of("l2")][here] == "lacks it, told (2)"
    assert rows[title_of("smba")][here] == "lacks it"
    assert rows[title_of("percent")][here] == "not tried"
    assert not any("(" in told for row in rows.values() for machine, told in row.items() if machine != here)


def test_each_kernel_of_the_guests_has_a_table_of_its_own() -> None:
    text = KERNEL.text({("io_alloc", KEPT, *GENOA): 1})
    newest, older = cells(text, "On the newest Linux"), cells(text, "On Linux 6.12")
    assert newest[title_of("io_alloc")]["genoa"] == "kept (1)"
    assert older[title_of("io_alloc")]["genoa"] == "lacks it"


@pytest.mark.parametrize(
    ("page", "title", "machines"),
    [
        (SIMULATOR, "On the simulator", PROFILES),
        (KERNEL, "On Linux 6.12", set(MACHINES) - {"milan-shared", "milan-abmc"}),
    ],
    ids=["simulator", "kernel"],
)
def test_every_feature_and_every_machine_is_there(page: Any, title: str, machines: Any) -> None:
    rows = cells(page.text({}), title)
    assert list(rows) == [feature.title for feature in FEATURES.values()]
    for row in rows.values():
        assert sorted(name.partition(" ")[0] for name in row) == sorted(machines)


def test_every_feature_is_on_some_machine_and_but_for_what_all_have_not_on_every_one() -> None:
    for feature in FEATURES.values():
        found = {feature.is_on(profile) for profile in PROFILE_AT.values()}
        assert found == ({True} if feature.name == "capabilities" else {True, False}), feature.name


def test_what_the_features_are_is_explained_as_the_catalog_has_it() -> None:
    written = (CHECKOUT / EXPLAINED).read_text(encoding="utf-8")
    assert written == explained(), "python -m tests.features.matrix writes it anew"


def test_one_test_more_or_less_makes_a_part_out_of_date_and_the_other_part_stays(tmp_path: Any) -> None:
    (tmp_path / KERNEL.path).parent.mkdir(parents=True)
    passed: dict[Place, int] = {("io_alloc", KEPT, *GENOA): 1}
    for page in PAGES:
        page.write(passed if page is KERNEL else {}, tmp_path)
    assert not any(page.is_out_of_date(passed if page is KERNEL else {}, tmp_path) for page in PAGES)
    assert KERNEL.is_out_of_date({**passed, ("smba", KEPT, *GENOA): 1}, tmp_path)
    assert KERNEL.is_out_of_date({}, tmp_path)


def test_every_feature_is_marked_by_some_test() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for suite in ("tests/functional", "tests/kernel")
        for path in (CHECKOUT / suite).rglob("test_*.py")
    ]
    for name in FEATURES:
        assert any(f'mark.feature("{name}"' in text for text in texts), name
