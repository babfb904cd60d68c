# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import configparser

import pytest
import yaml

from ceilometer_pollster.meters import EVENT_METERS, METERS, Meter
from tests.unit.ceilometer_pollster.sweeps import GOLD, snapshot, vm
from tests.unit.doc.pages import CHECKOUT
from vmqos.telemetry import Missing, Rates, Reading, rates
from vmqos.telemetry.hardware_events import NAMES as EVENTS

NAMES = [meter.name for meter in METERS]
POLLSTERS = NAMES + [meter.pollster for meter in EVENT_METERS]
BANDWIDTH = Rates(Reading(30.0), Reading(20.0), Reading(10.0), 1.0)
VOLUMES = {
    "cpu_l3_cache": 3000,
    "cpu_l3_cache.ways": 2,
    "cpu_l3_cache.allocated": 5 << 20,
    "memory.bandwidth.total": 30.0,
    "memory.bandwidth.local": 20.0,
    "memory.bandwidth.remote": 10.0,
    "memory.traffic.total": 3000,
    "memory.traffic.local": 3000,
}


def test_each_meter_has_its_own_volume() -> None:
    gold = vm(GOLD, promised=True)
    assert {meter.name: meter.volume(gold, BANDWIDTH) for meter in METERS} == VOLUMES


def test_a_vm_without_a_promise_has_no_ways_rather_than_none_of_them() -> None:
    nothing = {meter.name for meter in METERS if meter.volume(vm(GOLD), BANDWIDTH) is None}
    assert nothing == {"cpu_l3_cache.ways", "cpu_l3_cache.allocated"}


@pytest.mark.parametrize("meter", METERS, ids=NAMES)
def test_a_counter_without_a_number_has_no_volume(meter: Meter) -> None:
    events = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
    blind = vm(GOLD, missing=dict.fromkeys(events, Missing.UNAVAILABLE))
    sweep = snapshot([blind])
    assert meter.volume(blind, rates(sweep, sweep)[GOLD]) is None


def test_each_hardware_event_of_the_agents_has_a_meter() -> None:
    assert tuple(meter.event for meter in EVENT_METERS) == EVENTS


def test_the_entry_points_are_named_as_the_meters_or_so_that_they_are_not_ceilometers() -> None:
    setup = configparser.ConfigParser(delimiters="=")
    setup.read(CHECKOUT / "setup.cfg")
    lines = setup["entry_points"]["ceilometer.poll.compute"].strip().splitlines()
    assert sorted(line.partition("=")[0].strip() for line in lines) == sorted(POLLSTERS)


def test_the_ready_made_files_name_every_meter_and_no_other() -> None:
    polling = yaml.safe_load((CHECKOUT / "etc" / "ceilometer" / "polling.yaml").read_text())
    assert polling["sources"][0]["meters"] == POLLSTERS
    gnocchi = yaml.safe_load((CHECKOUT / "etc" / "gnocchi" / "gnocchi_resources.yaml").read_text())
    assert list(gnocchi["resources"][0]["metrics"]) == NAMES + [meter.name for meter in EVENT_METERS]


def test_gnocchi_keeps_rates_of_what_only_grows() -> None:
    gnocchi = yaml.safe_load((CHECKOUT / "etc" / "gnocchi" / "gnocchi_resources.yaml").read_text())
    policies = gnocchi["resources"][0]["metrics"]
    for meter in (*METERS, *EVENT_METERS):
        rate = (policies[meter.name] or {}).get("archive_policy_name", "").endswith("-rate")
        assert rate == (meter.kind == "cumulative"), meter.name
