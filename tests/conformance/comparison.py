# SPDX-License-Identifier: Apache-2.0
"""The recordings of both targets, brought together where they can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.items import case_and_target
from tests.conformance.machines import KERNEL, SIMULATOR, Pair
from tests.conformance.recording import Operation, differences

RECORDING = "recording"
"""The property of a report under which a case hands over what it recorded."""


class Recordings:
    """What the cases of this process recorded, on either target: a plugin of pytest's."""

    def __init__(self) -> None:
        self._found: dict[tuple[Pair, str], dict[str, list[Operation]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report's recording, out of it: nobody else needs its many lines."""
        place = case_and_target(report.nodeid)
        if place is None:
            return
        # What comes from a guest has gone through JSON, which knows no tuples.
        handed_over = dict(property_ for property_ in report.user_properties if property_[0] == RECORDING)
        report.user_properties = [one for one in report.user_properties if one[0] != RECORDING]
        if handed_over:
            case, pair, target = place
            recording = [Operation.from_json(one) for one in handed_over[RECORDING]]
            self._found.setdefault((pair, target), {})[case] = recording

    def compared(self, pair: Pair) -> int:
        """How many cases there are of both targets."""
        return len(self._both(pair))

    def differences(self, pair: Pair) -> Iterator[str]:
        """For each case whose two recordings are not the same: its name, and the operations with both answers."""
        for case in self._both(pair):
            found = differences(self._of(pair, SIMULATOR)[case], self._of(pair, KERNEL)[case])
            if found:
                yield "\n".join([case, *found])

    def _both(self, pair: Pair) -> list[str]:
        kernel = self._of(pair, KERNEL)
        return [case for case in self._of(pair, SIMULATOR) if case in kernel]

    def _of(self, pair: Pair, target: str) -> dict[str, list[Operation]]:
        return self._found.get((pair, target), {})
