# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest
from oslo_config import cfg, generator

from tests.unit.doc.pages import CHECKOUT, SOURCE
from vmqos.conf import loader
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
