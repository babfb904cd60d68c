# SPDX-License-Identifier: Apache-2.0
"""``vmqos size --flavor NAME``, against an agent that is played; with a real one in tests/functional/insight."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.size.test_size import BASE, REFUSED, SizeAgent
from tests.unit.cli.streams import Stream
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import serving
from vmqos.cli.common import lease
from vmqos.cli.size import leaving, stepping
from vmqos.cli.size.flavor import spread
from vmqos.cli.size.stepping import Room

WEB, DB, BATCH = examples.WEB, examples.DB, examples.BATCH
MASKS = {"0": "3", "1": "3"}
COMMAND = "vmqos flavor set m1.cache --cache-ways 4"


class FlavorAgent(SizeAgent):
    """An agent that lets any VM have more ways than its two, one VM at a time.

    :ivar running: the VMs but for their ways.
    :ivar curves: the share of its references that each VM misses, by ways.
    :ivar moved: what each VM moves while nothing is tried.
    :ivar works: how many references each VM has in 1000 instructions, by ways.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running = [
            examples.vm(WEB, "web-1", masks=MASKS),
            examples.vm(DB, "db-1", masks={"0": "3"}, caches=[0]),
            examples.vm(BATCH, "batch", masks=MASKS),
            examples.vm(examples.PLAIN, "plain", flavor="m1.small", policy=None, ways_requested=None, state="none"),
        ]
        self.curves = {WEB: self.missed, DB: dict.fromkeys(range(2, 6), 0.1), BATCH: {2: 0.6, 3: 0.2, 4: 0.2, 5: 0.2}}
        self.moved: dict[str, float | None] = {WEB: 2e9, DB: 3e9, BATCH: 1e9}
        self.works: dict[str, dict[int, float]] = {}

    @property
    def on_trial(self) -> str:
        """The VM on which something is tried; empty for none."""
        return self.said[-1][1] if self.said and self.said[-1][0] != "DELETE" else ""

    @property
    def tried(self) -> list[str]:
        """The VMs on which something was tried, in this order; each gave back what it had before the next one came."""
        found = [uuid for _, uuid, _ in self.said]
        changes = [at for at in range(1, len(found)) if found[at] != found[at - 1]]
        assert all(self.said[at - 1][0] == "DELETE" for at in [*changes, len(self.said)])
        return [found[at] for at in [0, *changes]] if found else []

    def vms(self) -> list[Any]:
        more = {cache: f"{(1 << self.ways) - 1:x}" for cache in MASKS}
        return [vm | {"masks": more} if vm["uuid"] == self.on_trial else vm for vm in self.running]

    def samples(self, query: dict[str, list[str]]) -> dict[str, Any]:
        uuid = self.on_trial
        if not uuid:
            idle = {"time": 1.0, "occupancy": {}, "counts": None}
            found = super().samples(query)
            return found | {"samples": {one: [idle | {"bandwidth": moved}] for one, moved in self.moved.items()}}
        self.missed, self.work = self.curves[uuid], self.works.get(uuid, {})
        found = super().samples(query)
        return found | {"samples": {uuid: found["samples"][WEB]}}


@pytest.fixture
def flavors(socket: str) -> Iterator[FlavorAgent]:
    agent = FlavorAgent()
    with serving(agent, socket):
        yield agent


def size(run: Run, *arguments: str) -> Any:
    """What the command tells programs."""
    return json.loads(run("size", "--flavor", "m1.cache", "--yes", "-f", "json", *arguments).out)


