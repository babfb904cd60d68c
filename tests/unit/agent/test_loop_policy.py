# SPDX-License-Identifier: Apache-2.0
"""What the configuration says of ways and classes, as the planner gets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from vmqos.agent.loop import policy_from
from vmqos.allocation import Policy
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.extra_specs import CachePolicy, CacheRequest


def configuration(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    file = tmp_path / "vmqos.conf"
    file.write_text(text)
    return loader.load(["--config-file", str(file)])


def test_without_a_word_in_the_file_the_policy_is_the_planners_own(tmp_path: Path) -> None:
    assert policy_from(configuration(tmp_path, "")) == Policy()


def test_listed_classes_are_read_and_each_counts_once(tmp_path: Path) -> None:
    text = "[allocation]\nshared_classes = ways4, mb50, ways4-mb50, mb50\nother_classes = 3\n"
    found = policy_from(configuration(tmp_path, text))
    cap, half = CacheRequest(4, CachePolicy.SHARED), CacheRequest(bandwidth_percent=50)
    both = CacheRequest(4, CachePolicy.SHARED, bandwidth_percent=50)
    assert (found.shared_classes, found.other_classes) == ((cap, half, both), 3)


@pytest.mark.parametrize("name", ["way4", "mb500", "mbps900", "code1"])
def test_a_class_that_can_not_be_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    conf = configuration(tmp_path, f"[allocation]\nshared_classes = ways4, {name}\n")
    with pytest.raises(
        ConfigurationError, match=rf"\.conf: \[allocation\] shared_classes: '{name}' names no shared class: .+"
    ):
        policy_from(conf)


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ("", False),
        ("check_interval = 100\n", False),
        ("provider_yaml = /etc/nova/provider_config/vmqos.yaml\n", True),
        ("os_cloud = vmqos\n", True),
        ("auth_type = none\n", True),
    ],
)
def test_placement_counts_where_it_is_told(tmp_path: Path, told: str, counts: bool) -> None:
    assert policy_from(configuration(tmp_path, f"[placement]\n{told}")).placement_counts is counts
