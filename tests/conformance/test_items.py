# SPDX-License-Identifier: Apache-2.0
"""No case is left out without a word: not on a target, not on a machine, not with a kernel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conformance import needs
from tests.conformance.items import CASES as CASES_PACKAGE
from tests.conformance.items import ONLY, Where, case_and_place, generate
from tests.conformance.machines import GUESTS, KERNEL_OF, PROFILE_OF, SIMULATED, SIMULATOR, TARGETS
from tests.kernel.lab.pair import Pair
from vmqos.simulator.hardware.profiles import Profile

CHECKOUT = Path(__file__).parents[2]
CASES = Path("tests/conformance/cases")
OF_ONE_KERNEL = {
    "test_counters_are_assigned_by_default_where_the_hardware_cannot_do_otherwise": "newest",
    "test_umount_unlocks": "6.12",
}
"""The only cases that one of the kernels is not asked, but for those of a section that only one has: what they are
about is in ``differences``."""

SECTIONS_OF_ONE_KERNEL = {"package_events": "newest", "ways_for_devices": "newest"}
LACKED_BY = {
    "cdp": {"goldmont"},
    "monitoring": {"goldmont"},
    "monitoring_groups": {"goldmont"},
    "package_events": set(PROFILE_OF) - {"clearwater-forest"},
    "sub_numa_nodes": set(PROFILE_OF) - {"sapphire-rapids-snc2"},
    "ways_for_devices": set(PROFILE_OF) - {"genoa"},
}
"""The only machines that a section asks nothing."""


def section_of(function: str) -> str:
    return Path(function.partition("::")[0]).stem.removeprefix("test_")


def collect(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest, and let it collect only."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only", "-q"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_") and name != ONLY}
    return subprocess.run(
        [*command, *arguments], cwd=CHECKOUT, env=kept | environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tried() -> dict[str, dict[str, set[Where]]]:
    """Where each case is tried: by the function's name and the case's."""
    done = collect(str(CASES))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, set[Where]]] = defaultdict(lambda: defaultdict(set))
    for line in done.stdout.splitlines():
        if "::" in line:
            place = case_and_place(line)
            assert place is not None, line
            case, where = place
            found[case.partition("[")[0]][case].add(where)
    return found


def test_every_case_that_is_written_is_tried(tried: dict[str, dict[str, set[Where]]]) -> None:
    written = {
        f"{path.relative_to(CHECKOUT)}::{node.name}"
        for path in (CHECKOUT / CASES).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert set(tried) == written


def test_every_case_is_tried_on_both_targets_and_but_for_the_named_ones_with_both_kernels(
    tried: dict[str, dict[str, set[Where]]],
) -> None:
    for function, cases in tried.items():
        only = OF_ONE_KERNEL.get(function.partition("::")[2]) or SECTIONS_OF_ONE_KERNEL.get(section_of(function))
        kernels = [only] if only else list(KERNEL_OF)
        for case, places in cases.items():
            machines = {place.pair.machine for place in places}
            wanted = {
                Where(Pair(machine, kernel), target)
                for machine in machines & set(GUESTS)
                for kernel in kernels
                for target in TARGETS
            }
            simulated = {Where(pair, SIMULATOR) for pair in SIMULATED if pair.kernel in kernels}
            assert places - simulated == wanted, case


def test_every_machine_is_asked_something_in_every_section_but_for_what_it_has_not(
    tried: dict[str, dict[str, set[Where]]],
) -> None:
    asked: dict[str, set[str]] = defaultdict(set)
    for function, cases in tried.items():
        for places in cases.values():
            asked[section_of(function)] |= {place.pair.machine for place in places}
    spared = {section: set(PROFILE_OF) - machines for section, machines in asked.items() if machines != set(PROFILE_OF)}
    assert spared == LACKED_BY


def case_of(mark: pytest.MarkDecorator, *fixtures: str) -> Any:
    """What pytest hands to ``generate`` for a case with that mark and these fixtures."""
    return SimpleNamespace(
        fixturenames=list(fixtures),
        module=SimpleNamespace(__package__=CASES_PACKAGE),
        function=SimpleNamespace(__name__="test_x"),
        definition=SimpleNamespace(iter_markers=lambda name: [mark.mark] if mark.name == name else []),
    )


def test_a_case_that_nobody_can_be_asked_is_an_error() -> None:
    with pytest.raises(pytest.Collector.CollectError, match="nobody has what test_x needs"):
        generate(case_of(needs.of(lambda profile: False), "where", "rdt"))


def test_a_case_that_asks_nobody_is_an_error() -> None:
    with pytest.raises(pytest.Collector.CollectError, match="test_x asks for neither"):
        generate(case_of(needs.MONITORING, "tmp_path"))


def test_a_need_with_a_name_is_not_taken_for_a_case() -> None:
    def need(profile: Profile) -> bool:
        return profile.name == "milan"

    assert needs.of(need).args == (need,)


def test_a_place_that_there_is_not_is_an_error() -> None:
    done = collect(str(CASES), **{ONLY: "milan-6.12-simulatr"})
    assert done.returncode != 0
    assert f"{ONLY}=milan-6.12-simulatr is no place" in done.stdout + done.stderr