def test_vms_of_a_flavor_are_sized_one_after_the_other_and_it_is_told_what_the_flavor_needs(
    flavors: FlavorAgent, run: Run
) -> None:
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 0 and flavors.tried == [DB, WEB, BATCH] and flavors.ways == BASE
    needs, of_vms, _, *table, _, costs, gets, command, after = ran.out.splitlines()
    assert needs == "Flavor m1.cache needs 4 ways."
    assert of_vms == ("That is nearly as good as all that were tried, for each of 3 VMs; fewer would do for 2 of them.")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("|")]
    assert rows == [
        ["VM", "Has", "Needs", "Curve, or why there is none"],
        ["db-1", "2", "2", "misses 10.0 % with 2, 10.0 % with 3, 10.0 % with 4, 10.0 % with 5"],
        ["web-1", "2", "4", "misses 90.0 % with 2, 50.0 % with 3, 20.0 % with 4, 18.0 % with 5"],
        ["batch", "2", "3", "misses 60.0 % with 2, 20.0 % with 3, 20.0 % with 4, 20.0 % with 5"],
    ]
    assert costs == (
        "For all 3 VMs of the flavor here, that costs 6 more on L3 cache 0, where 3 are free now; costs 4 more on L3 "
        "cache 1, where 3 are free now."
    )
    assert gets == ("This gives them to new VMs. Those that run get them once resized to another flavor with them:")
    assert command == f"  {COMMAND}"
    assert after.endswith(", all have the ways again that they had.")


def test_the_progress_tells_which_vm_is_next_and_how_much_time_is_left(flavors: FlavorAgent, run: Run) -> None:
    lines = run("size", "--flavor", "m1.cache", "--yes").err.splitlines()
    assert [line for line in lines if not line.endswith("...")] == [
        "3 of the flavor's VMs left, 45 min at most; db-1 is next.",
        "2 of the flavor's VMs left, about 0 s; web-1 is next.",
        "1 of the flavor's VMs left, about 0 s; batch is next.",
    ]
    assert lines[1:5] == [f"db-1 with {ways} ways ..." for ways in (2, 3, 4, 5)]


def test_programs_get_an_object_with_that_of_each_vm(flavors: FlavorAgent, run: Run) -> None:
    told = size(run)
    vms = told.pop("vms")
    assert told.pop("seconds") >= 0
    assert told == {
        "flavor": "m1.cache", "ways": 4, "at_least": False, "has": 2, "first": 2, "part": "", "other_ways": None,
        "more": 2, "fewer_do": 2,
        "running": 3,
        "cost": {"0": 6, "1": 4}, "free": {"0": 3, "1": 3}, "ended": "", "counted": True, "steady": True,
        "extra_spec": "hw:cache_ways=4", "command": COMMAND, "not_sized": [],
    }  # fmt: skip
    alone = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    assert vms[1] | {"seconds": 0} == alone | {"seconds": 0}
    columns = [word for name in ("ways", "cost", "vms", "not_sized") for word in ("-c", name)]
    assert run("size", "--flavor", "m1.cache", "--yes", "-f", "value", *columns).out.splitlines() == [
        "4", "0=6 1=4", f"{DB}=2 {WEB}=4 {BATCH}=3", "",
    ]  # fmt: skip


def test_a_vm_that_can_not_be_sized_is_listed_with_the_reason_and_the_others_go_on(
    flavors: FlavorAgent, run: Run
) -> None:
    flavors.running[2] |= {"state": "pending", "masks": {}, "reason": "needs 2 free ways on cache 0"}
    flavors.refusals = {0: REFUSED}
    told = size(run)
    assert flavors.tried == [DB, WEB] and [one["vm"] for one in told["vms"]] == [WEB]
    assert told["not_sized"] == [
        {"vm": BATCH, "reason": "its promise is pending now: needs 2 free ways on cache 0"},
        {"vm": DB, "reason": REFUSED[1]},
    ]
    assert told["cost"] == {"0": 6, "1": 4}, "what is promised counts, whether it is kept or not"
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 0 and "| batch |   2 | -     | its promise is pending now: needs 2 free ways" in ran.out


def test_a_vm_that_ended_while_others_were_sized_is_told(flavors: FlavorAgent, run: Run) -> None:
    def vms(query: object) -> tuple[str, bytes]:
        there = [vm for vm in flavors.vms() if not flavors.said or vm["uuid"] != WEB]
        return "200 OK", json.dumps({"vms": there}).encode()

    flavors.answers["/v1/vms"] = vms
    told = size(run)
    assert [one["vm"] for one in told["vms"]] == [DB, BATCH]
    assert told["not_sized"][0]["reason"].startswith(f"no running VM has the UUID or name '{WEB}'")


