# SPDX-License-Identifier: Apache-2.0
"""What CPUs of a guest really accessed, given to the reference: it must agree with the plugin on each access."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kernel.cachemodel import recorded
from tests.kernel.cachemodel.library import Access, Extra, From, Geometry, Kind, model
from tests.kernel.cachemodel.reference import Reference
from tests.kernel.lab.machines import machine
from tests.kernel.pytest_guest import Run

L2 = 64 << 10
JOB = f"""
import subprocess
from pathlib import Path
from tests.kernel.cachemodel import switch, walkers
root = Path("/sys/fs/resctrl")
subprocess.run(["mount", "-t", "resctrl", "-o", "debug,cdp", "resctrl", root], check=True)
for name, code, data in (("a", "1", "6"), ("b", "10", "7f8")):
    (root / name).mkdir()
    (root / name / "schemata").write_text(f"L3CODE:0={{code}}\\n")
    (root / name / "schemata").write_text(f"L3DATA:0={{data}}\\n")
program = walkers.build(Path("/tmp"))
with walkers.walker(program, 6 << 20, 0, root / "a") as one, walkers.walker(program, 32 << 20, 1, root / "b") as other:
    print(switch.rmid_of(root / "a"), switch.rmid_of(root / "b"))
    switch.turn_on(l2size={L2})
    for order in ("random", "store", "stream"):
        other.begin("stream 150000")
        one.do(order + " 200000")
        other.finish()
    switch.turn_off()
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_reference_agrees_on_what_a_guest_accessed(guest: Run, replay: ctypes.CDLL, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    result = guest.run("cascade-lake", "6.12", "python3 job.py", {"job.py": JOB}, plugin={"trace": trace})
    assert result.status == 0, result.stderr
    one, other = map(int, result.stdout.split())
    ways = machine("cascade-lake").ways
    l3_sets = (16 << 20) // 64 // ways // 64 * 64
    geometry = Geometry(l2_sets=L2 // 64 // 16, l2_ways=16, l3_sets=l3_sets, l3_ways=ways)
    reference = Reference(geometry)
    seen: Counter[tuple[int, Kind, From]] = Counter()
    masks: dict[tuple[int, Kind], set[int]] = {}
    for number, record in enumerate(recorded.read(trace)):
        access = record.access
        if record.served is None:
            reference.flush(access.cpu, access.domain)
            continue
        (expected,) = reference.run([access])
        assert record.served is expected, (number, record)
        seen[access.rmid, access.kind, expected] += 1
        if access.domain == 0:
            masks.setdefault((access.rmid, access.kind), set()).add(access.l3_mask)
    assert sum(seen.values()) > 100_000
    for rmid, code, data in ((one, 0x1, 0x6), (other, 0x10, 0x7F8)):
        assert masks[rmid, Kind.FETCH] == {code}
        assert masks[rmid, Kind.LOAD] == {data}
        assert seen[rmid, Kind.LOAD, From.MEMORY] > 1_000, seen
    assert seen[one, Kind.LOAD, From.L3] > 1_000, seen
    _agree(replay, geometry, recorded.read(trace), reference)


def _agree(
    library: ctypes.CDLL, geometry: Geometry, records: Iterable[recorded.Recorded], reference: Reference
) -> None:
    """On who evicted whom, and on what would be missed with fewer ways, of the accesses that were recorded."""
    cpus, domains, rmids = 4, 2, 32
    with model(library, geometry, cpus=cpus, domains=domains, rmids=rmids, extra=Extra(True, rmids)) as ours:
        part: list[Access] = []
        for record in records:
            if record.served is None:
                ours.run(part)
                part.clear()
                ours.flush(record.access.cpu, record.access.domain)
            else:
                part.append(record.access)
        ours.run(part)
        evicted = {
            (domain, by, of): lines
            for domain in range(domains)
            for by in range(rmids)
            for of in range(rmids)
            if (lines := ours.evicted(by, of, domain))
        }
        assert evicted == reference.evicted
        assert sum(evicted.values()) > 5_000, evicted
        for domain in range(domains):
            for rmid in range(rmids):
                assert ours.curve(rmid, domain) == reference.curve(rmid, domain)
