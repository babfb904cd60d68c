# SPDX-License-Identifier: Apache-2.0
"""The lab from outside: what a run of tests in guests looks like, and the commands of ``python -m tests.kernel``."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kernel.inside import msr
from tests.kernel.lab import guest as booting
from tests.kernel.lab import remote, trace
from tests.kernel.lab.errors import GuestDied, NoSuchMachine
from tests.kernel.lab.job import CHECKOUT
from tests.kernel.lab.needed_guest import group_of, seconds
from tests.kernel.pytest_guest import Run
from tools import rotation
from tools.lab import processes

pytestmark = pytest.mark.timeout(1800)
"""Seconds. It ends what hangs: some of these boot three guests, each of which takes minutes on a busy machine."""

LAB = (sys.executable, "-m", "tests.kernel")
PATIENCE = 120.0
"""Seconds for what takes one or two on a machine with nothing else to do."""


def test_tests_in_a_guest_are_reported_as_if_they_had_run_here(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    done = _pytest("outcomes.py", "-n", "2", "--dist", "loadgroup", f"--junitxml={report}", f"--guest-out={tmp_path}")
    assert done.returncode == 1, done.stdout
    outcomes = {name.partition("[")[0]: text for name, text in _outcomes(report)}
    assert {name for name, text in outcomes.items() if not text} == {
        "test_passes",
        "test_sees_the_session",
        "test_mounts",
        "test_finds_resctrl_unmounted",
    }
    assert "AssertionError: on purpose" in outcomes["test_fails"]
    assert "assert (6 * 7) == 41" in outcomes["test_fails"]
    assert "RuntimeError: a fixture on purpose" in outcomes["test_has_a_broken_fixture"]
    assert "the test left resctrl mounted" in outcomes["test_leaves_resctrl_mounted"]
    assert "Timeout" in outcomes["test_takes_too_long"]
    left = tmp_path / "milan-kvm-newest"
    assert (left / "out/left").read_text() == "by a test"
    assert "Linux version 7" in (left / "out/dmesg").read_text()
    assert any(write.register == msr.IA32_L3_QOS_MASK_0 for write in trace.read(left / "msr.jsonl"))


@pytest.mark.long
def test_a_guest_that_dies_is_booted_again_then_fails_its_test_and_shows_the_console(tmp_path: Path) -> None:
    done = _pytest("deadly.py", "-v", f"--guest-out={tmp_path}")
    assert re.search(r"test_before\S+ PASSED", done.stdout)
    again = f"the kernel of milan-kvm-6.12 died, and is booted again; see {tmp_path}/milan-kvm-6.12.died"
    # In either test that has it panic for the first time.
    assert f"{again}1" in done.stdout and f"{again}2" in done.stdout and f"{again}3" not in done.stdout
    assert "sysrq triggered crash" in (tmp_path / "milan-kvm-6.12.died1/serial").read_text()
    assert re.search(r"test_panics_once\S+ PASSED", done.stdout)
    assert re.search(r"test_panics\[\S+ FAILED", done.stdout)
    assert "the guest milan-kvm with the kernel 6.12 died" in done.stdout
    assert "Kernel panic - not syncing: sysrq triggered crash" in done.stdout
    assert re.search(r"test_after\S+ ERROR", done.stdout)
    assert "not run: while tests/kernel/samples/deadly.py::test_panics[milan-kvm-6.12] ran" in done.stdout


@pytest.mark.long
def test_a_guest_that_hangs_is_killed_and_fails_its_tests(tmp_path: Path) -> None:
    done = _pytest("hanging.py", "-v", "--guest-grace=5", f"--guest-out={tmp_path}")
    assert re.search(r"test_hangs\S+ FAILED", done.stdout), done.stdout
    assert "the guest milan-kvm with the kernel 6.12 said nothing for 6 s and was killed" in done.stdout
    assert re.search(r"test_after\S+ ERROR", done.stdout)
    assert not list(_emulators(tmp_path))


@pytest.mark.long
def test_a_guest_whose_kernel_hangs_is_booted_again_then_fails_its_test_and_says_so(tmp_path: Path) -> None:
    done = _pytest("stalling.py", "-v", "--guest-grace=30", f"--guest-out={tmp_path}")
    again = f"the kernel of milan-kvm-6.12 hung, and is booted again; see {tmp_path}/milan-kvm-6.12.died"
    assert f"{again}1" in done.stdout and f"{again}2" in done.stdout and f"{again}3" not in done.stdout, done.stdout
    assert re.search(r"test_stalls_once\S+ PASSED", done.stdout)
    assert re.search(r"test_stalls\[\S+ FAILED", done.stdout)
    assert re.search(r"was killed: its kernel hung \(.*rcu: INFO: rcu_", done.stdout)
    assert re.search(r"test_after\S+ ERROR", done.stdout)
    assert not list(_emulators(tmp_path))


@pytest.mark.long
def test_the_first_failure_ends_the_guest_if_asked_to(tmp_path: Path) -> None:
    done = _pytest("outcomes.py", "-x", "-v", "-k", "fails or mounts or too_long", f"--guest-out={tmp_path}")
    assert "stopping after 1 failures" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]
    assert not list(_emulators(tmp_path))


def test_collecting_boots_nothing(tmp_path: Path) -> None:
    done = _pytest("outcomes.py", "--collect-only", "-q", "-k", "session or passes", f"--guest-out={tmp_path}")
    assert "test_sees_the_session[milan-kvm-newest-passes]" in done.stdout
    assert "3/9 tests collected" in done.stdout
    # A guest has a directory there from its start on.
    assert not any(tmp_path.iterdir())


def test_a_machine_that_does_not_exist_is_a_mistake_of_the_test(tmp_path: Path) -> None:
    module = tmp_path / "test_mistaken.py"
    module.write_text("import pytest\npytestmark = pytest.mark.guest(machines='pentium')\ndef test_it(): pass\n")
    done = _pytest(str(module), "-p", "tests.kernel.pytest_guest")
    assert done.returncode != 0
    assert "there is no machine 'pentium'; there are: cascade-lake" in done.stdout + done.stderr


@pytest.mark.long
def test_a_command_in_a_guest_gives_its_output_and_status(tmp_path: Path) -> None:
    script = "echo out; echo err >&2; uname -r; vmqos --version; echo kept >$VMQOS_GUEST_OUT/file; exit 7"
    done = _run("run", "--out", str(tmp_path), "goldmont", "6.12", "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("out\n6.12.")
    assert done.stderr == "err\n"
    assert (tmp_path / "out/file").read_text() == "kept\n"
    assert not (tmp_path / "job.tar").exists()


@pytest.mark.long
def test_a_guest_that_takes_too_long_is_ended(guest: Run, tmp_path: Path) -> None:
    with pytest.raises(GuestDied, match=r"did not end within \d s and was killed"):
        guest.run("milan", "6.12", "sleep 1000", timeout=3)
    assert not list(_emulators(tmp_path))


@pytest.mark.long
def test_a_boot_that_hangs_is_tried_again(guest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booting, "BOOT_PATIENCE", 0.5)
    result = guest.run("milan", "6.12", "echo up")
    assert result.stdout == "up\n"
    assert sorted(path.name for path in result.path.glob("serial*")) == ["serial", "serial.hung1", "serial.hung2"]


@pytest.mark.long
def test_python_is_compiled_once_and_never_taken_for_another_sources(guest: Run) -> None:
    ours = os.urandom(8).hex()

    def says(value: int) -> str:
        files = {"mine.py": f"VALUE = {value}  # {ours}\n"}
        script = "test ! -e __pycache__/mine.*.pyc || echo compiled; python3 -c 'import mine; print(mine.VALUE)'"
        return guest.run("milan-kvm", "6.12", script, files).stdout

    assert [says(value) for value in (1, 2, 1)] == ["1\n", "2\n", "compiled\n1\n"]


def test_names_that_do_not_exist_are_told(guest: Run) -> None:
    with pytest.raises(NoSuchMachine, match=r"no kernel '5\.4'; there are: 6\.12, newest"):
        guest.run("milan", "5.4", "true")
    assert "invalid choice: 'pentium'" in _run("run", "pentium", "6.12", "--", "true").stderr


def test_a_guest_dies_with_whoever_started_it(tmp_path: Path) -> None:
    runner = subprocess.Popen(
        [*LAB, "run", "--out", str(tmp_path), "milan", "6.12", "--", "sleep", "1000"], cwd=CHECKOUT
    )
    try:
        processes.wait_until(lambda: bool(list(_emulators(tmp_path))), "the guest's start", PATIENCE)
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
    processes.wait_until(lambda: not list(_emulators(tmp_path)), "the guest's end", PATIENCE)


@pytest.mark.long
def test_a_shell_talks_to_the_terminal() -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(CHECKOUT)
        os.execv(sys.executable, [*LAB, "shell", "milan-kvm"])
    try:
        _expect(terminal, b"exit powers off")
        os.write(terminal, b"echo $((6*7))+$(stat -c %T -f /)\r")
        _expect(terminal, b"42+ext")
        os.write(terminal, b"exit 3\r")
        _expect(terminal, None)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 3


def _expect(terminal: int, text: bytes | None, timeout: float = 600.0) -> None:
    """Read until ``text`` comes, or the end if that is ``None``."""
    seen = b""
    end = time.monotonic() + timeout
    while text is None or text not in seen:
        if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(f"no {text!r} in: {seen[-2000:].decode(errors='replace')}")
        try:
            data = os.read(terminal, 4096)
        except OSError:  # EIO: the other end is closed.
            data = b""
        if not data:
            assert text is None, seen[-2000:].decode(errors="replace")
            return
        seen += data


def test_each_part_that_has_tests_is_a_rung_of_ci() -> None:
    rungs = [rung for rung in (*rotation.EACH_RUN, *rotation.IN_TURNS) if rung.environment == "kernel"]
    (suites,) = {rung.arguments[1:] for rung in rungs}
    plugin = """if True:
        import sys
        import pytest
        from tests.kernel.lab.needed_guest import part_of

        class Parts:
            def pytest_collection_finish(self, session):
                for item in session.items:
                    print("part", part_of(item.nodeid, is_long=item.get_closest_marker("long") is not None))

        sys.exit(pytest.main(sys.argv[1:], plugins=[Parts()]))
    """
    done = _python("-c", plugin, "-p", "no:cacheprovider", "--collect-only", "-q", "-s", *suites)
    assert done.returncode == 0, done.stdout
    found = {line.removeprefix("part ") for line in done.stdout.splitlines() if line.startswith("part ")}
    assert found == {rung.part for rung in rungs}


def test_a_part_that_does_not_exist_is_told() -> None:
    done = _pytest("outcomes.py", "--collect-only", "-q", "--guests=pentium")
    assert done.returncode != 0 and "there is no part pentium; there are: core, long" in done.stdout + done.stderr


def test_the_core_guests_leave_out_what_is_for_others() -> None:
    module = str(CHECKOUT / "tests/kernel/agent/test_l2.py")
    every, core = (_pytest(module, "--collect-only", "-q", *options).stdout for options in ((), ("--core-guests",)))
    assert "goldmont-6.12" in every and "sapphire-rapids-newest" in every
    assert "goldmont-6.12" in core and "sapphire-rapids" not in core
    assert "deselected" in core


def test_the_guest_that_takes_longest_goes_first_and_what_needs_none_last() -> None:
    resctrl = [f"tests/conformance/cases/test_groups.py::test_{number}[milan-6.12-kernel-L3]" for number in range(9)]
    agent = ["tests/kernel/agent/test_lock.py::test_it[cascade-lake-6.12]"]
    lasts = seconds([*resctrl, *agent, "tests/kernel/test_lab.py::test_it"])
    assert lasts["cascade-lake-6.12"] > lasts["milan-6.12"] > lasts[None] > 0
    real_vms = "tests/kernel/agent/test_threads.py::test_it[milan-kvm-6.12]"
    assert seconds([*agent, real_vms])["milan-kvm-6.12"] > lasts["cascade-lake-6.12"]
    collected = _pytest(str(CHECKOUT / "tests/kernel"), "--collect-only", "-q", "--core-guests").stdout.splitlines()
    found = [line for line in collected if "::" in line]
    lasts = seconds(found)
    expected = sorted(lasts, key=lambda guest: (guest is None, -lasts[guest]))
    assert expected[-1] is None and list(dict.fromkeys(map(group_of, found))) == expected


def test_one_worker_runs_all_tests_of_a_module_that_boots_one_guest() -> None:
    from tests.kernel.lab.scheduling import GuestScheduling

    module = CHECKOUT / "tests/kernel/units/test_units.py"
    collected = _pytest(str(module), "--collect-only", "-q").stdout.splitlines()
    found = [line for line in collected if "::" in line]
    assert len(found) > 1
    scheduling = GuestScheduling.__new__(GuestScheduling)
    assert len({scheduling._split_scope(nodeid) for nodeid in found}) == 1


def test_the_core_guests_leave_out_what_is_long() -> None:
    long, short = "test_threads_of_a_block_job_are_born_in_the_group", "test_vhost_workers_are_born_in_the_group"
    module = str(CHECKOUT / "tests/kernel/agent/test_threads.py")
    every, core = (_pytest(module, "--collect-only", "-q", *options).stdout for options in ((), ("--core-guests",)))
    assert f"::{long}[" in every and f"::{long}[" not in core
    assert f"::{short}[" in core


def test_the_settings_of_random_trouble_choose_its_tests_and_go_into_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMQOS_TROUBLE_SEED", "7")
    monkeypatch.setenv("VMQOS_TROUBLE_STORIES", "2")
    module = str(CHECKOUT / "tests/kernel/agent/trouble/test_trouble.py")
    options = (), ("--guests=cascade-lake-6.12",)
    every, short = (_pytest(module, "--collect-only", "-q", *one).stdout for one in options)
    assert re.findall(r"\[cascade-lake-6\.12-(\d+)\]", every) == ["7", "8"]
    assert "[cascade-lake" not in short, "it is long"
    assert {"VMQOS_TROUBLE_SEED=7", "VMQOS_TROUBLE_STORIES=2"} <= set(remote._settings().split())


def test_an_environment_without_xdist_collects_tests_too() -> None:
    program = """if True:
        import pytest, sys

        class Without:
            def find_spec(name, path, target=None):
                if name.partition(".")[0] == "xdist":
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Without)
        sys.exit(pytest.main(sys.argv[1:]))
    """
    without = ("--assert=plain", "-p", "no:xdist", "-p", "no:xdist.looponfail", "-p", "no:cacheprovider")
    module = CHECKOUT / "tests/kernel/agent/test_lock.py"
    done = _python("-c", program, *without, "--collect-only", "-q", str(module))
    assert done.returncode == 0, done.stdout
    assert "[cascade-lake-6.12]" in done.stdout


def _pytest(module: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = module if module.startswith("/") else f"tests/kernel/samples/{module}"
    return _python("-m", "pytest", "-p", "no:cacheprovider", *options, path)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    # The outer session's settings for workers of pytest-xdist are not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False)


def _outcomes(report: Path) -> Iterator[tuple[str, str]]:
    """Each test's name, and the text of what went wrong."""
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [
            f"{child.get('message')} {child.text}" for child in case if child.tag in ("failure", "error", "skipped")
        ]
        yield case.get("name", ""), " ".join(wrong)


def _emulators(path: Path) -> Iterator[int]:
    """The QEMUs that write below ``path``."""
    for pid in processes.all_pids():
        program, *arguments = processes.arguments(pid) or [""]
        # What is about to be a QEMU (setpriv, sh) has its arguments already.
        is_qemu = "/ld-linux" in program and any(one.endswith("qemu-system-x86_64") for one in arguments)
        if is_qemu and any(str(path) in one for one in arguments):
            yield pid