def test_a_vm_that_was_resized_to_another_flavor_while_others_were_sized_is_told(
    flavors: FlavorAgent, run: Run
) -> None:
    first = flavors.vms

    def resized() -> list[Any]:
        return [vm | {"flavor": "m1.other"} if vm["uuid"] == WEB and flavors.said else vm for vm in first()]

    flavors.vms = resized  # type: ignore[method-assign]
    told = size(run)
    assert flavors.tried == [DB, BATCH] and told["ways"] == 3
    assert told["not_sized"] == [{"vm": WEB, "reason": "its flavor is m1.other now"}]


def test_where_no_vm_can_be_sized_the_reasons_are_told_and_nothing_is_asked(flavors: FlavorAgent, run: Run) -> None:
    caches = examples.caches()
    caches[0]["free_ways"] = 0
    flavors.answers["/v1/caches"] = {"caches": caches}
    ran = run("size", "--flavor", "m1.cache")
    assert (ran.status, flavors.said, ran.err) == (1, [], "")
    assert ran.out.startswith("How many ways flavor m1.cache needs is not known: none of its VMs was sized.\n")
    assert ran.out.count("no way is free on L3 cache 0 beside the 2 of") == 3 and "openstack" not in ran.out
    told = size(run)
    assert (told["ways"], told["has"], told["command"], told["cost"], told["vms"]) == (None, None, None, {}, [])


def test_so_many_vms_are_tried_as_the_operator_says_from_the_busiest_to_the_idlest(
    flavors: FlavorAgent, run: Run
) -> None:
    ran = run("size", "--flavor", "m1.cache", "--yes", "--vms", "2")
    assert flavors.tried == [DB, BATCH] and "\nNot tried, for --vms: 1 of its 3 VMs here.\n" in ran.out
    assert "For all 3 VMs of the flavor here, that costs 3 more on L3 cache 0" in ran.out
    flavors.said.clear()
    flavors.moved[DB] = None
    size(run, "--vms", "1")
    assert flavors.tried == [WEB]


@pytest.mark.parametrize(
    ("there", "count", "chosen"),
    [
        (3, 4, [0, 1, 2]),
        (4, 4, [0, 1, 2, 3]),
        (5, 1, [0]),
        (5, 2, [0, 4]),
        (5, 3, [0, 2, 4]),
        (10, 4, [0, 3, 6, 9]),
        (100, 5, [0, 25, 50, 74, 99]),
        (0, 4, []),
    ],
)
def test_the_vms_that_are_tried_lie_evenly_between_both_ends(there: int, count: int, chosen: list[int]) -> None:
    rooms = [Room(examples.vm(str(number), ""), 2, 2, 5, 3) for number in range(there)]
    assert [int(room.vm["uuid"]) for room in spread(rooms, count)] == chosen


