# SPDX-License-Identifier: Apache-2.0
"""The recordings of both targets, brought together where they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.conformance.items import Where, case_and_place
from tests.conformance.machines import KERNEL, SIMULATOR, TARGETS
from tests.conformance.recording import Operation, differences
from tests.kernel.lab.pair import Pair

RECORDING = "recording"
"""The property of a report under which a case hands over what it recorded."""


class Recordings:
    """What the cases of this process recorded, on either target: a plugin of pytest's."""

    def __init__(self) -> None:
        self._found: dict[Where, dict[str, list[Operation]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report's recording, out of it: nobody else needs its many lines."""
        place = case_and_place(report.nodeid)
        if place is None:
            return
        case, where = place
        # What comes from a guest has gone through JSON, which knows no tuples.
        for name, handed_over in report.user_properties:
            if name == RECORDING:
                assert isinstance(handed_over, list)
                self.add(case, where, [Operation.from_json(one) for one in handed_over])
        report.user_properties = [one for one in report.user_properties if one[0] != RECORDING]

    def add(self, case: str, where: Where, recording: list[Operation]) -> None:
        """Take the recording of a case."""
        self._found.setdefault(where, {})[case] = recording

    def differences(self, pair: Pair, cases: Iterable[str]) -> Iterator[str]:
        """For each case that was not tried alike: its name, and the operations with both answers, or who lacks it."""
        simulator, kernel = (self._found.get(Where(pair, target), {}) for target in (SIMULATOR, KERNEL))
        for case in cases:
            if missing := [target for target in TARGETS if case not in self._found.get(Where(pair, target), {})]:
                yield f"{case}\nnothing was recorded on the {' or the '.join(missing)}"
            elif found := differences(simulator[case], kernel[case]):
                yield "\n".join([case, *found])


def cases_of(pair: Pair, items: Iterable[pytest.Item]) -> list[str]:
    """The cases that are to be tried on a machine and kernel, on either target."""
    places = (case_and_place(item.nodeid) for item in items)
    return sorted({place[0] for place in places if place is not None and place[1].pair == pair})
