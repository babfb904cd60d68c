# SPDX-License-Identifier: Apache-2.0
"""The suite notices when the simulator breaks a rule.

One rule of the simulator after another is changed, in a copy, and the suite's simulator items are run on the copy: they
have to fail. The test's output says which cases saw it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.items import ONLY
from tests.conformance.simulator_target import SOURCE

CHECKOUT = Path(__file__).parents[2]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one rule.

    :ivar rule: what no longer holds.
    :ivar module: of the simulator.
    :ivar old: what is there, once.
    :ivar new: what takes its place.
    :ivar pair: the machine and kernel that are tried.
    """

    rule: str
    module: str
    old: str
    new: str
    pair: str = "cascade-lake-6.12"


MUTATIONS = (
    Mutation(
        "a mask with a gap is refused where masks may not be sparse",
        "schemata",
        "if not allocation.sparse and first_run != mask.bit_count():",
        "if False:",
    ),
    Mutation(
        "a bandwidth is rounded up",
        "schemata",
        "return -(-value // allocation.granularity)",
        "return value // allocation.granularity",
    ),
    Mutation(
        "an unknown cache is refused",
        "schemata",
        "            raise refusal(errno.EINVAL)\n        _stage(",
        "            continue\n        _stage(",
    ),
    Mutation(
        "a new group gets no way of an exclusive one",
        "groups",
        "mask |= schema.resource.default & ~used",
        "mask |= schema.resource.default",
    ),
    Mutation(
        "nobody overlaps an exclusive group",
        "state",
        "if not exclusive_only or mode is Mode.EXCLUSIVE:",
        "if not exclusive_only:",
    ),
    Mutation(
        "a removed group's CPUs are the default group's again",
        "groups",
        "mounted.default.cpus |= group.cpus",
        "mounted.default.cpus |= set()",
    ),
    Mutation(
        "a task comes into a monitoring group through its control group",
        "task_files",
        "if group.parent is not None and group.parent.closid != closid:",
        "if False:",
    ),
    Mutation(
        "a refused list leaves those before it moved",
        "task_files",
        'status.printf(f"Error while processing task {tid}\\n")',
        "members = mounted.hardware.members; members.move_all(group.has_task, 0, 0)",
    ),
    Mutation(
        "umount gives every class everything", "machine", "                resource.reset()\n", "                pass\n"
    ),
    Mutation(
        "a group takes the lowest free class",
        "state",
        "for closid in range(self._closids):",
        "for closid in reversed(range(self._closids)):",
    ),
    Mutation(
        "an RMID in limbo is EBUSY",
        "rmids",
        "errno.EBUSY if self._waiting else errno.ENOSPC",
        "errno.ENOSPC",
    ),
    Mutation(
        "code and data have registers of their own",
        "resources",
        "2 * closid + (use is Use.CODE)",
        "2 * closid + (use is Use.DATA)",
    ),
    Mutation(
        "a message is there until the next command",
        "status",
        '        self._text = ""\n        self._overflowed = False\n\n    def puts',
        "        pass\n\n    def puts",
    ),
    Mutation(
        "a region is unlocked when its group goes",
        "pseudo_lock",
        "            group.region.domain.region = None\n",
        "            pass\n",
        "broadwell-6.12",
    ),
)


def run_suite(folder: Path, pair: str, *options: str) -> tuple[int, list[str], str]:
    """The cases of a pair on the simulator of ``folder``: pytest's status, who failed, and all that was said."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rfE"]
    command += ["--tb=no", "--assert=plain", *options, str(CHECKOUT / "tests" / "conformance" / "cases")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {SOURCE: str(folder), ONLY: f"{pair}-simulator"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, _FAILED.findall(done.stdout), done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of ``vmqos``."""
    shutil.copytree(CHECKOUT / "vmqos", tmp_path / "vmqos", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("pair", sorted({mutation.pair for mutation in MUTATIONS}))
def test_on_a_faithful_copy_the_suite_passes(copy: Path, pair: str) -> None:
    status, failed, said = run_suite(copy, pair)
    assert (status, failed) == (0, []), said


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_broken_rule_is_noticed(copy: Path, mutation: Mutation) -> None:
    path = copy / "vmqos" / "simulator" / f"{mutation.module}.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{path.name} has this {text.count(mutation.old)} times: {mutation.old}"
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    status, failed, said = run_suite(copy, mutation.pair, "--maxfail=3")
    # 1 is pytest's word for failed tests; a copy that does not even start would prove nothing.
    assert status == pytest.ExitCode.TESTS_FAILED, said
    assert failed, said
    print(f"not so: {mutation.rule}\nseen by these cases, and perhaps more:", *failed, sep="\n  ")
