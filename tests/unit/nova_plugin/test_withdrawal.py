# SPDX-License-Identifier: Apache-2.0
"""A host whose agent is away, in Placement itself: nothing more is given, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from oslo_config import cfg

from tests.unit.nova_plugin.clouds import LETS_GO, Placement
from vmqos.cli.placement import claim_checks
from vmqos.conf import loader
from vmqos.extra_specs.resources import L3_CAT, LLC_CLASSES, LLC_WAYS, provider_name
from vmqos.host.finding import Status

CLAIM = {LLC_WAYS: 4, LLC_CLASSES: 1}
SHARED = "CUSTOM_LLC_SHARED_WAYS4"


class Host:
    """A compute node with an agent's configuration, and a server that holds four ways."""

    def __init__(self, placement: Placement, placement_url: str, folder: Path) -> None:
        self.http = placement.http
        self.root = placement.compute_node(8, shared={SHARED: True})
        self.name = self.http.get(f"/resource_providers/{self.root}").json()["name"]
        self.file = folder / "vmqos.conf"
        self.file.write_text(
            f"[placement]\nauth_type = admin_token\nendpoint = {placement_url}\ntoken = admin\n"
            f"hypervisor_hostname = {self.name}\n[resctrl]\npath = {folder}/resctrl\n"
        )
        self.server = str(uuid4())
        self.put(self.server, self.cache, CLAIM)
        placement.claimed([self.server])
        self._placement = placement

    @property
    def cache(self) -> str:
        """The UUID of the agent's provider."""
        found = self.http.get("/resource_providers", params={"name": provider_name(self.name)}).json()
        return str(found["resource_providers"][0]["uuid"])

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The agent's configuration."""
        return loader.load(["--config-file", str(self.file)])

    def put(self, consumer: str, provider: str, amounts: dict[str, int]) -> None:
        """Have a consumer hold something."""
        who = {"project_id": "p", "user_id": "u", "consumer_generation": None}
        body = {"allocations": {provider: {"resources": amounts}}, **who}
        self.http.put(f"/allocations/{consumer}", json=body).raise_for_status()

    def inventories(self) -> dict[str, dict[str, int]]:
        """What the provider has."""
        found: dict[str, dict[str, int]] = self.http.get(f"/resource_providers/{self.cache}/inventories").json()[
            "inventories"
        ]
        return found

    def traits(self) -> list[str]:
        """What the host is able to do."""
        found: list[str] = self.http.get(f"/resource_providers/{self.cache}/traits").json()["traits"]
        return found

    def is_offered(self) -> bool:
        """Whether Placement would place another server here, of one way or of a shared class."""
        asked: tuple[dict[str, int], ...] = ({LLC_WAYS: 1, LLC_CLASSES: 1}, {SHARED: 1})
        return any(self.root in self._placement.candidates(amounts) for amounts in asked)

    def move_to_a_migration(self) -> int:
        """Have a migration hold what the server holds, as Nova begins to move a server; the answer's status."""
        found = self.http.get(f"/allocations/{self.server}").json()
        who = {"project_id": "p", "user_id": "u"}
        migration = str(uuid4())
        held = {provider: {"resources": value["resources"]} for provider, value in found["allocations"].items()}
        body = {
            self.server: {"allocations": {}, "consumer_generation": found["consumer_generation"], **who},
            migration: {"allocations": held, "consumer_generation": None, **who},
        }
        status = self.http.post("/allocations", json=body).status_code
        if status == 204:
            self._placement._consumers.remove(self.server)
            self._placement.claimed([migration])
        return status


@pytest.fixture
def host(placement: Placement, placement_url: str, tmp_path: Path) -> Host:
    return Host(placement, placement_url, tmp_path)


@pytest.fixture
def withdraw(host: Host) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs ``vmqos placement withdraw`` there."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(host.file), "placement", "withdraw"]
        return subprocess.run([*words, *arguments], capture_output=True, text=True, check=False, timeout=120)

    yield run


