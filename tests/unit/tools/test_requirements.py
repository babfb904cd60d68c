# SPDX-License-Identifier: Apache-2.0
"""What the tools install by version and digest."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import release_files
from tools.lab.workspace import CHECKOUT

LOCKED = CHECKOUT / "tools" / "requirements"


def entries(name: str) -> Iterator[tuple[Requirement, str]]:
    """The requirements of a file, each with its digests."""
    text = re.sub(r"^#.*\n", "", (LOCKED / f"{name}.txt").read_text(), flags=re.MULTILINE)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        requirement, _, digests = entry.partition(" \\\n")
        yield Requirement(requirement), digests


@pytest.mark.parametrize("name", ["build", "fuzz", "notifications", "release", "runtime", "test", "tools"])
def test_each_version_is_exact_and_each_file_has_a_digest(name: str) -> None:
    found = list(entries(name))
    assert found
    for requirement, digests in found:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert re.fullmatch(r"(\s+--hash=sha256:[0-9a-f]{64}( \\\n)?)+", digests), requirement


SETUP = configparser.ConfigParser(interpolation=None)
SETUP.read(CHECKOUT / "setup.cfg")

EXTRAS = {
    "runtime": {"agent", "cli", "simulator"},
    "notifications": {"notifications"},
    "test": set(SETUP["extras"]) - {"nova"},
}
"""By file, the extras of setup.cfg that it locks."""


@pytest.mark.parametrize("name", EXTRAS)
def test_what_the_extras_ask_for_is_locked_within_its_bounds(name: str) -> None:
    lines = "".join(SETUP["extras"][extra] for extra in sorted(EXTRAS[name])).splitlines()
    wanted = [Requirement(line.partition("#")[0]) for line in lines if line and not line.startswith(("vmqos[", "#"))]
    assert wanted
    locked = {canonicalize_name(found.name): str(found.specifier).removeprefix("==") for found, _ in entries(name)}
    for requirement in wanted:
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_what_an_sbom_tells_of_is_locked() -> None:
    assert EXTRAS["runtime"] | EXTRAS["notifications"] == set(release_files.EXTRAS)


def test_what_notifications_need_is_locked_as_what_runs_without_them() -> None:
    runtime, added = (
        {one.name: (str(one.specifier), digests) for one, digests in entries(name)}
        for name in ("runtime", "notifications")
    )
    both = runtime.keys() & added.keys()
    assert len(both) > 10 and added.keys() - both
    assert {name: added[name] for name in both} == {name: runtime[name] for name in both}


def test_what_builds_vmqos_is_locked_and_the_same_in_the_demo_and_in_a_release() -> None:
    build, release = (dict((one.name, str(one.specifier)) for one, _ in entries(name)) for name in ("build", "release"))
    assert {"pbr", "setuptools"} <= set(build)
    assert {name: release[name] for name in build} == build
