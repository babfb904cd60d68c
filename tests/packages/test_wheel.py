# SPDX-License-Identifier: Apache-2.0
"""The wheel and the sdist: their version, what is in them, and that they need no checkout to run."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.conftest import MakeAgent, MakeVm, Pace, WaitFor
from tests.packages import tree
from tools.lab.program import Program
from tools.lab.unix_http import UnixConnection
from tools.lab.workspace import CHECKOUT

PROGRAMS = {"vmqos.agent.main": "vmqos-agent", "vmqos.gateway.main": "vmqos-gateway"}


def release() -> str:
    """The version that ``setup.cfg`` names."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg")
    return parser["metadata"]["version"]


def build(folder: Path, *words: str, into: Path) -> list[str]:
    """Build a tree with what this environment has, and name what was made."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--outdir={into}", *words, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return sorted(file.name for file in into.iterdir())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as an archive of it has it, without git."""
    return tree.copy_to(tmp_path_factory.mktemp("archive") / "tree")


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a repository, whose commit has the tag of the release."""
    folder = tree.copy_to(tmp_path_factory.mktemp("tagged") / "tree")
    tree.commit(folder)
    tree.git(folder, "tag", "--annotate", "--message", "Release", release())
    return folder


@pytest.fixture(scope="module")
def dist(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release: an sdist of the tag, and a wheel of that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    names = build(tagged, into=folder)
    assert names == [f"vmqos-{release()}-py3-none-any.whl", f"vmqos-{release()}.tar.gz"]
    return folder


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"])
def installed(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that vmqos was installed into; what vmqos needs, it sees in this one, and no checkout."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    # Up to 3.11, venv brings a setuptools of its own, which knows no wheels. Later there is none to uninstall.
    subprocess.run([folder / "bin/python", "-m", "pip", "uninstall", "--yes", "--quiet", "setuptools"], check=True)
    (own,) = folder.glob("lib/python*/site-packages")
    # A directory that is added so has its own .pth files left alone, by which this environment sees the checkout.
    (own / "needed.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    (file,) = dist.glob(request.param)
    pip = [folder / "bin/python", "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", file]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(*command: str | Path) -> str:
    """What a program prints that is started where no checkout is."""
    done = subprocess.run(command, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_tree_without_git_is_the_release_that_setup_cfg_names(archive: Path, tmp_path: Path) -> None:
    assert build(archive, "--wheel", into=tmp_path) == [f"vmqos-{release()}-py3-none-any.whl"]


def test_a_commit_without_a_tag_is_on_the_way_to_that_release(tmp_path: Path) -> None:
    folder = tree.copy_to(tmp_path / "tree")
    tree.commit(folder)
    (name,) = build(folder, "--wheel", into=tmp_path / "dist")
    assert re.fullmatch(rf"vmqos-{re.escape(release())}\.dev\d+-py3-none-any\.whl", name)


def test_a_clone_of_one_commit_is_the_release_too(tmp_path: Path) -> None:
    folder = tree.copy_to(tmp_path / "tree")
    tree.commit(folder)
    tree.git(tmp_path, "clone", "--quiet", "--depth=1", folder.as_uri(), "shallow")
    assert build(tmp_path / "shallow", "--wheel", into=tmp_path / "dist") == [f"vmqos-{release()}-py3-none-any.whl"]


def test_a_wheel_has_the_same_files_with_git_from_an_sdist_and_from_an_archive(
    archive: Path, tagged: Path, dist: Path, tmp_path: Path
) -> None:
    build(archive, "--wheel", into=tmp_path / "archive")
    build(tagged, "--wheel", into=tmp_path / "tagged")
    has = []
    for folder in (dist, tmp_path / "archive", tmp_path / "tagged"):
        (wheel,) = folder.glob("*.whl")
        # pbr.json says which commit it was.
        has.append({name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/pbr.json")})
    assert has[0] == has[1] == has[2]
    packages = {name.split("/")[0] for name in has[0] if ".data/" not in name and ".dist-info/" not in name}
    assert packages == {"vmqos", "nova_plugin", "ceilometer_pollster", "watcher_plugin"}


def test_the_sdist_has_all_that_is_committed(tagged: Path, dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        has = {name.partition("/")[2] for name in file.getnames()}
    committed = set(tree.git(tagged, "ls-files").split())
    # They are git's own.
    assert {name for name in committed - has if not name.endswith(".gitignore")} == set()


def test_the_programs_say_the_releases_version(installed: Path) -> None:
    for program in ("vmqos", "vmqos-agent", "vmqos-gateway"):
        assert run(installed / "bin" / program, "--version").split()[-1] == release()


def test_what_a_command_reads_of_the_package_is_there(installed: Path, tmp_path: Path) -> None:
    assert "cascade-lake" in run(installed / "bin/vmqos", "simulate", "--list-profiles")
    resources = tmp_path / "gnocchi_resources.yaml"
    resources.write_text("resources:\n  - resource_type: instance\n    metrics:\n      cpu:\n")
    assert "+      cpu_l3_cache:" in run(installed / "bin/vmqos", "gnocchi-resources", "merge", resources)
    assert (installed / "etc/vmqos/vmqos.conf.sample").exists()
    assert (installed / "lib/systemd/system/vmqos-agent.service").exists()


@pytest.fixture
def pace(pace: Pace, installed: Path) -> Pace:
    """The programs that were installed, in place of the tree's."""

    def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
        with log.open("ab") as output:
            return subprocess.Popen(
                [installed / "bin" / PROGRAMS[module], *arguments],
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    return replace(pace, launch=launch)


def test_agent_and_gateway_keep_a_promise_and_show_the_page(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor, installed: Path
) -> None:
    agent = make_agent({"gateway": {}})
    agent.start()
    vm = make_vm({"hw:cache_ways": "2"})
    wait_for(lambda: agent.gateway.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM's promise being kept")
    assert agent.get("/v1/health")["version"] == release()
    connection = UnixConnection(agent.gateway.socket, 10.0)
    connection.request("GET", "/")
    assert "<title>" in connection.getresponse().read().decode()
    connection.close()
    assert Path(f"/proc/{agent.pid}/exe").resolve() == (installed / "bin/python").resolve()
