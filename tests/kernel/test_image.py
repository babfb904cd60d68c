# SPDX-License-Identifier: Apache-2.0
"""What the guest's Debian has of Python is what runs in guests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.kernel.lab.job import CHECKOUT
from tests.kernel.lab.recipes import IMAGE

PACKAGES = ("vmqos", "tests", "tools")
BY_OPTION = {"pytest_timeout"}
"""What no module imports: pytest finds it by itself."""


def files() -> dict[str, Path]:
    """Every module of ours."""
    found = {}
    for path in (path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py")):
        name = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """All that a module imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def libraries_in_guests() -> set[str]:
    """The libraries that a module imports which may run in a guest: vmqos, and the tests there with all they import."""
    ours, found, seen = files(), set[str](), set[str]()
    waiting = [name for name in ours if name.startswith(("tests.kernel.", "vmqos."))]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for wanted in imported(ours[name]):
            first, *rest = wanted.split(".")
            found.add(first)
            waiting += [part for part in (wanted, ".".join((first, *rest[:-1]))) if part in ours]
    return found


def test_each_library_of_python_in_the_image_is_imported_by_what_runs_there() -> None:
    given = {name.removeprefix("python3-") for name in IMAGE.names if name.startswith("python3-")}
    modules = {name.replace("-", "_").replace(".", "_") for name in given}
    assert {"libvirt", "msgspec", "pytest"} < modules
    assert modules - BY_OPTION <= libraries_in_guests()