def test_ctrl_c_gives_the_ways_back_and_what_was_found_until_then_is_printed(
    flavors: FlavorAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(samples: object) -> bool:
        if flavors.on_trial == BATCH and flavors.ways == 4:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(stepping.law, "is_enough", interrupted)
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 130 and flavors.tried == [DB, WEB, BATCH] and flavors.ways == BASE
    assert ran.out.startswith(
        "Flavor m1.cache needs 4 ways.\nThat is nearly as good as all that were tried, for each of 2 "
    )
    assert "\nNot sized, for it ended early (Ctrl-C): 1 of its 3 VMs here.\n" in ran.out
    assert COMMAND in ran.out and "again that they had" not in ran.out


@pytest.mark.parametrize(
    ("answers", "told"),
    [(7, "vmqos-agent can't answer (HTTP 500): "), (12, "web-1 does not have yet what it had before the trial (")],
    ids=["before a trial", "after it"],
)
def test_an_agent_that_answers_no_more_ends_it_and_what_was_found_until_then_is_printed(
    answers: int, told: str, flavors: FlavorAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = itertools.count(1)

    def vms(query: object) -> tuple[str, bytes]:
        if next(asked) > answers:
            return "500 Internal Server Error", b'{"error": "libvirt hangs"}'
        return "200 OK", json.dumps({"vms": flavors.vms()}).encode()

    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    flavors.answers["/v1/vms"] = vms
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 1 and ran.out.startswith("Flavor m1.cache needs no more than the 2 ways that it has.\n")
    assert f"\nNot sized, for it ended early ({told}" in ran.out and "): 2 of its 3 VMs here.\n" in ran.out
    assert "again that they had" not in ran.out


def test_a_flavor_whose_vms_gain_nothing_has_enough(flavors: FlavorAgent, run: Run) -> None:
    flavors.curves |= dict.fromkeys((WEB, BATCH), flavors.curves[DB])
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.out.startswith("Flavor m1.cache needs no more than the 2 ways that it has.\n")
    assert "\nMore would bring them little. Whether fewer would do is not known: no VM is tried with less" in ran.out
    assert "The extra spec that it needs, and has:\n  hw:cache_ways=2\n" in ran.out
    assert size(run)["command"] == ""


def test_vms_that_were_promised_more_give_some_back(flavors: FlavorAgent, run: Run) -> None:
    flavors.running[0] |= {"ways_requested": 8, "state": "degraded", "reason": "has 2 of 8 ways"}
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert "that frees 3 on L3 cache 0, where 3 are free now; frees 4 on L3 cache 1, where 3 are free now." in ran.out
    assert size(run)["cost"] == {"0": -3, "1": -4}


def test_a_vm_that_does_other_work_meanwhile_does_not_count(flavors: FlavorAgent, run: Run) -> None:
    flavors.works = {WEB: {4: 40.0}}
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 0 and ran.out.startswith(
        "Flavor m1.cache needs 3 ways.\nThat is nearly as good as all that were tried, for each of 2 "
    )
    assert "\nVMs that did other work meanwhile, and don't count: 1.\n" in ran.out
    assert "18.0 % with 5; it did other work meanwhile" in ran.out
    flavors.works = {uuid: {4: 40.0} for uuid in flavors.curves}
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 4 and "\nDo not trust this: each VM that was sized did other work meanwhile." in ran.out


def test_without_a_pmu_the_number_is_called_a_guess(flavors: FlavorAgent, run: Run) -> None:
    flavors.is_counted = False
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 5 and ran.out.startswith("A guess: flavor m1.cache needs 4 ways.\nNothing counts misses")
    assert "moves 100.0 % with 2, 55.6 % with 3, 22.2 % with 4, 20.0 % with 5" in ran.out


def test_each_vm_gets_as_many_ways_as_the_operator_says_at_most(flavors: FlavorAgent, run: Run) -> None:
    told = size(run, "--most", "3")
    assert max(flavors.steps) == 3 and (told["ways"], told["at_least"]) == (3, True)
    ran = run("size", "--flavor", "m1.cache", "--yes", "--most", "2")
    assert ran.status == 1 and ran.out.count("--most 2 is not above the 2 ways that it has") == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "name a VM, or a flavor with --flavor; see 'vmqos help size'"),
        (("web-1", "--flavor", "m1.cache"), "a VM is sized, or those of a --flavor; see 'vmqos help size'"),
        (("web-1", "--vms", "2"), "--vms belongs to --flavor; see 'vmqos help size'"),
        (("--flavor", "c2"), "no VM of the flavor 'c2' runs here; the flavors that do are: m1.cache, m1.small"),
        (("--flavor", "m1.cache"), "nothing was changed: there is no terminal to ask on; say --yes"),
    ],
)
def test_what_can_not_be_asked_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], text: str, flavors: FlavorAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    ran = run("size", *arguments)
    status = 2 if "see 'vmqos help size'" in text else 1
    assert (ran.status, ran.out, flavors.said) == (status, "", []) and text in ran.err


# Flavors without ways of their own.


