# SPDX-License-Identifier: Apache-2.0
"""What ``tools/release`` makes: the same files each time, and an SBOM of all that vmqos needs when it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packages import tree
from tests.packages.debian_packages import version
from tools import release_files
from tools.lab.workspace import CHECKOUT

RUNS = ("runtime", "notifications")
"""The files that lock what vmqos needs when it runs."""


def release(folder: Path, into: Path, umask: int) -> None:
    """Run ``tools/release`` in a tree that is a repository, whose commit has the tag of the release."""
    # As the one who builds: git does not read another user's repository.
    configured = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    done = subprocess.run(
        [folder / "tools/release", into],
        env={**os.environ, **configured},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tree.copy_to(tmp_path_factory.mktemp("tagged") / "tree")
    tree.commit(folder)
    tree.git(folder, "tag", "--annotate", "--message", "Release", version())
    return folder


@pytest.fixture(scope="module")
def dist(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release(tagged, folder, 0o022)
    return folder


@pytest.fixture(scope="module")
def sbom(dist: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dist / f"vmqos-{version()}.cdx.json").read_text())
    return content


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_release_is_a_wheel_an_sdist_and_an_sbom(dist: Path) -> None:
    name = f"vmqos-{version()}"
    assert set(contents(dist)) == {f"{name}-py3-none-any.whl", f"{name}.tar.gz", f"{name}.cdx.json"}


def test_the_same_commit_gives_the_same_bytes_elsewhere(dist: Path, tagged: Path, tmp_path: Path) -> None:
    clone = tmp_path / "another/place"
    tree.git(tmp_path, "clone", "--quiet", str(tagged), str(clone))
    release(clone, tmp_path / "dist", 0o077)
    assert contents(tmp_path / "dist") == contents(dist)


def test_a_tree_with_changes_is_refused(tagged: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    tree.git(tmp_path, "clone", "--quiet", str(tagged), str(clone))
    (clone / "README.md").write_text("Something else")
    done = subprocess.run([clone / "tools/release", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has changes" in done.stderr


def test_no_file_says_where_when_or_by_whom_it_was_built(dist: Path, tagged: Path) -> None:
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    committed = int(tree.git(tagged, "log", "-1", "--format=%ct"))
    with tarfile.open(sdist) as file:
        members = file.getmembers()
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(committed, 0, "root")}
    assert {oct(member.mode) for member in members} == {"0o644", "0o755"}
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if str(tagged).encode() in packed.read(name)]
    assert str(tagged) not in (dist / f"vmqos-{version()}.cdx.json").read_text()


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_wheel_and_sdist_install_with_nothing_but_the_locked_versions(dist: Path, tmp_path: Path, kind: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    (file,) = dist.glob(kind)
    locked = CHECKOUT / "tools/requirements"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    for words in (
        ["--require-hashes", f"--requirement={locked / 'build.txt'}"],
        ["--require-hashes", *(f"--requirement={locked / name}.txt" for name in RUNS)],
        # All that the extras ask for is there: else pip would have to look for it.
        ["--no-index", f"vmqos[{','.join(release_files.EXTRAS)}] @ file://{file}"],
    ):
        done = subprocess.run([*pip, *words], cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    for program in ("vmqos", "vmqos-agent", "vmqos-gateway"):
        command = [tmp_path / "venv/bin" / program, "--version"]
        said = subprocess.run(command, cwd="/", env={"PATH": "/usr/bin"}, capture_output=True, text=True, check=True)
        assert said.stdout.split()[-1] == version()


def test_the_sbom_is_what_cyclonedx_says_that_one_is(dist: Path) -> None:
    text = (dist / f"vmqos-{version()}.cdx.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    # That it would say if it were none.
    assert validator.validate_str(text.replace('"version"', '"versoin"')) is not None


def test_the_sbom_is_of_this_release(sbom: dict[str, Any]) -> None:
    about = sbom["metadata"]["component"]
    assert (about["name"], about["version"]) == ("vmqos", version())
    assert [one["expression"] for one in about["licenses"]] == ["Apache-2.0 AND MIT"]


def test_the_sbom_names_what_the_wheel_requires_and_what_that_requires(sbom: dict[str, Any], dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    required = [Requirement(text) for text in release_files.dependencies(release_files.metadata(wheel))]
    assert len(required) > 10
    versions = {canonicalize_name(one["name"]): one["version"] for one in sbom["components"]}
    for requirement in required:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement
    needs = {one["ref"]: one.get("dependsOn", []) for one in sbom["dependencies"]}
    direct = needs[sbom["metadata"]["component"]["bom-ref"]]
    names = {one["bom-ref"]: canonicalize_name(one["name"]) for one in sbom["components"]}
    assert {names[ref] for ref in direct} == {"uplot", *(canonicalize_name(one.name) for one in required)}
    # Each one is there because something needs it.
    reached, waiting = set[str](), list(direct)
    while waiting:
        if (ref := waiting.pop()) not in reached:
            reached.add(ref)
            waiting.extend(needs[ref])
    assert reached == set(names)


def test_the_sbom_has_the_versions_that_are_locked(sbom: dict[str, Any]) -> None:
    text = "".join((CHECKOUT / f"tools/requirements/{name}.txt").read_text() for name in RUNS)
    locked = {canonicalize_name(name): exact for name, exact in re.findall(r"^([\w.-]+)==([^ ;]+)", text, re.MULTILINE)}
    for component in sbom["components"]:
        if component["name"] != "uplot":
            assert locked[canonicalize_name(component["name"])] == component["version"]


def test_the_sbom_has_the_uplot_that_the_wheel_has(sbom: dict[str, Any], dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (found,) = (one for one in sbom["components"] if one["name"] == "uplot")
    assert found == release_files.uplot(wheel) and len(found["components"]) == 3


def test_each_component_has_a_licence(sbom: dict[str, Any]) -> None:
    for component in sbom["components"]:
        assert component["licenses"], component["name"]
    (libvirt,) = (one for one in sbom["components"] if one["name"] == "libvirt-python")
    assert libvirt["licenses"][0]["license"]["id"] == "LGPL-2.1-or-later"