Withdraw = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_withdrawn_host_is_offered_no_more_and_its_server_keeps_what_it_holds(host: Host, withdraw: Withdraw) -> None:
    assert host.is_offered()
    before = host.inventories()
    ran = withdraw("--dry-run")
    assert (ran.returncode, host.inventories()) == (0, before)
    assert f"Would have Placement reserve {LLC_WAYS}=8" in ran.stdout
    ran = withdraw()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{LLC_WAYS}=8" in ran.stdout and f"Servers here still hold {LLC_WAYS}=4" in ran.stdout
    assert host.inventories() == {name: {**value, "reserved": value["total"]} for name, value in before.items()}
    assert L3_CAT not in host.traits() and not host.is_offered()
    assert host.http.get(f"/allocations/{host.server}").json()["allocations"][host.cache]["resources"] == CLAIM
    again = withdraw()
    assert again.returncode == 0 and "already" in again.stdout


def test_a_server_can_be_moved_away_from_a_withdrawn_host(host: Host, withdraw: Withdraw) -> None:
    assert withdraw().returncode == 0
    assert host.move_to_a_migration() == (204 if LETS_GO else 409)


def test_a_host_that_placement_has_no_provider_of_is_nothing_to_withdraw(host: Host, withdraw: Withdraw) -> None:
    host.file.write_text(host.file.read_text().replace(host.name, "nobody"))
    ran = withdraw()
    assert ran.returncode == 0
    assert "Placement has no resource provider nobody_LLC: there is nothing to reserve" in ran.stdout


def test_a_placement_that_is_away_is_a_failure_so_that_systemd_tries_again(host: Host, withdraw: Withdraw) -> None:
    lines = host.file.read_text().splitlines()
    host.file.write_text("\n".join("endpoint = http://127.0.0.1:1" if "endpoint" in line else line for line in lines))
    ran = withdraw()
    assert ran.returncode == 1
    assert "Placement can't be reached" in ran.stderr and len(ran.stderr.splitlines()) == 1


def vm(uuid: str, **fields: object) -> dict[str, object]:
    """A VM as the agent's API tells it."""
    asked = {"policy": "exclusive", "ways_requested": 4, "code_ways_requested": None, "data_ways_requested": None}
    return {"uuid": uuid, "name": f"name-{uuid[:4]}", "l2_ways_requested": None, **asked, **fields}


def test_the_doctor_names_vms_with_a_promise_and_no_claim(host: Host) -> None:
    nothing = {"policy": None, "ways_requested": None, "bandwidth_requested": None}
    capped, plain = vm(str(uuid4()), policy="shared"), vm(str(uuid4()), **nothing)
    (found,) = claim_checks.claims(host.conf, lambda: [vm(host.server), capped, plain])
    assert (found.status, found.detail) == (
        Status.OK,
        "there for all of 1 VM with a promise that Placement counts",
    )
    split = {"ways_requested": 3, "code_ways_requested": 1, "data_ways_requested": 2}
    bare = vm(str(uuid4()), **split)
    (found,) = claim_checks.claims(host.conf, lambda: [vm(host.server), bare])
    assert found.status is Status.WARNING
    assert f"none for 1 VM with a promise ({bare['name']})" in found.detail
    assert found.command.startswith("vmqos placement heal")


def test_the_doctor_takes_a_vm_that_migrates_for_one_with_a_claim(host: Host, placement: Placement) -> None:
    other = placement.compute_node(8)
    child = host.http.get("/resource_providers", params={"in_tree": other}).json()["resource_providers"]
    cache = next(found["uuid"] for found in child if found["uuid"] != other)
    leaving = str(uuid4())
    host.put(leaving, cache, CLAIM)
    placement.claimed([leaving])
    (found,) = claim_checks.claims(host.conf, lambda: [vm(leaving)])
    assert found.status is Status.OK
