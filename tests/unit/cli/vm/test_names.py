# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.vm import names

ODD = "a'\"$(x)`y`; |&<>*?[]{}~#!\\ b:=@\t"


def read_by_bash(words: list[str]) -> list[str]:
    """What a real bash takes words for."""
    # The pattern of a file's name stays as it is where there is no such file, so here it must not be one.
    script = "set -o noglob; printf '%s\\0' " + " ".join(words)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, cwd="/", env={"HOME": "/home"})
    return done.stdout.decode().split("\0")[:-1]


@given(st.lists(st.text(st.sampled_from(ODD.strip() + "é数"), min_size=1, max_size=12), min_size=1, max_size=40))
def test_bash_takes_each_name_for_itself(given_names: list[str]) -> None:
    shown = [names.for_bash(name, "") for name in given_names]
    assert read_by_bash([word for word in shown if word is not None]) == given_names


@pytest.mark.parametrize(
    ("name", "typed", "put"),
    [
        ("web 1", "we", "web\\ 1"),
        ("web 1", "web\\ ", "web\\ 1"),
        ("web 1", "web\\", "web\\ 1"),
        ("web 1", "'we", "web 1"),
        ("web 1", '"we', "web 1"),
        ("web 1", "'web 1'", "web\\ 1"),
        ("web-1", "db", None),
        ("a'b", "'a", None),
        ("a$(x)", '"a', None),
        ("a`x`", '"a', None),
        ("a!b", '"a', None),
        ("a!b", "'a", "a!b"),
        ("a$b", '"a\\$', None),
        ("a:b=c", "a:", "b\\=c"),
        ("a:b=c", "a:b=", "c"),
        ("a:b=c", "a\\:b", "a\\:b\\=c"),
        ("a:b=c", "'a:b", "a:b=c"),
        ("数", "数", "数"),
    ],
)
def test_a_word_goes_on_as_it_was_begun(name: str, typed: str, put: str | None) -> None:
    assert names.for_bash(name, typed) == put


@pytest.mark.parametrize("name", ["", " ", "-rf", "a\nb", "a\tb", "\x1b[2J", "\u202ex", "a\x00b", "x" * 256, "\ud800"])
def test_a_name_that_can_not_be_seen_as_it_is_is_offered_to_nobody(name: str) -> None:
    assert not names.is_safe(name)


def vms(*instance_names: str, **changes: Any) -> dict[str, Any]:
    listed = [
        examples.vm(f"4f2c1a9e-0f0b-4a55-9c1e-{number:012}", name, name=f"instance-{number}", **changes)
        for number, name in enumerate(instance_names)
    ]
    return {"vms": listed}


def test_names_come_first_and_then_the_uuids(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = vms("web 1", "", "$(reboot)", "twin", "twin", "a\x1b[2J")
    ran = run("vm", "names")
    uuids = [vm["uuid"] for vm in agent.answers["/v1/vms"]["vms"]]
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == ["$(reboot)", "instance-1", "web 1", *uuids]
    assert run("vm", "names", "--uuids").out.splitlines() == uuids
    assert run("vm", "names", "--bash=").out.splitlines()[:3] == ["\\$\\(reboot\\)", "instance-1", "web\\ 1"]
    assert run("vm", "names", "--bash=we").out == "web\\ 1\n"
    assert run("vm", "names", "--bash=--x").out == ""


def test_each_flavor_is_offered_once_if_it_can_be_seen_as_it_is(agent: FakeAgent, run: Run) -> None:
    flavors = ["m1.cache", "c2 odd", "m1.cache", "", "\x1b[2J"]
    agent.answers["/v1/vms"] = {
        "vms": [examples.vm(examples.WEB[:-1] + str(number), "web", flavor=name) for number, name in enumerate(flavors)]
    }
    assert run("vm", "names", "--flavors").out == "c2 odd\nm1.cache\n"
    assert run("vm", "names", "--flavors", "--bash=c2").out == "c2\\ odd\n"
    assert run("vm", "names", "--flavors", "--uuids").status == 2


def test_every_name_that_is_offered_names_one_vm(agent: FakeAgent, run: Run) -> None:
    # One VM is called in Nova as another is in libvirt.
    agent.answers["/v1/vms"] = vms("instance-1", "db")
    for name in run("vm", "names").out.splitlines():
        if len(name) < 36:
            assert run("vm", "show", name).err.count("fits") == 0
    assert "instance-1" not in run("vm", "names").out


def test_a_uuid_that_is_none_is_left_out(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": [examples.vm("$(reboot)", "web")]}
    assert run("vm", "names").out == "web\n"


@pytest.mark.parametrize("answer", [b"no JSON", b"[]", b'{"vms": 1}', b""])
def test_an_agent_that_talks_nonsense_is_no_error(answer: bytes, agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = lambda query: ("200 OK", answer)
    ran = run("vm", "names")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_no_agent_is_no_error(run: Run) -> None:
    ran = run("vm", "names")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    ran = run("--config-file", "/nowhere/vmqos.conf", "vm", "names")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
