# SPDX-License-Identifier: Apache-2.0
"""Record the outputs of the guide's page 'A customer says it is slow': one story, on one host.

As root, from the top of the source tree, with ``vmqos[agent,simulator]`` and ``openstacksdk`` installed::

    python doc/record_slow.py

It takes some five minutes. libvirtd, the VMs, the agent and the commands are real. What the counters say is played
(:mod:`tests.functional.insight.playing_simulator`), for a simulated cache has nobody who suffers. Nova is played,
too: a flavor with its extra specs, and the resize, which ends the VM and starts it with what its new flavor promises.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from record_examples import CHECKOUT, Host, record, uuid_of

sys.path.insert(0, str(CHECKOUT))

from tools.lab import processes, vms
from tools.lab.workspace import Workspace

RECORDING = CHECKOUT / "tests" / "unit" / "cli" / "neighbours" / "slow.jsonl"
"""What the verdict of the story follows from; a test replays it."""

VICTIM, CULPRIT = "web-1", "batch-1"
FLAVOR, COPY = "m1.large", "m1.large.cache3"
ON_CACHE_0 = "0"
"""The simulated machine's first cache has the first CPU."""

MIB = 1 << 20
LINE = 64
WIDE = 120
"""Columns of a terminal in which 'vmqos top' has room for what is executed."""
LOOK = 2.0
"""Seconds: ``[telemetry] interval``, as it is unless configured."""
CALM_FOR = 24 * LOOK
WAITED = 15 * LOOK
"""Seconds after which the VM does its work again, and the guide has its reader look whether the resize helped."""

Does = list[Any]
"""What a VM holds (bytes), moves (bytes a second, between two bounds) and executes (events a second)."""


def does(held: float, cycles: float, instructions: float, references: float, misses: float) -> Does:
    """What a VM does that holds so many MiB, by the events a second, in millions. Each miss brings in a line."""
    moves = misses * 1e6 * LINE
    executes = [1e6 * each for each in (cycles, instructions, references, misses)]
    return [int(held * MIB), [0.98 * moves, 1.02 * moves], *executes]


FITS = does(4.2, 3000, 2700, 60, 1.5)
RESTS = does(0.5, 100, 80, 1, 0.08)
CALM, ROBBED = does(7, 4000, 4000, 80, 0.95), does(2, 4000, 2400, 48, 9.4)
QUIET, STREAMS, HELD_BACK = does(1, 400, 300, 2, 0.3), does(8.5, 4000, 1800, 70, 62), does(2.5, 4000, 400, 14, 12)
ALONE = {
    "1": does(1.45, 4000, 2000, 40, 16),
    "2": does(2.9, 4000, 2670, 53.4, 9.6),
    "3": does(4.4, 4000, 3810, 76.2, 2.3),
    "4": does(5.8, 4000, 3920, 78.4, 1.57),
    "5": does(7, 4000, 3980, 79.6, 1),
    "6": does(7.1, 4000, 4000, 80, 0.95),
}
"""The victim by itself, with so many ways of its own."""

STORY = (
    ("db-1", vms.Flavor("c2.cache3", {"hw:cache_ways": "3"}), ON_CACHE_0),
    (VICTIM, vms.Flavor(FLAVOR), ON_CACHE_0),
    (CULPRIT, vms.Flavor("m1.batch"), ON_CACHE_0),
    ("mail-1", vms.Flavor("m1.small"), ON_CACHE_0),
)


class Nova:
    """As much of Nova's API as 'vmqos flavor set' asks: one flavor.

    :ivar specs: its extra specs.
    """

    def __init__(self, flavor: str) -> None:
        self.specs: dict[str, str] = {}
        self._flavor = flavor
        self._id = uuid_of(flavor)

    @contextmanager
    def served(self) -> Iterator[Mapping[str, str]]:
        """Answer on loopback; the environment in which the command finds it."""
        with make_server("127.0.0.1", 0, self._answer, handler_class=_Silent) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
            finally:
                server.shutdown()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        path, method = environ["PATH_INFO"].rstrip("/"), environ["REQUEST_METHOD"]
        if method == "POST" and path.endswith("/os-extra_specs"):
            sent = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            self.specs.update(json.loads(sent)["extra_specs"])
        known: dict[str, Any] = {
            "": {"versions": [_version(environ["HTTP_HOST"])]},
            f"/flavors/{self._id}/os-extra_specs": {"extra_specs": self.specs},
            f"/flavors/{self._id}": {"flavor": self._told()},
            "/flavors/detail": {"flavors": [self._told()]},
            "/flavors": {"flavors": [self._told()]},
        }
        body = json.dumps(known.get(path, {"itemNotFound": {"code": 404, "message": "not here"}})).encode()
        start_response("200 OK" if path in known else "404 Not Found", [("Content-Type", "application/json")])
        return [body]

    def _told(self) -> dict[str, Any]:
        size = {"vcpus": 2, "ram": 4096, "disk": 20, "swap": 0, "rxtx_factor": 1.0}
        return {"id": self._id, "name": self._flavor, "extra_specs": self.specs, **size}


