# SPDX-License-Identifier: Apache-2.0
"""The guide's install of the Nova plugin, carried out in an operator's environment: nothing changes but vmqos."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.install.operators_nova import Environment, run

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "doc" / "source" / "operator" / "nova.rst"
OURS = ("vmqos", "nova_plugin", "ceilometer_pollster")
CHECKOUT = ("LICENSE", "README.md", "etc", "pyproject.toml", "setup.cfg", "setup.py", *OURS)
FORMER = "sudo /opt/nova/bin/pip install '.[nova]'"
"""What the guide said once; who has it in a script must not lose their Nova by it."""

LOADED = """
import sys
from nova.cmd import scheduler  # it decides between threads and eventlet
from nova import config
config.parse_args(["nova-scheduler", "--config-file", sys.argv[1]])
from nova.conf import CONF
from nova.scheduler import filters, weights
from nova.api.validation.extra_specs import validators

options = CONF.filter_scheduler
found = {one.__name__: one for one in filters.HostFilterHandler().get_matching_classes(options.available_filters)}
print(*(found[name]().__class__.__module__ for name in options.enabled_filters))
print(*(one().__class__.__name__ for one in weights.HostWeightHandler().get_matching_classes(options.weight_classes)))
for value in ("2", "two"):
    try:
        validators.validate("hw:cache_ways", value)
        print("taken")
    except Exception as error:
        print(error)
"""


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment.with_nova(tmp_path_factory.mktemp("operator") / "nova")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as an operator has it, for pip builds in it."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in CHECKOUT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder)
    return folder


def blocks(language: str) -> list[str]:
    """The code blocks of the guide's part about installing."""
    part = GUIDE.read_text().partition("\nInstalling\n")[2].partition("\nFlavors\n----")[0]
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:(?:   .*)?\n)+)", part, re.MULTILINE)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE).strip() for block in found]


def carry_out(command: str, nova: Environment, checkout: Path) -> None:
    """Run a command of the guide for an operator's Nova, as who may write there."""
    line = command.replace("sudo ", "").replace("/opt/nova", str(nova.folder))
    run(["sh", "-ec", line], cwd=checkout)


@pytest.mark.parametrize("command", [*blocks("shell")[:1], FORMER], ids=["the guide's", "the former"])
def test_nothing_of_novas_environment_changes(command: str, nova: Environment, checkout: Path) -> None:
    installed, files = nova.installed(), nova.files()
    carry_out(command, nova, checkout)
    (added,) = nova.installed() - installed
    assert installed <= nova.installed()
    assert added.startswith("vmqos")
    after = nova.files()
    assert {name: after.get(name) for name in files} == files
    assert {re.split(r"[-/]", name)[0] for name in after.keys() - files.keys()} == set(OURS)
    nova.run("-m", "pip", "uninstall", "--yes", "vmqos")
    assert (nova.installed(), nova.files()) == (installed, files)


def test_nova_takes_up_all_that_the_guide_names(nova: Environment, checkout: Path, tmp_path: Path) -> None:
    (options,) = blocks("ini")
    conf = tmp_path / "nova.conf"
    conf.write_text(f"{options}\n[placement]\nauth_type = none\n")
    carry_out(blocks("shell")[0], nova, checkout)
    try:
        filters, weighers, good, bad = nova.run("-W", "ignore", "-c", LOADED, str(conf)).splitlines()[-4:]
    finally:
        nova.run("-m", "pip", "uninstall", "--yes", "vmqos")
    assert filters.split()[-1] == "nova_plugin.scheduler.filters"
    assert "CacheWaysWeigher" in weighers.split() and "RAMWeigher" in weighers.split()
    assert good == "taken"
    assert "hw:cache_ways='two': an integer from 1 up is allowed" in bad
