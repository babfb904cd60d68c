# SPDX-License-Identifier: Apache-2.0
"""What the page has from others is as they made it, and with their licence."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest

UPLOT = resources.files("vmqos.gateway.page").joinpath("static/vendor/uplot")

DIGESTS = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of the files in the npm package uplot 1.6.32."""


@pytest.mark.parametrize("name", DIGESTS)
def test_a_file_is_the_one_that_was_vendored(name: str) -> None:
    assert hashlib.sha256(UPLOT.joinpath(name).read_bytes()).hexdigest() == DIGESTS[name]


def test_nothing_else_is_there_but_where_it_is_from() -> None:
    assert {file.name for file in UPLOT.iterdir()} == {*DIGESTS, "README.md"}
    about = UPLOT.joinpath("README.md").read_text()
    assert "uplot@1.6.32" in about and "(v1.6.32)" in UPLOT.joinpath("uPlot.esm.js").read_text()
