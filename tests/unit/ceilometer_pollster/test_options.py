# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

from oslo_config import cfg

from ceilometer_pollster import options
from tests.unit.doc.pages import CHECKOUT


def test_resctrl_is_at_its_usual_place_unless_ceilometer_conf_says_otherwise(tmp_path) -> None:
    file = tmp_path / "ceilometer.conf"
    for text, path in (("", "/sys/fs/resctrl"), ("[vmqos]\nresctrl_path = /elsewhere\n", "/elsewhere")):
        file.write_text(text)
        conf = cfg.ConfigOpts()
        conf(["--config-file", str(file)])
        # Once for each meter.
        options.register(conf)
        options.register(conf)
        assert conf.vmqos.resctrl_path == path


def test_the_agent_is_asked_where_it_answers_unless_ceilometer_conf_says_otherwise() -> None:
    from vmqos.conf import loader

    conf = cfg.ConfigOpts()
    conf([])
    options.register(conf)
    assert conf.vmqos.agent_socket == loader.load([]).api.socket


def test_the_sample_names_every_option_with_its_default_and_sets_none() -> None:
    text = (CHECKOUT / "etc" / "ceilometer" / "ceilometer.conf.sample").read_text()
    (section,) = re.findall(r"^\[vmqos\]\n(.*?)^\[", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^#(\w+) = (.*)$", section, re.MULTILINE)
    assert named == [(option.name, option.default) for option in options.OPTIONS]
    assert not re.findall(r"^\w+ =", text, re.MULTILINE)
