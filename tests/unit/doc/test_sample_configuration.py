# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import re

import pytest
from oslo_config import cfg, generator

from tests.unit.doc.pages import CHECKOUT, SOURCE
from vmqos.agent.loop import Agent
from vmqos.agent.sample import history
from vmqos.conf import loader, telemetry
from vmqos.conf.opts import SECTIONS, list_opts

SAMPLE = CHECKOUT / "etc" / "vmqos" / "vmqos.conf.sample"
GENERATOR = CHECKOUT / "etc" / "oslo-config-generator" / "vmqos.conf"
MEND = "write it anew with 'tox -e genconfig'"


def sections(text: str) -> dict[str, str]:
    """The text of each section by its name."""
    parts = re.split(r"^\[(.+)\]$", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def generated(tmp_path, monkeypatch) -> dict[str, str]:
    """The sections that the generator writes now for the options of vmqos, whatever is installed."""
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(["--config-file", str(GENERATOR), "--output-file", str(tmp_path / "sample")])
    monkeypatch.setattr(generator, "_list_opts", lambda namespaces: [("vmqos", list_opts())])
    generator.generate(conf)
    return sections((tmp_path / "sample").read_text())


def test_the_committed_sample_says_of_each_section_what_the_generator_says(tmp_path, monkeypatch) -> None:
    # [DEFAULT] is oslo.log's, and changes with its release.
    committed = sections(SAMPLE.read_text())
    committed.pop("DEFAULT")
    assert committed == {k: v for k, v in generated(tmp_path, monkeypatch).items() if k != "DEFAULT"}, MEND


def test_the_sample_sets_nothing() -> None:
    lines = [line for line in SAMPLE.read_text().splitlines() if line and not line.startswith(("#", "["))]
    assert not lines


def test_the_sample_is_a_configuration_that_the_agent_accepts() -> None:
    conf = loader.load(["--config-file", str(SAMPLE)])
    assert not list(loader.unknown_options(conf))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.GROUP.name)
def test_the_operators_guide_explains_every_option_and_no_other(section) -> None:
    text = (SOURCE / "operator" / "configuring.rst").read_text()
    parts = re.split(r"^(?:\[(\w+)\]|\w+)\n-+$", text, flags=re.MULTILINE)
    explained = dict(zip(parts[1::2], parts[2::2], strict=True))[section.GROUP.name]
    assert set(re.findall(r"^``(\w+)``$", explained, re.MULTILINE)) == {option.name for option in section.OPTIONS}


def test_what_a_look_takes_is_said_as_it_is() -> None:
    figures = [str(4 * len(series)) for series in (history.SERIES, history.EXECUTED, history.PACKAGES)]
    (told,) = [option.help for option in telemetry.OPTIONS if option.name == "history"]
    guide = (SOURCE / "operator" / "configuring.rst").read_text()
    explained = guide.partition("``history``\n")[2].partition("``minutes``\n")[0]
    assert re.findall(r"\d+", told) == re.findall(r"\d+", explained) == figures


def test_the_log_the_guide_and_the_manual_page_name_the_same_sections_that_need_a_restart() -> None:
    pages = (SOURCE / "operator" / "configuring.rst", SOURCE / "man" / "vmqos-agent.rst")
    texts = (inspect.getsource(Agent._read_configuration_again), *(page.read_text() for page in pages))
    named = [set(re.findall(r"\[\w+\]", text.partition("need a restart")[0][-200:])) for text in texts]
    assert named[0] == named[1] == named[2] and "[resctrl]" in named[0] and len(named[0]) == 8