def without_ways(flavors: FlavorAgent, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Have the VMs of the flavor be without ways of their own."""
    monkeypatch.setattr(leaving, "LONGEST", 0.0)
    flavors.own = set()
    flavors.running = [vm | changes for vm in flavors.running[:3]]
    for uuid, missed in flavors.curves.items():
        flavors.curves[uuid] = {1: 0.95, **missed}


PROMISED_NOTHING = {"policy": None, "ways_requested": None, "masks": {}, "state": "none"}
IN_A_CLASS = {"policy": "shared", "group": "vmqos.shared-ways2"}


def test_vms_of_a_flavor_without_ways_are_sized_if_the_operator_says_with_how_many_to_begin(
    flavors: FlavorAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_ways(flavors, monkeypatch, **PROMISED_NOTHING)
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert (ran.status, flavors.said) == (1, []) and ran.out.count("If it may be, say with how many to begin") == 3
    ran = run("size", "--flavor", "m1.cache", "--yes", "--from", "1")
    assert ran.status == 0 and flavors.tried == [DB, WEB, BATCH] and set(flavors.steps) == {1, 2, 3}
    assert {query.get("may_fill_fewer") for _, _, query in flavors.said if query} == {"true"}
    assert ran.out.startswith("Flavor m1.cache needs 3 ways at least.\n")
    assert "Of each: what it left in other ways" not in ran.out, "what it holds is counted"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ran.out.splitlines() if line.startswith("|")]
    assert [row[:3] for row in rows[1:]] == [
        ["db-1", "-", "2"],
        ["web-1", "-", "3 at least"],
        ["batch", "-", "3 at least"],
    ]
    costs = "costs 9 more on L3 cache 0, where 3 are free now; costs 6 more on L3 cache 1, where 3 are free now."
    assert costs in ran.out and f"\n  {COMMAND.replace('4', '3')}\n" in ran.out
    told = size(run, "--from", "2")
    assert (told["has"], told["first"], told["more"], told["ways"]) == (0, 2, 3, 3)
    assert (told["extra_spec"], told["cost"]) == ("hw:cache_ways=3", {"0": 9, "1": 6})


def test_vms_of_a_flavor_with_a_class_leave_it_without_a_further_word(
    flavors: FlavorAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_ways(flavors, monkeypatch, **IN_A_CLASS)
    ran = run("size", "--flavor", "m1.cache", "--yes")
    assert ran.status == 0 and flavors.tried == [DB, WEB, BATCH] and set(flavors.steps) == {2, 3}
    assert not any("may_fill_fewer" in query for _, _, query in flavors.said)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ran.out.splitlines() if line.startswith("|")]
    assert [row[:2] for row in rows[1:]] == [["db-1", "2 shared"], ["web-1", "2 shared"], ["batch", "2 shared"]]
    assert "costs 9 more on L3 cache 0" in ran.out, "what is shared is no VM's own"
    command = "vmqos flavor set m1.cache --cache-ways 3 --policy exclusive"
    assert f"\n  {command}\n" in ran.out
    assert size(run)["extra_spec"] == "hw:cache_ways=3 hw:cache_policy=exclusive"


@pytest.mark.parametrize(
    ("changes", "will", "meanwhile"),
    [
        (
            PROMISED_NOTHING,
            "VMs of flavor m1.cache will have ways for themselves, 2 and more, one VM after the other, for 45 min",
            "A VM that is promised no ways may fill more than 2 ways now, so it may be slower then. The other VMs "
            "without ways of their own have 2 to 3 ways fewer to fill meanwhile. No VM gets less",
        ),
        (
            IN_A_CLASS,
            "VMs of flavor m1.cache will leave their class and have ways for themselves, 2 and more, one VM after",
            "The other VMs of its class keep theirs. The other VMs without ways of their own have 2 to 3 ways fewer",
        ),
    ],
)
def test_before_vms_of_a_flavor_without_ways_of_its_own_are_sized_it_is_told_who_may_be_slower(
    changes: dict[str, Any],
    will: str,
    meanwhile: str,
    flavors: FlavorAgent,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_ways(flavors, monkeypatch, **changes)
    monkeypatch.setattr(sys, "stdin", Stream("n\n"))
    ran = run("size", "--flavor", "m1.cache", "--from", "2")
    assert (ran.status, flavors.said) == (1, []) and ran.err.startswith(will) and meanwhile in ran.err
