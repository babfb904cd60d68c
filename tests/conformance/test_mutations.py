# SPDX-License-Identifier: Apache-2.0
"""The suite notices when the simulator breaks a rule.

One rule of the simulator after another is changed, in a copy of its source. The case that is about the rule, which is
named with it, has to fail on the copy by what it was answered; another case has to pass, as the rest still works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conformance.items import ONLY
from tests.conformance.simulator_target import SOURCE

CHECKOUT = Path(__file__).parents[2]
CASES = Path("tests/conformance/cases")
PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the suite.

    :ivar section: its module, without ``test_``.
    :ivar name: its name, without ``test_``.
    """

    section: str
    name: str

    def __str__(self) -> str:
        return f"{CASES}/test_{self.section}.py::test_{self.name}"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one rule.

    :ivar rule: what no longer holds.
    :ivar module: of the simulator.
    :ivar old: what is there, once.
    :ivar new: what takes its place.
    :ivar noticed_by: the case that is about the rule.
    :ivar pair: the machine and kernel that are tried.
    """

    rule: str
    module: str
    old: str
    new: str
    noticed_by: Case
    pair: str = "cascade-lake-6.12"


UNCONCERNED = Case("mounting", "without_options_the_root_is_the_default_group")
"""A case that none of the changes concerns."""

MUTATIONS = (
    Mutation(
        "a mask with a gap is refused where masks may not be sparse",
        "schemata",
        "if not allocation.sparse and first_run != mask.bit_count():",
        "if False:",
        Case("schemata_of_caches", "a_mask_with_a_gap_is_taken_only_where_masks_may_be_sparse"),
    ),
    Mutation(
        "a bandwidth is rounded up",
        "schemata",
        "return -(-value // allocation.granularity)",
        "return value // allocation.granularity",
        Case("schemata_of_bandwidth", "a_percentage_is_rounded_up_to_the_hardwares_step"),
    ),
    Mutation(
        "an unknown cache is refused",
        "schemata",
        "            raise refusal(errno.EINVAL)\n        _stage(",
        "            continue\n        _stage(",
        Case("schemata_of_caches", "an_unknown_cache_id_is_refused_without_a_word"),
    ),
    Mutation(
        "a new group gets no way of an exclusive one",
        "groups",
        "mask |= schema.resource.default & ~used",
        "mask |= schema.resource.default",
        Case("starting_masks", "the_ways_of_an_exclusive_group_are_not_given"),
    ),
    Mutation(
        "nobody overlaps an exclusive group",
        "state",
        "if not exclusive_only or mode is Mode.EXCLUSIVE:",
        "if not exclusive_only:",
        Case("modes", "nobody_takes_a_way_of_an_exclusive_group"),
    ),
    Mutation(
        "a removed group's CPUs are the default group's again",
        "groups",
        "mounted.default.cpus |= group.cpus",
        "mounted.default.cpus |= set()",
        Case("cpus", "a_removed_groups_cpus_are_the_default_groups"),
    ),
    Mutation(
        "a task comes into a monitoring group through its control group",
        "task_files",
        "if group.parent is not None and group.parent.closid != closid:",
        "if False:",
        Case("monitoring_groups", "a_task_enters_through_the_control_group"),
    ),
    Mutation(
        "a refused list leaves those before it moved",
        "task_files",
        'status.printf(f"Error while processing task {tid}\\n")',
        'status.printf(f"Error while processing task {tid}\\n")\n'
        "            mounted.hardware.members.move_all(group.has_task, 0, 0)",
        Case("tasks", "the_first_failure_ends_a_list_and_those_before_stay_moved"),
    ),
    Mutation(
        "umount gives every class everything",
        "machine",
        "                resource.reset()\n",
        "                pass\n",
        Case("mounting", "umount_gives_every_class_everything"),
    ),
    Mutation(
        "a group takes the lowest free class",
        "state",
        "for closid in range(self.closids):",
        "for closid in reversed(range(self.closids)):",
        Case("groups", "a_new_group_gets_the_lowest_free_class"),
    ),
    Mutation(
        "an RMID in limbo is EBUSY",
        "rmids",
        "errno.EBUSY if self._waiting else errno.ENOSPC",
        "errno.ENOSPC",
        Case("monitoring_groups", "an_rmid_that_was_just_freed_is_busy"),
    ),
    Mutation(
        "code and data have registers of their own",
        "resources",
        "2 * closid + (use is Use.CODE)",
        "2 * closid + (use is Use.DATA)",
        Case("cdp", "code_and_data_have_masks_and_registers_of_their_own"),
    ),
    Mutation(
        "a message is there until the next command",
        "status",
        '        self._text = ""\n        self._overflowed = False\n\n    def puts',
        "        pass\n\n    def puts",
        Case("last_command_status", "each_refusal_takes_the_place_of_the_one_before"),
    ),
    Mutation(
        "a region is unlocked when its group goes",
        "pseudo_lock",
        "            group.region.domain.region = None\n",
        "            pass\n",
        Case("pseudo_locking", "removed_the_region_is_unlocked"),
        "broadwell-6.12",
    ),
    Mutation(
        "an older kernel gives a new group no ways with a gap",
        "groups",
        "if not (cache.sparse and mounted.kernel.starts_sparse):",
        "if not cache.sparse:",
        Case("starting_masks", "of_ways_with_a_gap_only_the_lowest_run_is_given_unless_masks_may_be_sparse"),
        "sapphire-rapids-6.12",
    ),
    Mutation(
        "a newer kernel pads no values",
        "schemata",
        "width = _value_width(mounted) if mounted.kernel.pads_values else 0",
        "width = _value_width(mounted)",
        Case("schemata_as_a_whole", "values_are_padded_by_older_kernels_only"),
        "milan-newest",
    ),
    Mutation(
        "there are only as many groups as the poorer kind of counters has RMIDs",
        "profiles",
        "return min(counted, default=0)",
        "return max(counted, default=0)",
        Case("package_events", "there_are_no_more_groups_than_the_poorer_of_both_kinds_of_counters_has_rmids"),
        "clearwater-forest-newest",
    ),
    Mutation(
        "nodes are numbered cache by cache",
        "topology",
        "return self.l3[counted // self.nodes_per_l3]",
        "return self.l3[counted % len(self.l3)]",
        Case("sub_numa_nodes", "each_node_has_a_folder_within_its_caches"),
        "sapphire-rapids-snc2-newest",
    ),
)


def outcomes(source: Path, pair: str, cases: Iterable[Case]) -> dict[Case, set[str]]:
    """Try cases on the simulator of ``source``.

    :return: how each ended, wherever it was tried on that machine: :data:`PASSED`, or what was raised in the case or
        around it.
    """
    wanted, report = list(cases), source / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--assert=plain"]
    command += ["-o", "junit_family=xunit2", f"--junitxml={report}", *map(str, wanted)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {SOURCE: str(source), ONLY: f"{pair}-simulator"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout + done.stderr
    found: dict[Case, set[str]] = {case: set() for case in wanted}
    for one in ElementTree.parse(report).iter("testcase"):
        case = Case(
            one.attrib["classname"].rpartition(".test_")[2], one.attrib["name"].partition("[")[0].removeprefix("test_")
        )
        ends = [f"{end.tag}: {end.attrib['message'].partition(chr(10))[0]}" for end in one if "message" in end.attrib]
        found[case] |= set(ends) or {PASSED}
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of ``vmqos``."""
    shutil.copytree(CHECKOUT / "vmqos", tmp_path / "vmqos", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("pair", sorted({mutation.pair for mutation in MUTATIONS}))
def test_on_a_faithful_copy_the_named_cases_pass(copy: Path, pair: str) -> None:
    cases = [UNCONCERNED, *(mutation.noticed_by for mutation in MUTATIONS if mutation.pair == pair)]
    assert outcomes(copy, pair, cases) == {case: {PASSED} for case in cases}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_broken_rule_is_noticed_by_the_case_that_is_about_it(copy: Path, mutation: Mutation) -> None:
    [path] = (copy / "vmqos" / "simulator").rglob(f"{mutation.module}.py")
    text = path.read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{path.name} has this {text.count(mutation.old)} times: {mutation.old}"
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    # An exception of another kind would be the simulator's end, or the case's, and no answer.
    assert outcomes(copy, mutation.pair, [UNCONCERNED, mutation.noticed_by]) == {
        UNCONCERNED: {PASSED},
        mutation.noticed_by: {"failure: AssertionError"},
    }
