# SPDX-License-Identifier: Apache-2.0
"""What ``tools/release`` needs besides the programs that it calls: the same bytes each time, and vmqos for its SBOM.

Needs the standard library alone.

    release_files.py settle SDIST TARGET SECONDS    write an sdist again, without what differs from build to build
    release_files.py describe WHEEL TARGET          write a pyproject.toml that says of a wheel what pip reads of it
    release_files.py vendored SBOM WHEEL            add what a wheel has of others in itself
    release_files.py finish SBOM                    add licences that packages do not tell, and leave out where they lay
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

EXTRAS = ("agent", "cli", "notifications", "simulator")
"""What an SBOM tells of: all that runs on a compute node in an environment of its own, and the simulator."""

LEFT_OUT = ("ceilometer", "nova", "watcher", "docs", "lint", "openstack", "test", "worth")
"""The other extras. The first three are installed beside those services, with the versions of OpenStack's release that
these have; the rest is what developers need."""

LICENSES = {"libvirt-python": "LGPL-2.1-or-later"}
"""Of packages whose metadata have none, by SPDX's identifiers: its source says so in each file."""

UPLOT = "vmqos/gateway/page/static/vendor/uplot"
"""Where a wheel has uPlot, which draws the page's charts: files of the npm package."""


def settle(sdist: Path, target: Path, seconds: int) -> None:
    """Write an sdist again: sorted, with one time for all, of root, readable by all.

    :param seconds: the time, since 1970.
    """
    with (
        tarfile.open(sdist) as read,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read.getmembers(), key=lambda one: one.name):
            member.mtime = seconds
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)


def metadata(wheel: Path) -> Message:
    """What pip reads of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
        return HeaderParser().parsestr(file.read(name).decode())


def dependencies(about: Message) -> list[str]:
    """What a wheel requires with :data:`EXTRAS`, without itself, each once."""
    found = []
    for text in about.get_all("Requires-Dist", []):
        requirement, _, marker = (part.strip() for part in text.partition(";"))
        extras = re.findall(r"extra == ['\"]([^'\"]+)['\"]", marker)
        if not requirement.startswith("vmqos") and (not extras or set(extras) & set(EXTRAS)):
            found.append(requirement)
    return list(dict.fromkeys(found))


def describe(wheel: Path, target: Path) -> None:
    """Write a ``pyproject.toml`` of a wheel: vmqos describes itself in setup.cfg, which SBOM tools do not read."""
    about = metadata(wheel)
    lines = [
        "[project]",
        *(f"{key} = {json.dumps(about[name])}" for key, name in (("name", "Name"), ("version", "Version"))),
        f"description = {json.dumps(about['Summary'])}",
        f"license = {{text = {json.dumps(about['License-Expression'] or about['License'])}}}",
        f"dependencies = {json.dumps(dependencies(about))}",
    ]
    target.write_text("\n".join(lines) + "\n")


def uplot(wheel: Path) -> dict[str, Any]:
    """The uPlot of a wheel as a component of an SBOM: its version and digests are those of the files there.

    :raises SystemExit: if it is not there, or does not tell its version, or that it is under the MIT licence.
    """
    with zipfile.ZipFile(wheel) as file:
        names = sorted(one for one in file.namelist() if re.fullmatch(rf"{UPLOT}/[^/]+", one))
        contents = {name.rpartition("/")[2]: file.read(name) for name in names if not name.endswith("/README.md")}
    head = contents.get("uPlot.esm.js", b"")[:1024].decode(errors="replace")
    told = re.search(r"\(MIT Licensed\).*/leeoniya/uPlot \(v([0-9]+(?:\.[0-9]+)+)\)", head, re.DOTALL)
    if told is None:
        sys.exit(f"{UPLOT}/uPlot.esm.js does not say that it is a version of uPlot under the MIT licence: {head!r}")
    purl = f"pkg:npm/uplot@{told[1]}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "uplot",
        "version": told[1],
        "purl": purl,
        "licenses": [{"license": {"id": "MIT", "acknowledgement": "declared"}}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/leeoniya/uPlot"}],
        "components": [
            {
                "type": "file",
                "bom-ref": f"{purl}#{name}",
                "name": f"{UPLOT}/{name}",
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
            }
            for name, content in contents.items()
        ],
    }


def add_vendored(sbom: Path, wheel: Path) -> None:
    """Add what a wheel has of others in itself to its SBOM: SBOM tools see installed packages alone."""
    content, component = json.loads(sbom.read_text()), uplot(wheel)
    content["components"].append(component)
    root = content["metadata"]["component"]["bom-ref"]
    (needs,) = (one for one in content["dependencies"] if one["ref"] == root)
    needs["dependsOn"] = sorted([*needs.get("dependsOn", []), component["bom-ref"]])
    content["dependencies"].append({"ref": component["bom-ref"]})
    sbom.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def finish(sbom: Path) -> None:
    """Add :data:`LICENSES` to an SBOM, and leave out the files that packages were installed from here.

    :raises SystemExit: if a component is left without a licence.
    """
    content = json.loads(sbom.read_text())
    for component in content["components"]:
        elsewhere = [one for one in component.pop("externalReferences", []) if not one["url"].startswith("file:")]
        if elsewhere:
            component["externalReferences"] = elsewhere
        if not component.get("licenses") and component["name"] in LICENSES:
            license = {"id": LICENSES[component["name"]], "acknowledgement": "concluded"}
            component["licenses"] = [{"license": license}]
    if lacking := [component["name"] for component in content["components"] if not component.get("licenses")]:
        sys.exit(f"the licence is not known of: {', '.join(lacking)}")
    sbom.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "settle":
        settle(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "describe":
        describe(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1] == "vendored":
        add_vendored(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        finish(Path(sys.argv[2]))
