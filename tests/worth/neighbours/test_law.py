# SPDX-License-Identifier: Apache-2.0
"""No module that judges is left out of what kept results depend on."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from tests.worth.neighbours import beside, campaign, law
from vmqos import insight

PACKAGE = insight.__name__


def imports(name: str) -> set[str]:
    """The modules of insight that one of them imports."""
    found = set()
    for node in ast.walk(ast.parse((law.FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == PACKAGE:
                found |= {alias.name for alias in node.names}
            elif node.module.startswith(f"{PACKAGE}."):
                found.add(node.module.removeprefix(f"{PACKAGE}."))
    return found


def names_in(code: CodeType) -> set[str]:
    """The names that a function uses, and its comprehensions do."""
    inner = [names_in(one) for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*inner)


def needed_to_judge() -> set[str]:
    """The modules of all that :func:`vmqos.insight.judge` asks, and those that they import, in turn."""
    names = names_in(insight.judge.__code__) | names_in(insight.judge_series.__code__)
    modules = {getattr(getattr(insight, name, None), "__module__", "") for name in names}
    found, left = set[str](), {name.removeprefix(f"{PACKAGE}.") for name in modules if name.startswith(f"{PACKAGE}.")}
    while left:
        name = left.pop()
        found.add(name)
        left |= imports(name) - found
    return found


def test_the_law_is_all_that_is_needed_to_judge_but_for_what_finds_the_words() -> None:
    assert needed_to_judge() == {*law.JUDGE, *law.TELL}
    assert not {*law.JUDGE} & {*law.TELL}


@pytest.mark.parametrize("name", law.TELL)
def test_what_finds_the_words_asks_nothing_that_judges(name: str) -> None:
    assert imports(name) <= {"model", *law.TELL}


def test_the_law_of_the_mixes_is_part_of_it() -> None:
    assert insight.pairs.__module__.removeprefix(f"{PACKAGE}.") in law.JUDGE


@pytest.mark.parametrize("digest", [campaign.digest, beside.digest], ids=["campaign", "guest"])
def test_what_is_kept_depends_on_each_module_that_judges_and_on_none_that_tells(
    digest: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "insight"
    shutil.copytree(law.FOLDER, copies)
    monkeypatch.setattr(law, "FOLDER", copies)
    before = digest()
    for path in sorted(copies.glob("*.py")):
        text = path.read_bytes()
        path.write_bytes(text + b"\nCHANGED = 1\n")
        assert (digest() != before) == (path.stem in law.JUDGE), path.stem
        path.write_bytes(text)


@pytest.mark.parametrize(
    ("text", "is_other"),
    [
        ('"""Other words."""\n\nA = 1\n"""More."""\n\n\ndef one(a=A):\n    """Words."""\n    return a  # why\n', False),
        ("A = 1\n\n\ndef one(a=A):\n    return a\n", False),
        ("A = 2\n\n\ndef one(a=A):\n    return a\n", True),
        ('A = 1\n\n\ndef one(a="text"):\n    return a\n', True),
        ('A = 1\n\n\ndef one(a=A):\n    return "text"\n', True),
    ],
)
def test_what_files_say_to_people_does_not_count_and_what_they_do_does(
    text: str, is_other: bool, tmp_path: Path
) -> None:
    path = tmp_path / "one.py"
    path.write_text('"""Words."""\nA = 1\ndef one(a=A):\n    return a\n')
    before = law.digest([path])
    path.write_text(text)
    assert (law.digest([path]) != before) == is_other


def test_of_what_is_no_python_each_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "one.c"
    path.write_text("int a; /* one */")
    before = law.digest([path])
    path.write_text("int a; /* two */")
    assert law.digest([path]) != before


def test_each_version_of_python_makes_the_same_digest(tmp_path: Path) -> None:
    path = tmp_path / "law.py"
    path.write_text(
        "class Law(Base):\n    least: float = 0.5\n\n    @property\n    def told(self, *, to=None):\n"
        "        return [f'{one:.2f} {to}' for one in self.found if one is not None and one > -1] or None\n"
    )
    assert law.digest([path]) == "bda49d47c2c4105d4f247dc23d7b9e1a7fa6e94a153d52f63edae6ae8f3f3f02"
