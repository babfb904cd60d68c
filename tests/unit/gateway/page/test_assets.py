# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from vmqos.gateway.page import assets

LOADED = assets.load()
SCRIPTS = [name for name in LOADED if name.endswith(".js")]


def text(name: str) -> str:
    return LOADED[name].content.decode()


def test_a_page_has_a_style_scripts_and_an_icon() -> None:
    assert {name.rpartition(".")[2] for name in LOADED} == {"css", "html", "js", "svg"}


def test_a_tag_tells_contents_apart() -> None:
    assert len({asset.tag for asset in LOADED.values()}) == len(LOADED)


def test_what_the_page_loads_is_there_and_of_this_host() -> None:
    loaded = re.findall(r'<(?:link|script)[^>]*(?:href|src)="([^"]*)"', text("index.html"))
    assert loaded
    assert all(path.startswith("page/") and path.removeprefix("page/") in LOADED for path in loaded)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_imports_what_is_there(name: str) -> None:
    imported = re.findall(r'^import .*?from "\./([^"]+)";$', text(name), re.MULTILINE | re.DOTALL)
    assert imported or "import" not in text(name)
    assert set(imported) <= LOADED.keys()


@pytest.mark.parametrize("name", sorted(LOADED))
def test_nothing_is_asked_of_any_other_host(name: str) -> None:
    content = text(name).replace("http://www.w3.org/2000/svg", "")
    if name.startswith("vendor/"):
        # Its comments name pages. No line of code is one of these.
        content = re.sub(r"^(\s*//|\* ).*", "", content, flags=re.MULTILINE)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", content)


def test_there_is_no_script_and_no_style_inside_the_page() -> None:
    page = text("index.html")
    assert "<style" not in page
    assert not re.search(r"<script[^>]*>[^<]", page)
    assert not re.search(r"\s(?:style|on\w+)=", page)


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_never_becomes_markup(name: str) -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc", text(name)
    )
