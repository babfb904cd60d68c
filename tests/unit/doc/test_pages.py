# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.doc.pages import CHECKOUT, SOURCE, written
from vmqos import extra_specs
from vmqos.allocation import PromiseState
from vmqos.simulator.hardware.profiles import PROFILES

MADE_BY_A_BUILD = ("doc/build/",)


def text_of(*parts: str) -> str:
    return SOURCE.joinpath(*parts).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", written(), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_a_file_of_the_tree_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?:``|`|\()((?:doc|etc|tests|tools)/[^`)\s]*)(?:``|`|\))", page.read_text(encoding="utf-8"))
    missing = [name for name in named if not name.startswith(MADE_BY_A_BUILD) and not (CHECKOUT / name).exists()]
    assert not missing or page.name == "style.rst"


@pytest.mark.parametrize("page", written(), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_a_page_tells_nothing_of_the_machine_it_was_written_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert str(CHECKOUT) not in text and "vmqos-lab" not in text


@pytest.mark.parametrize("example", sorted((SOURCE / "examples").iterdir()), ids=lambda path: path.name)
def test_an_example_is_shown_somewhere_and_tells_nothing_of_the_machine_it_was_recorded_on(example: Path) -> None:
    assert any(f"examples/{example.name}" in page.read_text(encoding="utf-8") for page in written())
    text = example.read_text(encoding="utf-8")
    assert str(CHECKOUT) not in text and "vmqos-lab" not in text and "Traceback" not in text


def test_the_contributors_guide_says_what_each_module_of_a_pass_does() -> None:
    agent = CHECKOUT / "vmqos" / "agent"
    rooms = {path.name for path in agent.iterdir() if (path / "__init__.py").exists()} - {"observe", "act"}
    modules = {path.stem for path in agent.glob("*.py")} - {"__init__", "main"}
    in_rooms = {f"{room}.{path.stem}" for room in ("observe", "act") for path in (agent / room).glob("*.py")}
    explained = set(re.findall(r"``([a-z_.]+)``", text_of("contributor", "data.rst").partition("\nTwo processes\n")[0]))
    assert rooms | modules | {name for name in in_rooms if not name.endswith("__init__")} <= explained


def test_the_guide_tells_of_every_extra_spec() -> None:
    table = text_of("operator", "flavors.rst").partition("list-table::")[2].partition("\nRules\n")[0]
    keys = re.findall(r"^   \* - (.*)$", table, re.MULTILINE)
    assert {name for key in keys for name in re.findall(r"``(hw:\w+)``", key)} == {key.name for key in extra_specs.KEYS}


def test_the_guide_explains_every_state() -> None:
    explained = set(re.findall(r"^   \* - ``(\w+)``$", text_of("operator", "states.rst"), re.MULTILINE))
    assert explained == {state.value for state in PromiseState}


def test_the_guide_lists_every_machine_of_the_simulator() -> None:
    listed = text_of("examples", "simulate-list-profiles.txt").splitlines()
    assert [line.split()[0] for line in listed] == list(PROFILES), "record the examples anew: doc/record_examples.py"


def test_the_api_reference_explains_every_field_that_the_commands_rely_on() -> None:
    from vmqos.local_api import contract

    explained = set(re.findall(r"``([a-z_]+)``", text_of("reference", "http-api.rst")))
    for kind in (
        contract.DetailedVm,
        contract.Cache,
        contract.CacheGroup,
        contract.Task,
        contract.Plan,
        contract.Verdict,
        contract.Event,
        contract.Events,
        contract.HardwareEvents,
        contract.VmHardwareEvents,
        contract.Measured,
        contract.VmSize,
        contract.SizePoint,
    ):
        assert kind.__required_keys__ <= explained, kind.__name__


def test_the_api_reference_explains_every_field_of_health_and_of_what_openstack_is_told() -> None:
    from vmqos.local_api import contract

    explained = set(re.findall(r"``(?:resctrl\.|libvirt\.)?([a-z_]+)``", text_of("reference", "http-api.rst")))
    for kind in (
        contract.Health,
        contract.ResctrlHealth,
        contract.LibvirtHealth,
        contract.PlacementHealth,
        contract.NovaHealth,
        contract.Durations,
        contract.OpenStack,
        contract.Capacity,
        contract.WantedFlavor,
    ):
        fields = kind.__required_keys__ | kind.__optional_keys__
        assert fields <= explained, (kind.__name__, fields - explained)


def test_the_reference_has_every_metric_and_every_word_that_a_label_may_have() -> None:
    from prometheus_client import ProcessCollector
    from prometheus_client.core import CollectorRegistry

    from tests.unit.gateway.answers import EXECUTED, HARDWARE, IN_BYTES, NOTHING_EXECUTED, TOLD, telemetry
    from tests.unit.telemetry.values import HOST, snapshot, vm
    from vmqos.gateway.metrics.agent_answers import PARTS
    from vmqos.gateway.metrics.exposition import HostCollector
    from vmqos.reason import Code
    from vmqos.simulator.hardware.profiles import ENERGY_EVENTS, EXECUTION_EVENTS
    from vmqos.telemetry import EVENTS, GroupReading, Missing, Reading

    in_packages = dict.fromkeys((*ENERGY_EVENTS, *EXECUTION_EVENTS), Reading(1.5))
    nodes = {0: {0: dict.fromkeys(EVENTS, Reading(1))}}
    counted = vm((1, 2, 2), packages={0: in_packages}, nodes=nodes)
    groups = {"": GroupReading("1", counted.caches, counted.packages)}
    found = telemetry(snapshot(counted, host=replace(HOST, caches=counted.caches, groups=groups)))
    registry = CollectorRegistry()
    waits = {**IN_BYTES, "state": "pending", "reason_code": "no-ways"}
    waits["uuid"] = "v"
    hardware = {**HARDWARE, "vms": {"u": EXECUTED, "v": NOTHING_EXECUTED}}
    told_now = replace(TOLD, vms=[*TOLD.vms, waits], telemetry=found, hardware=hardware)
    told_now = replace(told_now, missing=dict.fromkeys(PARTS, "a defect"))
    registry.register(HostCollector(lambda: told_now))
    made = {
        sample.name if metric.type != "histogram" else metric.name
        for metric in registry.collect()
        for sample in metric.samples
    }
    # A monitoring system shows each by itself.
    helps = {metric.documentation for metric in registry.collect()}
    assert not [text for text in helps if re.search(r"^The same,|\b(those|of that)\b|\bthen\.", text)]
    told = set(re.findall(r"``([a-z0-9_-]+)``", text_of("reference", "metrics.rst")))
    assert made <= told and set(PARTS) <= told
    gateways_own = {metric.name for metric in ProcessCollector("vmqos_gateway", registry=None).collect()}
    gateways_own |= {f"{name}_total" for name in gateways_own}
    assert {name for name in told if name.startswith("vmqos_")} <= made | gateways_own | {
        "vmqos_vm_telemetry_missing",
        "vmqos_vm_counter_missing",
        "vmqos_vm_reading_age_seconds",
    }
    assert {code.value for code in Code} <= told
    assert {missing.value for missing in Missing} - {"no-previous", "went-back"} <= told


def test_every_reason_that_the_guide_explains_is_one_that_the_agent_gives() -> None:
    told = re.findall(r"^   \* - ``([^`]{12,})``$", text_of("operator", "states.rst"), re.MULTILINE)
    assert len(told) > 15
    code = " ".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "vmqos").rglob("*.py"))
    # A sentence goes over several literals.
    code = re.sub(r'"\s*\n\s*f?"', "", code)

    def is_given(reason: str) -> bool:
        words = reason.split()
        return any(" ".join(words[at : at + 3]) in code for at in range(len(words) - 2))

    # These two have no three words in a row that are always the same.
    variable = {"has 2 of 4 ways ...", "write ... failed with EINVAL: ..."}
    assert {reason for reason in told if not is_given(reason)} == variable
