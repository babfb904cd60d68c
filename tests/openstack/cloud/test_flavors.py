# SPDX-License-Identifier: Apache-2.0
"""Promises in flavors, set with the openstack command."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.openstack.cloud.cloud import Cloud
from tests.openstack.servers.process import script

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def flavor(cloud: Cloud) -> Iterator[str]:
    """The name of a flavor that promises nothing yet."""
    name = f"flavor-{uuid.uuid4()}"
    made = cloud.api.compute.create_flavor(name=name, ram=64, vcpus=1, disk=0)
    yield name
    cloud.api.compute.delete_flavor(made)


def specs(cloud: Cloud, flavor: str) -> dict[str, str]:
    found = cloud.api.compute.find_flavor(flavor, ignore_missing=False, get_extra_specs=True)
    return dict(found.extra_specs)


def test_nova_takes_a_promise_that_can_be_understood(cloud: Cloud, flavor: str) -> None:
    cloud.client("flavor", "set", flavor, "--property", "hw:cache_ways=2", "--property", "hw:cache_policy=shared")
    assert specs(cloud, flavor) == {"hw:cache_ways": "2", "hw:cache_policy": "shared"}


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("hw:cache_ways=two", "an integer from 1 up is allowed"),
        ("hw:cache_policy=mine", "exclusive"),
        ("hw:mem_bandwidth_percent=101", "100"),
    ],
)
def test_nova_answers_a_bad_value_with_400_and_what_is_allowed(
    cloud: Cloud, flavor: str, given: str, allowed: str
) -> None:
    said = cloud.client("flavor", "set", flavor, "--property", given, fails=True)
    assert "400" in said and given.partition("=")[0] in said and allowed in said
    assert specs(cloud, flavor) == {}


def test_the_command_finds_no_fault_with_flavors_that_it_has_set(cloud: Cloud) -> None:
    cloud.run(script("vmqos"), "flavor", "check")
    assert specs(cloud, "w2") == {
        "hw:cache_ways": "2",
        "resources:CUSTOM_LLC_WAYS": "2",
        "resources:CUSTOM_LLC_CLASSES": "1",
        "trait:CUSTOM_VMQOS_L3_CAT": "required",
    }
