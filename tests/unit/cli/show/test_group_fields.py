# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.local_api import examples
from tests.unit.local_api.examples import control_group as group
from vmqos.cli.show import group_fields

UUID = "4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"


def test_a_group_tells_whose_it_is_and_what_it_has() -> None:
    fields = group_fields.describe(
        [group(), group(f"vmqos.{UUID}", "vm", vms=[UUID], mode="exclusive", tasks=1)], (), {UUID: "web-1"}
    )
    assert fields["Default group"].splitlines() == [
        "everything else",
        "MB: 0=100",
        "L3: 0=7fc  1=7ff",
        "mode shareable, 12 tasks",
    ]
    assert fields["VM web-1"].splitlines()[0] == f"group vmqos.{UUID}"
    assert "mode exclusive, 1 task, no CPUs" in fields["VM web-1"]


def test_a_vm_that_no_group_shows_is_known_by_the_agent() -> None:
    vms = [vm | {"group": "vmqos.shared-ways2"} for vm in examples.vms()[:1]]
    shown = group_fields.describe([group("vmqos.shared-ways2", "class")], vms, {vms[0]["uuid"]: "shop-1"})
    assert shown["Class ways2"].startswith("group vmqos.shared-ways2\nVMs that share it: shop-1\n")
    alone = group_fields.describe([group("vmqos.shared-ways2", "class")], (), {})
    assert "VMs that share it: none" in alone["Class ways2"]


def test_a_vm_whose_name_nobody_tells_is_shown_by_the_beginning_of_its_uuid() -> None:
    assert f"VM {UUID[:8]}" in group_fields.describe([group(f"vmqos.{UUID}", "vm", vms=[UUID])], (), {})


def test_identifiers_and_monitoring_groups_are_shown_where_the_kernel_tells() -> None:
    inside = [{"name": f"vmqos.{UUID}", "tasks": 1, "cpus": "", "rmid": 5}]
    shown = group_fields.describe([group(closid=0, rmid=0, monitoring_groups=inside)], (), {})["Default group"]
    assert "1 monitoring group\nCLOSID 0, RMID 0, 5" in shown


def test_groups_of_others_and_strange_names_are_harmless() -> None:
    shown = group_fields.describe([group("a\x1b[2J", "foreign", cpus="0-3", tasks=None)], (), {})
    (title, text), *_ = shown.items()
    assert title == r"Group a\x1b[2J"
    assert "left alone" in text
    assert "no tasks, CPUs 0-3" in text


def test_no_limit_is_not_a_number() -> None:
    shown = group_fields.describe([group(schemata={"MB": {"0": "4294967295"}})], (), {})["Default group"]
    assert "MB: 0=unlimited" in shown


def test_many_vms_are_cut() -> None:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(20)]
    shown = group_fields.describe([group(vms=uuids)], (), {uuid: uuid[:8] for uuid in uuids})["Default group"]
    assert shown.splitlines()[0].endswith("0000000b and 8 more")
