# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli.show import bench_view, terminal
from vmqos.cli.show.terminal import Terminal

PLAIN, FANCY = Terminal(), Terminal(fancy=True, width=100)


def found(**changes: Any) -> dict[str, Any]:
    """What an experiment on a machine of iron found."""
    medians = {"alone": 20.0, "noisy": 60.0, "protected": 22.0, "alone_again": 20.5}
    return {
        "meaningful": True,
        "verdict": "The ways undid 95% of the damage.",
        "remarks": [],
        "cache": {"id": 1, "size_bytes": 37486592, "ways": 11, "way_bytes": 3407872},
        "ways": 4,
        "mask": "f",
        "victim": {"name": "following pointers", "cpus": [19], "working_set_bytes": 6815744, "command": None},
        "neighbor": {"name": "stress-ng --stream 3", "cpus": [16, 17, 18]},
        "unit": "ns per access",
        "phases": {
            name: {"median": median, "low": median - 1, "high": median + 1, "rounds": [median]}
            for name, median in medians.items()
        },
        "ratios": {"noisy": 3.0, "protected": 1.1},
        **changes,
    }


def drawn(result: dict[str, Any], screen: Terminal) -> str:
    stream = io.StringIO()
    terminal.show(bench_view.draw(result, screen), stream, screen)
    return stream.getvalue()


def bars(text: str) -> dict[str, int]:
    """The length of the bar of each phase."""
    return {
        name: line.count("#")
        for name, title in bench_view.NAMES.items()
        for line in text.splitlines()
        if line.startswith(f"{title} ") and "#" in line
    }


def test_bars_are_as_long_as_the_times() -> None:
    text = drawn(found(), PLAIN)
    lengths = bars(text)
    assert lengths["noisy"] > 2 * lengths["protected"] >= 2 * lengths["alone"] > 0
    assert "60 ns per access (59 to 61)  3.00 x" in text
    assert "The ways undid 95% of the damage." in text
    assert "mean nothing" not in text
    assert max(map(len, text.splitlines())) <= PLAIN.width


def test_figures_that_mean_nothing_are_said_to_first_of_all() -> None:
    remarks = ["the figures mean nothing: resctrl is simulated here", "the host was not quiet"]
    text = drawn(found(meaningful=False, remarks=remarks), PLAIN)
    assert text.startswith("The figures mean nothing: resctrl is simulated here.")
    assert "What the figures would say: The ways undid" in text
    assert text.count("simulated") == 1
    assert "Note: the host was not quiet." in text


def test_a_colourful_terminal_gets_blocks() -> None:
    assert "█" in drawn(found(), FANCY)


def test_the_name_of_a_vm_is_harmless() -> None:
    result = found()
    result["victim"] |= {"name": "VM \x1b[2Jevil", "working_set_bytes": None}
    assert r"VM \x1b[2Jevil, on CPU 19" in drawn(result, PLAIN)


def test_a_value_is_a_phase_or_a_ratio() -> None:
    titles, values = bench_view.fields(found())
    told = dict(zip(titles, values, strict=True))
    assert (told["noisy"], told["noisy_ratio"], told["unit"]) == (60.0, 3.0, "ns per access")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--working-set", "1"), "not between 4K and 16G"),
        (("--working-set", "much"), "is no size"),
        (("--duration", "0"), "a number of seconds from 0.1 to 3600 is allowed"),
        (("--ways", "0"), "less than 1"),
        (("--cache", "one"), "'one' is no whole number"),
        (("--noise", "loud"), "invalid choice"),
    ],
)
def test_wrong_options_are_refused(run: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = run("bench", "noisy-neighbor", *arguments)
    assert ran.status == 2
    assert words in ran.err


def test_a_vm_needs_a_command(run: Run) -> None:
    ran = run("bench", "noisy-neighbor", "--vm", "web-1")
    assert ran.status == 2
    assert "measured by a --command" in ran.err


def test_a_host_without_resctrl_is_told_in_one_line(run: Run, tmp_path: Any) -> None:
    conf = tmp_path / "vmqos.conf"
    conf.write_text(f"[resctrl]\npath = {tmp_path}/nothing\n")
    ran = run("--config-file", str(conf), "bench", "noisy-neighbor")
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
