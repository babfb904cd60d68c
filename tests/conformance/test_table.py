# SPDX-License-Identifier: Apache-2.0
"""The page about the suite says what was counted, and that is noticed when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import differences
from tests.conformance.differences import Difference
from tests.conformance.machines import KERNEL_OF
from tests.conformance.table import PAGE, Place, places, text

CASES = Path(__file__).parent / "cases"
PASSED = {
    Place("cpus", "milan", "6.12", "simulator"): 20,
    Place("cpus", "milan", "6.12", "kernel"): 19,
    Place("cdp", "milan", "6.12", "kernel"): 3,
    Place("cpus", "broadwell", "newest", "simulator"): 7,
}
DIFFERENCES = {name: one for name, one in vars(differences).items() if isinstance(one, Difference)}


def rows_of(text: str, title: str) -> dict[str, list[str]]:
    """The table under a title: the cells of each row, by the first one."""
    lines = text.partition(f"\n{title}\n---")[2].partition(":header-rows: 1\n")[2].splitlines()
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("   * -"):
            rows.append([])
        elif not line.startswith("     -") and rows:
            break
        if rows:
            rows[-1].append(line[6:].strip())
    return {first: rest for first, *rest in rows}


def test_a_cell_says_what_passed_on_the_simulator_and_on_the_kernel() -> None:
    rows = rows_of(text(PASSED), "Sections with Linux 6.12")
    machines = rows["Section"]
    assert rows["cpus"] == ["20 + 19" if machine == "milan" else "" for machine in machines]
    assert rows["cdp"] == ["0 + 3" if machine == "milan" else "" for machine in machines]


def test_the_first_table_adds_up_machines_and_kernels() -> None:
    rows = rows_of(text(PASSED), "All cases")
    assert rows["Machine"] == ["Linux 6.12", "the newest Linux"]
    assert rows["milan"] == ["20 + 22", ""]
    assert rows["broadwell"] == ["", "7 + 0"]
    assert rows["**all**"] == ["20 + 22", "7 + 0"]


def test_a_machine_that_is_simulated_only_has_one_number_and_no_column_for_a_kernel_that_it_has_not() -> None:
    page = text({Place("cpus", "mpam", "newest", "simulator"): 5})
    assert rows_of(page, "All cases")["mpam"] == ["", "5"]
    assert "mpam" not in rows_of(page, "Sections with Linux 6.12")["Section"]
    rows = rows_of(page, "Sections with the newest Linux")
    assert rows["cpus"][rows["Section"].index("mpam")] == "5"


def test_every_module_of_cases_is_a_section_that_is_explained() -> None:
    page = text({})
    told = rows_of(page, "What the sections are about")
    assert list(told)[1:] == [path.stem[5:].replace("_", " ") for path in sorted(CASES.glob("test_*.py"))]
    assert all(explanation for (explanation,) in told.values())
    for title in ("Sections with Linux 6.12", "Sections with the newest Linux"):
        assert list(rows_of(page, title)) == list(told)


def test_one_case_more_or_less_makes_the_page_out_of_date(tmp_path: Path) -> None:
    (tmp_path / PAGE.path).parent.mkdir(parents=True)
    assert PAGE.is_out_of_date(PASSED, tmp_path)
    PAGE.write(PASSED, tmp_path)
    assert not PAGE.is_out_of_date(PASSED, tmp_path)
    for place in PASSED:
        assert PAGE.is_out_of_date({**PASSED, place: PASSED[place] + 1}, tmp_path)


def test_a_case_counts_for_its_section_where_it_was_tried_and_other_tests_count_for_nothing() -> None:
    def counted(nodeid: str) -> list[Place]:
        return list(places(pytest.TestReport(nodeid, ("", 1, ""), {}, "passed", None, "call")))

    case = "tests/conformance/cases/test_usage_of_ways.py::test_x[milan-6.12-simulator-L3]"
    assert counted(case) == [Place("usage of ways", "milan", "6.12", "simulator")]
    assert counted("tests/conformance/test_table.py::test_x") == []


def test_every_difference_between_kernels_is_in_the_table() -> None:
    rows = rows_of(text({}), "In what the kernels differ")
    assert list(rows)[1:] == [one.what for one in DIFFERENCES.values()]


def test_every_difference_is_one_between_the_kernels_of_the_suite_and_some_case_asks_for_it() -> None:
    versions = [kernel.version for kernel in KERNEL_OF.values()]
    texts = [path.read_text(encoding="utf-8") for path in CASES.glob("test_*.py")]
    for name, one in DIFFERENCES.items():
        assert [one.is_in(version) for version in versions] == [False, True], name
        asked = (f"has({name})", f"kernel_with({name})", f"kernel_without({name})")
        assert any(word in text for text in texts for word in asked), f"no case asks for {name}"
