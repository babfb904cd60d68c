# SPDX-License-Identifier: Apache-2.0
"""What the comparison of two recordings notices, and that no case gets round it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.comparison import RECORDING, Recordings
from tests.conformance.items import Where, case_and_place
from tests.conformance.machines import KERNEL, SIMULATOR
from tests.conformance.recording import Operation
from tests.kernel.lab.pair import Pair

HERE = Pair("milan", "6.12")
MODULE = "tests/conformance/cases/test_cpus.py"
CASE = f"{MODULE}::test_x[L3]"
WRITE = Operation("write", "schemata", "L3:0=3\n", None, "ok\n")
READ = Operation("read", "schemata", "", None, None, "L3:0=3\n")


def compared(simulator: list[Operation] | None, kernel: list[Operation] | None) -> list[str]:
    """What is said of one case."""
    recordings = Recordings()
    for target, recording in ((SIMULATOR, simulator), (KERNEL, kernel)):
        if recording is not None:
            recordings.add(CASE, Where(HERE, target), recording)
    return list(recordings.differences(HERE, [CASE]))


def test_the_same_answers_are_no_difference() -> None:
    assert compared([WRITE, READ], [WRITE, READ]) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(READ, errno="EIO"), id="the error"),
        pytest.param(replace(READ, status="x\n"), id="the status"),
        pytest.param(replace(READ, content="L3:0=7\n"), id="what was read"),
        pytest.param(replace(READ, path="g/schemata"), id="the file"),
        pytest.param(replace(READ, op="ls"), id="the operation"),
        pytest.param(replace(READ, data="x"), id="what was written"),
    ],
)
def test_any_part_of_an_operation_that_differs_is_told(other: Operation) -> None:
    (told,) = compared([WRITE, READ], [WRITE, other])
    assert told.startswith(f"{CASE}\noperation 2: ")


def test_an_operation_more_on_one_side_is_told() -> None:
    (told,) = compared([WRITE, READ], [WRITE])
    assert "2 operations on the simulator, 1 on the kernel" in told


@pytest.mark.parametrize(
    "simulator, kernel, missing",
    [([WRITE], None, "kernel"), (None, [WRITE], "simulator"), (None, None, "simulator or the kernel")],
)
def test_a_case_that_was_not_tried_on_both_is_told(
    simulator: list[Operation] | None, kernel: list[Operation] | None, missing: str
) -> None:
    assert compared(simulator, kernel) == [f"{CASE}\nnothing was recorded on the {missing}"]


def test_the_same_case_elsewhere_does_not_count() -> None:
    recordings = Recordings()
    recordings.add(CASE, Where(HERE, SIMULATOR), [WRITE])
    recordings.add(CASE, Where(Pair("milan", "newest"), KERNEL), [WRITE])
    assert list(recordings.differences(HERE, [CASE])) == [f"{CASE}\nnothing was recorded on the kernel"]


def test_a_recording_is_taken_out_of_its_report() -> None:
    recordings = Recordings()
    for target, content in ((SIMULATOR, "1\n"), (KERNEL, "2\n")):
        nodeid = f"{MODULE}::test_x[{HERE}-{target}-L3]@guest-{HERE}"
        handed_over = [replace(READ, content=content).as_json()]
        report = pytest.TestReport(nodeid, (MODULE, 1, "x"), {}, "passed", None, "teardown")
        report.user_properties = [("other", 1), (RECORDING, handed_over)]
        recordings.pytest_runtest_logreport(report)
        assert report.user_properties == [("other", 1)]
    (told,) = recordings.differences(HERE, [CASE])
    assert "content '1\\n'" in told
    assert "content '2\\n'" in told


@pytest.mark.parametrize(
    "rest, case",
    [
        (f"[{HERE}-simulator]", "[]"),
        (f"[{HERE}-simulator-L2]", "[L2]"),
        (f"[{HERE}-simulator-L3-a way, and @ more]@guest-{HERE}", "[L3-a way, and @ more]"),
    ],
)
def test_a_case_is_known_without_its_place(rest: str, case: str) -> None:
    found = case_and_place(f"{MODULE}::test_x{rest}")
    assert found == (f"{MODULE}::test_x{case}", Where(HERE, SIMULATOR))


@pytest.mark.parametrize("rest", ["", "[L3]", f"[L3-{HERE}-simulator]"])
def test_a_case_that_does_not_say_where_it_was_tried_is_an_error(rest: str) -> None:
    with pytest.raises(ValueError, match="does not begin its parameters with a place"):
        case_and_place(f"{MODULE}::test_x{rest}")


def test_what_is_no_case_has_no_place() -> None:
    assert case_and_place(f"tests/conformance/test_alike.py::test_x[{HERE}]") is None
