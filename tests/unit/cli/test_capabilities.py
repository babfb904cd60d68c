# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import subprocess
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli import capabilities
from vmqos.conf.exceptions import NotReadable


def test_a_table_tells_what_info_says(agent: FakeAgent, run: Run) -> None:
    shown = run("capabilities").out
    for words in (
        "8 (CLOSIDs), the default group included",
        "11 ways (mask 7ff) on caches 0, 1, 16 CLOSIDs",
        "a mask has 1 way or more, without gaps",
        "2 of them (mask 600) are filled by I/O devices too",
        "memory bandwidth from 10 % in steps of 10 %",
        "192 (RMIDs)",
        "llc_occupancy",
        "96 KiB",
    ):
        assert words in shown


def test_what_info_does_not_tell_is_told_too(agent: FakeAgent) -> None:
    found: dict[str, Any] = examples.capabilities()
    found["mount_options"] = ["debug"]
    found["caches"]["L3"] |= {
        "size_bytes": 37486592,
        "way_bytes": 3407872,
        "sets": 53248,
        "line_bytes": 64,
        "cdp": "off",
        "io_alloc": {"0": "600", "1": "3"},
    }
    found["bandwidths"]["MB"]["thread_throttle_mode"] = "per-thread"
    found["monitoring"] |= {
        "configurable": ["llc_occupancy"],
        "package_events": ["core_energy"],
        "assign_mode": "mbm_event",
        "assignable_counters": "0=32;1=32",
        "sub_numa_nodes": 4,
    }
    fields = capabilities.describe(found)
    assert fields["Mounted with"] == "debug"
    assert "35.8 MiB each, 3.2 MiB a way, 53248 sets, lines of 64 B" in fields["L3"]
    assert "can be split into code and data (CDP), which the mount option cdp would do" in fields["L3"]
    assert "devices can be confined to some ways (io_alloc): 0=600;1=3" in fields["L3"]
    assert "each is throttled for itself" in fields["MB"]
    assert fields["Counters"] == "llc_occupancy, configurable\ncore_energy, of the package"
    assert fields["Counter assignment"] == "mbm_event, 0=32;1=32 counters"
    assert "4 nodes" in fields["Sub-NUMA clusters"]


def test_a_shell_that_evaluates_the_groups_sets_variables_and_runs_nothing(agent: FakeAgent, run: Run) -> None:
    name = 'x;echo>&2;y=$(echo run>&2)`echo run>&2`"'
    vm = examples.vms()[0] | {"instance_name": name}
    agent.answers["/v1/vms"] = {"vms": [vm]}
    group = examples.control_group(vm["group"], "vm", vms=[vm["uuid"]])
    agent.answers["/v1/groups"] = {"groups": [examples.control_group(vms=[vm["uuid"]]), group]}
    ran = run("capabilities", "-f", "shell")
    assert ran.status == 0 and "vm_x_echo__2_y___echo_run__2__echo_run__2__=" in ran.out
    script = 'eval "$1"; printf %s "$default_group"'
    evaluated = subprocess.run(["sh", "-c", script, "sh", ran.out], capture_output=True, text=True, check=False)
    assert evaluated.stderr == "" and name in evaluated.stdout


def test_json_is_the_agents_own_answer(agent: FakeAgent, run: Run) -> None:
    told = json.loads(run("capabilities", "-f", "json").out)
    assert told == examples.capabilities() | {"groups": [examples.control_group()]}


def test_an_agent_that_tells_of_no_groups_is_understood(agent: FakeAgent, run: Run) -> None:
    del agent.answers["/v1/groups"]
    ran = run("capabilities")
    assert ran.status == 0
    assert "Default group" not in ran.out


def test_amd_masks_may_be_empty_and_sparse() -> None:
    found: dict[str, Any] = examples.capabilities()
    found["caches"]["L3"] |= {"min_cbm_bits": 0, "sparse_masks": True, "shareable_bits": "0", "cache_ids": [3]}
    fields = capabilities.describe(found)
    assert "a mask has 0 ways or more, gaps allowed" in fields["L3"]
    assert "on cache 3," in fields["L3"]
    assert "I/O" not in fields["L3"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"unit": "MBps"}, "memory bandwidth in MB/s (mba_MBps), which the kernel keeps by steps of 10 %"),
        ({"unit": "1/8 GB/s", "min_bandwidth": 0, "bandwidth_gran": 1}, "from 0 in steps of 1; 1 is 1/8 GB/s"),
        ({"unit": "furlongs"}, "memory bandwidth from 10 in steps of 10\n"),
    ],
)
def test_a_bandwidth_is_told_with_its_unit(changed: dict[str, Any], words: str) -> None:
    found: dict[str, Any] = examples.capabilities()
    found["bandwidths"]["MB"] |= changed
    assert words in capabilities.describe(found)["MB"]


def test_an_agent_that_tells_no_unit_is_understood() -> None:
    found: dict[str, Any] = examples.capabilities()
    del found["bandwidths"]["MB"]["unit"]
    assert "memory bandwidth from 10 in steps of 10\n" in capabilities.describe(found)["MB"]


def test_a_host_without_counters_says_so() -> None:
    fields = capabilities.describe(examples.capabilities() | {"monitoring": None})
    assert fields["Monitoring"].startswith("none: ")
    assert "Counters" not in fields


def test_names_from_a_strange_info_directory_are_harmless() -> None:
    found = examples.capabilities()
    found["caches"] = {"L3\x1b[2J": found["caches"]["L3"]}
    found["monitoring"]["events"] = ["x\x07"]
    for title, text in capabilities.describe(found).items():
        assert title.isprintable()
        assert all(line.isprintable() for line in text.split("\n"))


def test_without_an_agent_and_without_resctrl_the_error_is_one_line(run: Run, tmp_path: Any) -> None:
    conf = tmp_path / "vmqos.conf"
    conf.write_text(f"[resctrl]\npath = {tmp_path}/nothing\n")
    ran = run("--config-file", str(conf), "capabilities")
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1


def test_without_an_agent_a_user_who_may_not_read_the_configuration_sees_the_usual_resctrl(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(options: argparse.Namespace) -> None:
        raise NotReadable(["/etc/vmqos/vmqos.conf"])

    looked_at = []
    monkeypatch.setattr("vmqos.cli.common.settings.configuration", unreadable)
    monkeypatch.setattr(
        "vmqos.host.describe.host", lambda conf: looked_at.append(conf.resctrl.path) or examples.capabilities()
    )
    assert run("capabilities").status == 0
    assert looked_at == ["/sys/fs/resctrl"]
