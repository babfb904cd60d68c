# SPDX-License-Identifier: Apache-2.0
"""The plugin of pytest that runs tests inside guests; ``tests/conftest.py`` loads it.

::

    pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

    def test_a_group_can_be_made(mount_resctrl, guest_machine):
        root = mount_resctrl()
        (root / "group").mkdir()

Each test of the module becomes one per machine and kernel, ``test_a_group_can_be_made[cascade-lake-6.12]``. Outside,
running them boots one guest for all that are of one machine and kernel; inside, they are plain tests, run as root.

What boots guests is imported only where it is used, for inside this plugin is loaded too, by a slow processor.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.kernel.lab import machines
from tests.kernel.lab.errors import LabError, NoSuchMachine
from tests.kernel.lab.machines import Machine
from tests.kernel.lab.pair import INSIDE, Pair

if TYPE_CHECKING:
    from tests.kernel.lab.guest import Result

RESCTRL = Path("/sys/fs/resctrl")
MARKER = (
    "guest(machines, kernels=('6.12', 'newest')): run in a guest of each machine with each kernel; "
    "guest(pairs=('milan-6.12',)): of these"
)


@dataclass(frozen=True, slots=True)
class GuestMachine:
    """Where a test runs.

    :ivar machine: what was booted.
    :ivar kernel: ``6.12`` or ``newest``.
    """

    machine: Machine
    kernel: str

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def ways(self) -> int:
        """Bits of an L3 mask."""
        return self.machine.ways

    @property
    def release(self) -> tuple[int, int]:
        """The kernel's version, such as ``(6, 12)``."""
        major, minor = os.uname().release.split(".")[:2]
        return int(major), int(minor)


