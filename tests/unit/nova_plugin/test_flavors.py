# SPDX-License-Identifier: Apache-2.0
"""Flavors with promises, over Nova's API: the extra specs themselves, and the commands for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from nova import context as nova_context
from nova import objects

from tests.unit.nova_plugin.clouds import Placement
from tests.unit.nova_plugin.nova_api import PREFIX, NovaApi
from tests.unit.nova_plugin.served import served

COUNTED = {"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}
ASKED = {**COUNTED, "trait:CUSTOM_VMQOS_L3_CAT": "required"}
VALIDATING, OLDER = "2.86", "2.85"


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]
Make = Callable[..., str]


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with served(NovaApi()) as url:
        yield f"{url}{PREFIX}"


@pytest.fixture
def vmqos(api: str, placement_url: str, tmp_path: Path) -> Command:
    """Runs ``vmqos flavor``, which finds the cloud in clouds.yaml: ``here`` as administrator, or as somebody else."""

    def described(token: str, placement: str) -> dict[str, object]:
        # The openstacksdk of 2025.1 loses a token that stands in "auth" alone.
        auth = {"endpoint": api, "token": token}
        return {"auth_type": "admin_token", "auth": auth, "token": token, "placement_endpoint_override": placement}

    clouds = {
        "here": described("admin", placement_url),
        "reader": described("reader", placement_url),
        "alone": described("admin", "http://127.0.0.1:1"),
    }
    (tmp_path / "clouds.yaml").write_text(json.dumps({"clouds": clouds}))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment = {**kept, "OS_CLOUD": "here", "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml"), "COLUMNS": "160"}

    def run(*arguments: str) -> Ran:
        words = [sys.executable, "-m", "vmqos.cli.main", "flavor", *arguments]
        ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return run


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes flavors, which are gone after the test; their names."""
    made = []

    def flavor(specs: Mapping[str, str] | None = None, *, name: str = "", public: bool = True) -> str:
        uuid = str(uuid4())
        sizes = {"vcpus": 1, "memory_mb": 64, "root_gb": 0, "ephemeral_gb": 0, "swap": 0, "rxtx_factor": 1.0}
        found = objects.Flavor(
            nova_context.get_admin_context(),
            flavorid=uuid,
            name=name or f"c2.{uuid[:8]}",
            is_public=public,
            disabled=False,
            extra_specs=dict(specs or {}),
            **sizes,
        )
        found.create()
        made.append(found)
        return str(found.name)

    yield flavor
    for found in made:
        found.destroy()


@pytest.fixture
def eight_ways(placement: Placement) -> None:
    """A cloud of a host with eight ways, all of them taken, and one with six."""
    placement.allocate(placement.compute_node(ways=8), 8)
    placement.compute_node(ways=6)


def specs_of(name: str) -> dict[str, str]:
    return dict(objects.Flavor.get_by_name(nova_context.get_admin_context(), name).extra_specs)


def post(api: str, name: str, specs: Mapping[str, str], version: str) -> httpx.Response:
    """What ``openstack flavor set --property`` sends."""
    flavor = objects.Flavor.get_by_name(nova_context.get_admin_context(), name)
    headers = {"OpenStack-API-Version": f"compute {version}"}
    url = f"{api}/flavors/{flavor.flavorid}/os-extra_specs"
    return httpx.post(url, json={"extra_specs": specs}, headers=headers, trust_env=False)


def test_nova_takes_the_keys_from_every_compute_api_version(api: str, make: Make) -> None:
    name = make()
    specs = {"hw:cache_ways": "2", "hw:cache_policy": "shared", "hw:cache_vcpus": "0-3,^2"}
    for version in (OLDER, VALIDATING, "2.100"):
        assert post(api, name, specs, version).status_code == 200
    assert specs_of(name) == specs


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("hw:cache_ways", "two", "an integer from 1 up is allowed"),
        ("hw:cache_policy", "mine", "'exclusive' or 'shared' is allowed"),
        ("hw:cache_vcpus", "3-1", "a list of vCPU numbers (0 to 9999) and ranges"),
        ("hw:mem_bandwidth_percent", "101", "an integer from 1 to 100 is allowed"),
    ],
)
def test_a_bad_value_is_a_400_that_says_what_is_allowed(
    api: str, make: Make, key: str, value: str, allowed: str
) -> None:
    name = make()
    answer = post(api, name, {key: value}, VALIDATING)
    assert answer.status_code == 400
    message = answer.json()["badRequest"]["message"]
    assert message.startswith(f"Validation failed; {key}={value!r}: ")
    assert allowed in message
    assert specs_of(name) == {}