class _Silent(WSGIRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """It says nothing."""


def _version(host: str) -> dict[str, Any]:
    links = [{"rel": "self", "href": f"http://{host}/"}]
    return {"id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1", "links": links}


def play(host: Host, *, is_calm: bool) -> None:
    """Have the VMs do this from now on."""
    story = {"db-1": FITS, "mail-1": RESTS}
    if is_calm:
        now = {**story, VICTIM: CALM, CULPRIT: QUIET}
        told: dict[str, Any] = _by_uuid(now)
    else:
        now = {**story, VICTIM: {**ALONE, "more": ROBBED}, CULPRIT: STREAMS}
        meanwhile = {**story, VICTIM: {**ALONE, "more": CALM}, CULPRIT: HELD_BACK}
        told = {**_by_uuid(now), "limited": {"vm": uuid_of(CULPRIT), "vms": _by_uuid(meanwhile)}}
    file = Path(f"{host.simulator.root}.json")
    new = file.with_suffix(".new")
    new.write_text(json.dumps(told))
    os.replace(new, file)


def _by_uuid(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {uuid_of(name): what for name, what in by_name.items()}


def samples(host: Host) -> int:
    """How many samples there are of the victim's run of now."""
    return len(host.agent.get("/v1/neighbours/samples")["samples"].get(uuid_of(VICTIM), []))


def is_slowed(host: Host) -> bool:
    """Whether there is an event of it."""
    return any(event["state"] == "slowed" for event in host.agent.get("/v1/events")["events"])


def record_verdict(host: Host) -> None:
    """Keep the verdict, and a recording that says the same."""
    for _ in range(20):
        RECORDING.unlink(missing_ok=True)
        host.vmqos("record", "--seconds", "0", "--names", "-o", str(RECORDING))
        said = host.vmqos("neighbours", VICTIM)
        if host.vmqos("replay", str(RECORDING), VICTIM) == said:
            os.chmod(RECORDING, 0o644)
            record("slow-neighbours.txt", said)
            return
        time.sleep(LOOK / 3)
    raise RuntimeError(f"a replay says something else:\n{said}\n{host.vmqos('replay', str(RECORDING), VICTIM)}")


def main() -> None:
    """Play the story, and record."""
    nova = Nova(COPY)
    with Workspace() as workspace, nova.served() as environment:
        os.environ.update(environment)
        host = Host(
            workspace,
            simulator="tests.functional.insight.playing_simulator",
            agent="tests.functional.insight.counting_agent",
        )
        play(host, is_calm=True)
        host.agent.start()
        host.start(STORY)
        processes.wait_until(lambda: samples(host) * LOOK >= CALM_FOR, "samples of a calm time", 120.0)
        play(host, is_calm=False)
        processes.wait_until(lambda: is_slowed(host), "an event", 180.0)
        record("slow-vm-show.txt", host.vmqos("vm", "show", VICTIM))
        record("slow-events.txt", host.vmqos("events", VICTIM))
        record_verdict(host)
        record("slow-top.txt", host.vmqos("top", "--once", width=WIDE))
        record("slow-confirm.txt", host.vmqos("neighbours", VICTIM, "--confirm", answer="y"))
        time.sleep(3 * LOOK)
        record("slow-size.txt", host.vmqos("size", VICTIM, "--from", "1", answer="y"))
        time.sleep(3 * LOOK)
        record("slow-plan.txt", host.vmqos("plan", "--flavor-spec", "hw:cache_ways=3"))
        record("slow-flavor-set.txt", host.vmqos("flavor", "set", COPY, "--cache-ways", "3"))
        connection = host.libvirt.connect()
        vms.remove(connection, uuid_of(VICTIM))
        connection.close()
        processes.wait_until(lambda: not samples(host), "the VM's end", 30.0)
        host.start(((VICTIM, vms.Flavor(COPY, nova.specs), ON_CACHE_0),))
        processes.wait_until(lambda: samples(host) * LOOK >= WAITED, "half a minute", 120.0)
        record("slow-after-vm-show.txt", host.vmqos("vm", "show", VICTIM))
        record("slow-after-neighbours.txt", host.vmqos("neighbours", VICTIM))
        record("slow-after-events.txt", host.vmqos("events", VICTIM))


if __name__ == "__main__":
    main()