class MountResctrl(Protocol):
    """Mount resctrl.

    :param options: such as ``cdp,mba_MBps``.
    :returns: where it is.
    :raises OSError: if the kernel refuses; the message is mount's.
    """

    def __call__(self, options: str = ...) -> Path: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("guests")
    group.addoption("--guest-out", metavar="DIR", help="keep what the guests left, in DIR/MACHINE-KERNEL")
    group.addoption(
        "--guest-grace",
        metavar="S",
        type=float,
        default=60.0,
        help="seconds that a guest may stay silent over a test's own time limit before it is killed (default: 60)",
    )

    group.addoption(
        "--guests",
        metavar="PART",
        action="append",
        default=[],
        help="run only this part of the tests, which may be a guest, such as milan-6.12. The part core is "
        f"{', '.join(machines.CORE)} and what needs no guest, and of both only what is not marked as long; the part "
        "long is the rest of what needs no guest, and long-cascade-lake-6.12 the rest of that guest. May be given more "
        "than once",
    )
    group.addoption(
        "--core-guests",
        dest="guests",
        action="append_const",
        const=machines.CORE_PART,
        help="short for --guests=core",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from tests.kernel.lab import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line(
        "markers", "long: takes more time of a guest than CI has each time, so --guests=core leaves it out"
    )
    # pytest-xdist's, which the guests don't have.
    config.addinivalue_line("markers", "xdist_group(name): tests of one group run in one worker")
    if INSIDE is None:
        from tests.kernel.lab.remote import RemoteItems
        from tests.kernel.lab.spent import Spent

        config.pluginmanager.register(RemoteItems(config), "guest-remote-items")
        config.pluginmanager.register(Spent(), "guest-spent")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have all tests of a guest run by one worker.

    pytest-xdist's own ``loadgroup`` would do it by the mark ``xdist_group``, but with pytest 9.2 it no longer does.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.kernel.lab.scheduling import GuestScheduling

    # It would put the guest with the most tests first; they come in the order of the time that they take.
    config.option.loadscopereorder = False
    return GuestScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out what ``--guests`` leaves out, and, whatever others sort by, begin with the longest guest."""
    yield
    if INSIDE is not None:
        return
    from tests.kernel.lab.needed_guest import group_of, part_of, seconds

    if parts := config.getoption("--guests"):
        if unknown := set(parts) - set(machines.PARTS):
            told = f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(machines.PARTS)}"
            raise pytest.UsageError(f"--guests: {told}")
        is_long = {item: item.get_closest_marker("long") is not None for item in items}
        others = [item for item in items if part_of(item.nodeid, is_long=is_long[item]) not in parts]
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
    lasts = seconds(item.nodeid for item in items)
    # What needs no guest comes last: it is many short tests, which fill what time there is until the last guest ends.
    groups = {item: group_of(item.nodeid) for item in items}
    items.sort(key=lambda item: (groups[item] is None, -lasts[groups[item]]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("guest")
    if marker is None:
        return
    pairs = _pairs(*marker.args, **marker.kwargs)
    if INSIDE is not None:
        pairs = [pair for pair in pairs if pair == INSIDE]
    if "guest_machine" not in metafunc.fixturenames:
        metafunc.fixturenames.append("guest_machine")
    metafunc.parametrize(
        "guest_machine",
        [pytest.param(pair, id=str(pair), marks=pytest.mark.xdist_group(pair.group)) for pair in pairs],
        indirect=True,
        scope="session",
    )


def _pairs(
    machines_: tuple[str, ...] | str = (),
    kernels: tuple[str, ...] | str = machines.KERNELS,
    pairs: tuple[str, ...] = (),
    **named: Any,
) -> list[Pair]:
    wanted = named.pop("machines", machines_)
    if named or bool(wanted) == bool(pairs):
        raise pytest.UsageError(f"mark tests with {MARKER}")
    try:
        if pairs:
            return [_pair(*pair.rpartition("-")[::2]) for pair in pairs]
        return [
            _pair(name, kernel)
            for name in ((wanted,) if isinstance(wanted, str) else wanted)
            for kernel in ((kernels,) if isinstance(kernels, str) else kernels)
        ]
    except NoSuchMachine as error:
        raise pytest.UsageError(str(error)) from None


def _pair(machine: str, kernel: str) -> Pair:
    return Pair(machines.machine(machine).name, machines.kernel(kernel))


@pytest.fixture(scope="session")
def guest_machine(request: pytest.FixtureRequest) -> GuestMachine:
    """Where a marked test runs: see :class:`GuestMachine`."""
    pair: Pair = request.param
    return GuestMachine(machines.machine(pair.machine), pair.kernel)


@pytest.fixture(autouse=True)
def _resctrl_left_unmounted(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves resctrl mounted fails, and does not spoil the next one's start."""
    yield
    if INSIDE is not None and _mounted():
        while _mounted():
            subprocess.run(["umount", RESCTRL], check=True)
        pytest.fail("the test left resctrl mounted", pytrace=False)


@pytest.fixture
def mount_resctrl() -> Iterator[MountResctrl]:
    """See :class:`MountResctrl`; undone at the test's end."""

    def mount(options: str = "") -> Path:
        command = ["mount", "-t", "resctrl", *(["-o", options] if options else []), "resctrl", str(RESCTRL)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
        return RESCTRL

    yield mount
    while _mounted():
        subprocess.run(["umount", RESCTRL], check=True)


def _mounted() -> bool:
    return any(line.split()[2] == "resctrl" for line in Path("/proc/mounts").read_text().splitlines())


class Run:
    """Boots guests for a test that is not run in one; see :func:`guest`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def run(
        self,
        machine: str,
        kernel: str,
        script: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        timeout: float = 900.0,
        before_systemd: str = "",
        **options: Any,
    ) -> Result:
        """Boot a guest, run a shell script in it as root, in the project's tree, and collect what it left.

        :param machine: one of :data:`tests.kernel.lab.machines.MACHINES`.
        :param kernel: ``6.12`` or ``newest``.
        :param files: more files, by path in the tree.
        :param timeout: seconds, for the script. It ends what hangs: an emulated machine on a busy one takes minutes.
        :param before_systemd: see :class:`tests.kernel.lab.job.Job`.
        :param options: of :class:`tests.kernel.lab.guest.Guest`: ``append``, ``plugin``.
        :raises GuestDied: if there is no result.
        """
        from tests.kernel.lab import guest as guests
        from tests.kernel.lab.job import Job

        self._count += 1
        path = self._path / f"{machine}-{machines.kernel(kernel)}-{self._count}"
        job = Job(script, files or {}, before_systemd=before_systemd)
        return guests.run(machines.machine(machine), kernel, job, path, timeout, **options)


@pytest.fixture
def guest(tmp_path: Path) -> Run:
    """For a test outside that boots guests with jobs of its own: see :meth:`Run.run`."""
    if INSIDE is not None:
        raise LabError("there are no guests inside a guest: don't use the fixture 'guest' in a test marked 'guest'")
    return Run(tmp_path)