def test_setting_a_promise_asks_placement_for_it_too(vmqos: Command, make: Make) -> None:
    name = make({"hw:cpu_policy": "dedicated"})
    ran = vmqos("set", name, "--cache-ways", "2", "-f", "json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out)["extra_specs"] == {"hw:cache_ways": "2", **ASKED}
    assert specs_of(name) == {"hw:cpu_policy": "dedicated", "hw:cache_ways": "2", **ASKED}


def test_a_promise_can_be_changed_shared_and_removed_again(vmqos: Command, make: Make) -> None:
    name = make({"hw:cpu_policy": "dedicated", "resources1:CUSTOM_LLC_WAYS": "9"})
    assert vmqos("set", name, "--cache-ways", "3").status == 0
    assert specs_of(name) == {
        "hw:cpu_policy": "dedicated",
        "hw:cache_ways": "3",
        **ASKED,
        "resources:CUSTOM_LLC_WAYS": "3",
    }
    assert vmqos("set", name, "--policy", "shared").status == 0
    assert specs_of(name) == {"hw:cpu_policy": "dedicated", "hw:cache_ways": "3", "hw:cache_policy": "shared"}
    assert vmqos("unset", name).status == 0
    assert specs_of(name) == {"hw:cpu_policy": "dedicated"}
    assert vmqos("unset", name).status == 0


def test_with_the_filter_alone_placement_is_not_asked(vmqos: Command, make: Make) -> None:
    name = make({"hw:cache_ways": "2", **ASKED})
    assert vmqos("set", name, "--cache-ways", "4", "--filter-only").status == 0
    assert specs_of(name) == {"hw:cache_ways": "4"}


@pytest.mark.parametrize(
    ("specs", "options", "problem"),
    [
        (
            {},
            ("--policy", "shared"),
            "--policy shared: allowed only together with --cache-ways (hw:cache_ways), or with --code-ways "
            "(hw:cache_code_ways) and --data-ways (hw:cache_data_ways)",
        ),
        ({}, ("--code-ways", "1"), "--code-ways 1: allowed only together with --data-ways (hw:cache_data_ways)"),
        (
            {"hw:mem_bandwidth_percent": "50"},
            ("--bandwidth-mbps", "4000"),
            "--bandwidth-mbps 4000: allowed only instead of --bandwidth-percent (hw:mem_bandwidth_percent), not beside "
            "it; 'vmqos flavor unset' removes what it promises so far",
        ),
        (
            {"hw:l2_cache_ways": "two"},
            ("--cache-ways", "2"),
            "hw:l2_cache_ways='two' (as it is): an integer from 1 up is allowed",
        ),
    ],
)
def test_what_is_no_promise_changes_nothing(
    vmqos: Command, make: Make, specs: Mapping[str, str], options: tuple[str, ...], problem: str
) -> None:
    before = {"hw:cpu_policy": "dedicated", **specs}
    name = make(before)
    ran = vmqos("set", name, *options)
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert f"flavor {name} was not changed: {problem}" in ran.err
    assert specs_of(name) == before


def test_a_shared_promise_asks_for_its_class_once_a_host_keeps_it(
    vmqos: Command, make: Make, placement: Placement
) -> None:
    name = make()
    promise = {"hw:cache_ways": "77", "hw:cache_policy": "shared"}
    ran = vmqos("set", name, "--cache-ways", "77", "--policy", "shared")
    assert ran.status == 0
    assert "no host offers CUSTOM_LLC_SHARED_WAYS77 in Placement" in ran.err
    assert "[allocation] shared_classes" in ran.err
    assert specs_of(name) == promise
    # Placement knows the class from now on, and still no host offers it.
    placement.compute_node(shared={"CUSTOM_LLC_SHARED_WAYS77": False})
    assert "no host offers CUSTOM_LLC_SHARED_WAYS77" in vmqos("set", name, "--policy", "shared").err
    assert specs_of(name) == promise
    placement.compute_node(shared={"CUSTOM_LLC_SHARED_WAYS77": True})
    ran = vmqos("set", name, "--policy", "shared")
    assert (ran.status, ran.err) == (0, "")
    assert specs_of(name) == {
        **promise,
        "trait:CUSTOM_VMQOS_L3_CAT": "required",
        "resources:CUSTOM_LLC_SHARED_WAYS77": "1",
    }
    assert vmqos("check").status == 0
    assert vmqos("unset", name).status == 0
    assert specs_of(name) == {}


@pytest.mark.parametrize(
    ("options", "specs", "asked"),
    [
        (
            ("--code-ways", "2", "--data-ways", "4"),
            {"hw:cache_code_ways": "2", "hw:cache_data_ways": "4"},
            {**COUNTED, "resources:CUSTOM_LLC_WAYS": "6", "trait:CUSTOM_VMQOS_L3_CDP": "required"},
        ),
        (
            ("--l2-ways", "4", "--vcpus", "0"),
            {"hw:l2_cache_ways": "4", "hw:cache_vcpus": "0"},
            {"resources:CUSTOM_LLC_CLASSES": "1", "trait:CUSTOM_VMQOS_L2_CAT": "required"},
        ),
        (("--bandwidth-percent", "45"), {"hw:mem_bandwidth_percent": "45"}, {}),
        (
            ("--bandwidth-mbps", "4000"),
            {"hw:mem_bandwidth_mbps": "4000"},
            {"resources:CUSTOM_LLC_CLASSES": "1", "trait:CUSTOM_VMQOS_MBA_MBPS": "required"},
        ),
    ],
)
def test_every_promise_can_be_set_passes_the_check_and_is_removed_again(
    vmqos: Command, make: Make, options: tuple[str, ...], specs: Mapping[str, str], asked: Mapping[str, str]
) -> None:
    name = make({"hw:cpu_policy": "dedicated"})
    assert vmqos("set", name, *options).status == 0
    assert specs_of(name) == {"hw:cpu_policy": "dedicated", **specs, **asked}
    assert vmqos("check").status == 0
    assert vmqos("unset", name).status == 0
    assert specs_of(name) == {"hw:cpu_policy": "dedicated"}


@pytest.mark.usefixtures("eight_ways")
def test_the_check_finds_every_flavor_that_disagrees_with_itself(vmqos: Command, make: Make) -> None:
    make({"hw:cache_ways": "2", **ASKED})
    make({"hw:cache_ways": "2", "hw:cache_policy": "shared"})
    make({"hw:cpu_policy": "dedicated"})
    unasked = make({"hw:cache_ways": "2"}, name="a.unasked")
    hidden = make({"hw:cache_ways": "3", **ASKED}, name="b.hidden", public=False)
    wrong = make({"hw:cache_ways": "0", **ASKED}, name="c.wrong")
    ran = vmqos("check", "-f", "json")
    assert (ran.status, ran.err) == (1, "")
    found = {row["flavor"]: row["problem"] for row in json.loads(ran.out)}
    assert list(found) == [unasked, hidden, wrong]
    assert "asks Placement for nothing" in found[unasked]
    assert (
        "asks Placement for CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1; the promise takes CUSTOM_LLC_WAYS=3"
        in (found[hidden])
    )
    assert "hw:cache_ways='0'" in found[wrong]

    lines = vmqos("check", "--filter-only", "-f", "csv").out.splitlines()
    assert lines[0] == '"Flavor","ID","Problem"'
    assert [line.split(",")[0] for line in lines[1:]] == [f'"{hidden}"', f'"{wrong}"']


def test_a_cloud_without_a_problem_passes_the_check(vmqos: Command, make: Make) -> None:
    make({"hw:cache_ways": "2", **ASKED})
    ran = vmqos("check")
    assert (ran.status, ran.out) == (0, "Nothing to mend: 1 flavors are fine.\n")
    assert vmqos("check", "-f", "json").out == "[]\n"


# Each of these passed the check once.
MISSED: list[tuple[dict[str, str], str]] = [
    ({"hw_cache_ways": "2"}, "did you mean hw:cache_ways?"),
    ({"hw:cacheways": "2"}, "did you mean hw:cache_ways?"),
    ({"HW:cache_ways": "2"}, "did you mean hw:cache_ways?"),
    ({" hw:cache_ways": "2"}, "did you mean hw:cache_ways?"),
    ({"hw:cache_ways": "2", "hw:cache_mode": "shared", **ASKED}, "did you mean hw:cache_policy?"),
    ({"hw:memory_bandwidth_percent": "50"}, "did you mean hw:mem_bandwidth_percent?"),
    ({"hw:llc_ways": "2"}, "did you mean hw:cache_ways?"),
    (
        {"hw:cache_ways": "2", "resources1:CUSTOM_LLC_WAYS": "2", "resources2:CUSTOM_LLC_CLASSES": "1"},
        "the request groups 1, 2 need group_policy=none",
    ),
    (
        {
            "hw:cache_ways": "2",
            "resources1:VCPU": "1",
            "resources1:CUSTOM_LLC_WAYS": "2",
            "resources1:CUSTOM_LLC_CLASSES": "1",
        },
        "has no VCPU",
    ),
    ({"hw:cache_ways": "2", **ASKED, "trait:CUSTOM_VMQOS_L3_CAT": "forbidden"}, "needs that trait"),
    ({"trait:CUSTOM_VMQOS_L3_CAT": "forbidden"}, "it keeps no server away from any host"),
    ({"trait:CUSTOM_VMQOS_L3_CAT": "required"}, "no host passes"),
    ({"hw:cache_ways": "2", **ASKED, "trait:CUSTOM_VMQOS_L3CAT": "required"}, "vmqos has no such trait"),
    ({"hw:l2_cache_ways": "4", "resources:CUSTOM_LLC_CLASSES": "1"}, "set hw:cpu_policy=dedicated"),
    ({"hw:cache_ways": "9", **ASKED, "resources:CUSTOM_LLC_WAYS": "9"}, "can promise 8 to one server"),
]


@pytest.mark.usefixtures("eight_ways")
def test_the_check_finds_what_passed_once(vmqos: Command, make: Make) -> None:
    made = {make(specs, name=f"c2.{number:03}"): told for number, (specs, told) in enumerate(MISSED)}
    fitting = make({"hw:cache_ways": "8", **ASKED, "resources:CUSTOM_LLC_WAYS": "8"})
    ran = vmqos("check", "-f", "json")
    assert (ran.status, ran.err) == (1, "")
    found = [(row["flavor"], row["problem"]) for row in json.loads(ran.out)]
    assert [flavor for flavor, _ in found] == list(made)
    for flavor, problem in found:
        assert made[flavor] in problem
    assert fitting not in made


def test_the_check_finds_shared_classes_and_traits_that_flavors_ask_for_and_no_host_has(
    vmqos: Command, make: Make, placement: Placement
) -> None:
    placement.compute_node(ways=8, shared={"CUSTOM_LLC_SHARED_WAYS66": True, "CUSTOM_LLC_SHARED_WAYS67": False})
    shared = {
        ways: {
            "hw:cache_ways": ways,
            "hw:cache_policy": "shared",
            f"resources:CUSTOM_LLC_SHARED_WAYS{ways}": "1",
            "trait:CUSTOM_VMQOS_L3_CAT": "required",
        }
        for ways in ("66", "67", "68")
    }
    split = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "1", **COUNTED, "trait:CUSTOM_VMQOS_L3_CDP": "required"}
    made = {ways: make(specs, name=f"c2.{ways}") for ways, specs in shared.items()}
    cdp = make(split, name="c2.split")
    ran = vmqos("check", "-f", "json")
    found = {row["flavor"]: row["problem"] for row in json.loads(ran.out)}
    assert (ran.status, ran.err, list(found)) == (1, "", [made["67"], made["68"], cdp])
    for ways in ("67", "68"):
        assert f"CUSTOM_LLC_SHARED_WAYS{ways}, which no host offers now: name ways{ways} in" in found[made[ways]]
    assert found[cdp] == "requires the trait CUSTOM_VMQOS_L3_CDP, which no host has"


