# SPDX-License-Identifier: Apache-2.0
"""``tools/release`` itself is tried by ``tests/packages``."""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import os
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import release_files
from tools.lab.workspace import CHECKOUT

METADATA = """\
Metadata-Version: 2.4
Name: vmqos
Version: 1.0.0
Summary: Says "this" and more
License-Expression: Apache-2.0
Requires-Dist: always>=1
Requires-Dist: cliff>=4.8.0; extra == 'cli'
Requires-Dist: httpx>=0.27.0; extra == "agent"
Requires-Dist: httpx>=0.27.0; extra == "cli"
Requires-Dist: vmqos[cli]; extra == "agent"
Requires-Dist: oslo.service[threading]>=4.1.0; extra == "notifications"
Requires-Dist: pytest>=8; extra == "test"
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "vmqos-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("vmqos/__init__.py", "")
        file.writestr("vmqos-1.0.0.dist-info/METADATA", METADATA)
    return path


def sdist(path: Path, *, names: list[str], mode: int, owner: int) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(f"vmqos-1.0.0/{name}")
            member.size, member.mode, member.mtime = len(name), mode, int(time.time()) - owner
            member.uid, member.uname = owner, f"user{owner}"
            file.addfile(member, io.BytesIO(name.encode()))
    return path


def test_what_differs_from_build_to_build_is_gone(tmp_path: Path) -> None:
    mine = sdist(tmp_path / "mine.tar.gz", names=["a", "b"], mode=0o664, owner=1000)
    yours = sdist(tmp_path / "yours.tar.gz", names=["b", "a"], mode=0o600, owner=0)
    os.utime(yours, (5, 5))
    settled = []
    for source in (mine, yours):
        release_files.settle(source, tmp_path / "settled", 1_700_000_000)
        settled.append((tmp_path / "settled").read_bytes())
    assert settled[0] == settled[1] and mine.read_bytes() != yours.read_bytes()
    with tarfile.open(tmp_path / "settled") as file:
        assert [(one.name, oct(one.mode), one.mtime) for one in file] == [
            ("vmqos-1.0.0/a", "0o644", 1_700_000_000),
            ("vmqos-1.0.0/b", "0o644", 1_700_000_000),
        ]


def test_a_program_stays_one(tmp_path: Path) -> None:
    source = sdist(tmp_path / "sdist.tar.gz", names=["run"], mode=0o700, owner=0)
    release_files.settle(source, tmp_path / "settled", 0)
    with tarfile.open(tmp_path / "settled") as file:
        (member,) = file
        content = file.extractfile(member)
        assert oct(member.mode) == "0o755" and content and content.read() == b"run"


def test_a_wheel_is_described_with_what_it_requires_of_others(wheel: Path, tmp_path: Path) -> None:
    release_files.describe(wheel, tmp_path / "pyproject.toml")
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"] == {
        "name": "vmqos",
        "version": "1.0.0",
        "description": 'Says "this" and more',
        "license": {"text": "Apache-2.0"},
        "dependencies": ["always>=1", "cliff>=4.8.0", "httpx>=0.27.0", "oslo.service[threading]>=4.1.0"],
    }


def test_a_licence_that_a_package_does_not_tell_is_added(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    told = {"name": "rich", "licenses": [{"license": {"id": "MIT"}}]}
    sbom.write_text(json.dumps({"components": [told, {"name": "libvirt-python"}]}))
    release_files.finish(sbom)
    first, second = json.loads(sbom.read_text())["components"]
    assert first == told
    assert second["licenses"] == [{"license": {"id": "LGPL-2.1-or-later", "acknowledgement": "concluded"}}]


def with_uplot(wheel: Path, *, version: str = "") -> Path:
    """The wheel with the tree's uPlot, or with one that says that it is of another version."""
    with zipfile.ZipFile(wheel, "a") as file:
        for path in sorted((CHECKOUT / release_files.UPLOT).iterdir()):
            content = path.read_text()
            file.writestr(f"{release_files.UPLOT}/{path.name}", content.replace("(v1.6.32)", version or "(v1.6.32)"))
    return wheel


def test_what_is_vendored_is_listed_with_the_version_and_the_digests_of_its_files(wheel: Path, tmp_path: Path) -> None:
    sbom, home = tmp_path / "sbom.json", CHECKOUT / release_files.UPLOT
    before = {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": [{"name": "rich"}],
        "dependencies": [{"ref": "rich"}, {"ref": "root", "dependsOn": ["rich"]}],
    }
    sbom.write_text(json.dumps(before))
    release_files.add_vendored(sbom, with_uplot(wheel))
    found = json.loads(sbom.read_text())
    rich, uplot = found["components"]
    assert rich == {"name": "rich"}
    assert (uplot["name"], uplot["version"], uplot["purl"]) == ("uplot", "1.6.32", "pkg:npm/uplot@1.6.32")
    assert uplot["licenses"] == [{"license": {"id": "MIT", "acknowledgement": "declared"}}]
    digests = {one["name"]: one["hashes"] for one in uplot["components"]}
    assert digests == {
        f"{release_files.UPLOT}/{name}": [
            {"alg": "SHA-256", "content": hashlib.sha256((home / name).read_bytes()).hexdigest()}
        ]
        for name in ("LICENSE", "uPlot.esm.js", "uPlot.min.css")
    }
    assert found["dependencies"] == [
        {"ref": "rich"},
        {"ref": "root", "dependsOn": ["pkg:npm/uplot@1.6.32", "rich"]},
        {"ref": "pkg:npm/uplot@1.6.32"},
    ]


def test_the_version_of_what_is_vendored_is_the_one_that_its_file_tells(wheel: Path) -> None:
    assert release_files.uplot(with_uplot(wheel, version="(v2.0.1)"))["version"] == "2.0.1"


@pytest.mark.parametrize("version", [None, "(no version)"])
def test_a_wheel_whose_uplot_is_not_there_or_tells_no_version_ends_the_release(
    wheel: Path, version: str | None
) -> None:
    with pytest.raises(SystemExit, match="does not say that it is a version of uPlot"):
        release_files.uplot(with_uplot(wheel, version=version) if version else wheel)


def test_each_extra_that_can_be_installed_is_told_of_or_named_as_left_out() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(CHECKOUT / "setup.cfg")
    assert sorted((*release_files.EXTRAS, *release_files.LEFT_OUT)) == sorted(setup["extras"])
    guide = (CHECKOUT / "doc/source/contributor/releasing.rst").read_text()
    assert [extra for extra in setup["extras"] if f"``{extra}``" not in guide] == []


def test_a_component_without_a_licence_ends_the_release(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"components": [{"name": "new-one"}]}))
    with pytest.raises(SystemExit, match="new-one"):
        release_files.finish(sbom)


def test_where_a_package_lay_when_the_sbom_was_made_is_left_out(tmp_path: Path) -> None:
    sbom, licenses = tmp_path / "sbom.json", [{"license": {"id": "MIT"}}]
    home = {"type": "website", "url": "https://example.org"}
    here = {"type": "distribution", "url": "file:///tmp/wheels/a-1.whl"}
    components = [
        {"name": name, "licenses": licenses, "externalReferences": references}
        for name, references in (("a", [home, here]), ("b", [here]))
    ]
    sbom.write_text(json.dumps({"components": components}))
    release_files.finish(sbom)
    first, second = json.loads(sbom.read_text())["components"]
    assert first["externalReferences"] == [home] and "externalReferences" not in second
