# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.cli.show import units
from vmqos.insight import say


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 MiB/s"),
        (1048576.0, "1.0 MiB/s"),
        (1e6, "1.0 MiB/s"),
        (5.4e6, "5.1 MiB/s"),
        (10485760.0, "10 MiB/s"),
        (1e8, "95 MiB/s"),
        (8e9, "7629 MiB/s"),
    ],
)
def test_a_bandwidth_is_told_in_mebibytes_a_second(value: float, text: str) -> None:
    assert say.bandwidth(value) == text


@pytest.mark.parametrize(("value", "text"), [(1024.0, "1 KiB"), (1048576.0, "1.0 MiB"), (6e6, "5.7 MiB")])
def test_a_size_is_told_in_binary_units(value: float, text: str) -> None:
    assert say.size(value) == text


def test_it_is_the_figure_that_vmqos_top_has() -> None:
    assert units.size(941.3 * (1 << 20)) == "941.3 MiB" and say.bandwidth(941.3 * (1 << 20)) == "941 MiB/s"