def test_fewer_ways_than_the_smallest_mask_of_any_host_are_found(
    vmqos: Command, make: Make, placement: Placement
) -> None:
    placement.compute_node(ways=8, units=(2, 8))
    placement.compute_node(ways=8, units=(3, 6))
    for ways in "128":
        make({"hw:cache_ways": ways, **ASKED, "resources:CUSTOM_LLC_WAYS": ways}, name=f"c2.{ways}")
    ran = vmqos("check", "-f", "json")
    (row,) = json.loads(ran.out)
    assert row["flavor"] == "c2.1"
    assert row["problem"] == "promises 1 ways; the host with the smallest masks promises no fewer than 2"


@pytest.mark.usefixtures("eight_ways")
@pytest.mark.parametrize(("cloud", "why"), [("reader", "403"), ("alone", "127.0.0.1:1")])
def test_who_may_not_ask_placement_is_told_that_hosts_were_not_checked(
    vmqos: Command, make: Make, cloud: str, why: str
) -> None:
    make({"hw:cache_ways": "9", **ASKED, "resources:CUSTOM_LLC_WAYS": "9"})
    ran = vmqos("check", "-f", "json", "--os-cloud", cloud)
    assert (ran.status, ran.out) == (0, "[]\n")
    ways, asked = ran.err.splitlines()
    assert "it was not checked whether any host has the ways that flavors promise: " in ways and why in ways
    assert "it was not checked whether any host has what flavors ask Placement for: " in asked and why in asked


def test_a_cloud_whose_agents_told_nothing_yet_is_told_that_ways_were_not_checked(vmqos: Command, make: Make) -> None:
    make({"hw:cache_ways": "9", **ASKED, "resources:CUSTOM_LLC_WAYS": "9"})
    ran = vmqos("check", "-f", "json")
    assert (ran.status, ran.out) == (0, "[]\n")
    assert "no host has told Placement of cache ways yet" in ran.err


def test_a_flavor_that_is_not_there_is_one_line_on_stderr(vmqos: Command) -> None:
    for command in (("set", "c9.none", "--cache-ways", "1"), ("unset", "c9.none")):
        ran = vmqos(*command)
        assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
        assert "no flavor with the name or ID 'c9.none'" in ran.err
