# SPDX-License-Identifier: Apache-2.0
"""The functional tests' fixtures: the simulator, a private libvirtd and its VMs; and the Debian packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.conftest import (
    _session_libvirt,
    agent,
    free_port,
    libvirt_host,
    made_agents,
    make_agent,
    make_vm,
    pace,
    resctrl,
    simulator,
    virt_type,
    wait_for,
    workspace,
)
from tests.kernel.lab import needs
from tests.packages import tree
from tests.packages.debian_packages import EARLIER, Built, build, build_dependencies, version
from tests.packages.debian_root import DebianRoot

__all__ = [
    "_session_libvirt",
    "agent",
    "free_port",
    "libvirt_host",
    "made_agents",
    "make_agent",
    "make_vm",
    "pace",
    "resctrl",
    "simulator",
    "virt_type",
    "wait_for",
    "workspace",
]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := needs.for_packages(tmp_path_factory.getbasetemp()):
        pytest.fail(f"these tests need: {'; '.join(missing)}; tools/test installs packages.", pytrace=False)
    return tmp_path_factory.mktemp("debian")


@pytest.fixture(scope="session")
def built(scratch: Path) -> Built:
    # The last two are what the programs of the RPM packages need to say their versions.
    others = ("dpkg-dev", "lintian", "rpm", "rpmlint", "python3-prometheus-client", "python3-waitress")
    root = DebianRoot.make(scratch / "builder", [*build_dependencies(), *others])
    earlier = tree.copy_to(scratch / "earlier")
    changelog = earlier / "debian/changelog"
    changelog.write_text(changelog.read_text().replace(f"({version()})", f"({EARLIER})", 1))
    with (earlier / "etc/vmqos/vmqos.conf.sample").open("a") as sample:
        sample.write("\n# As the earlier version had it.\n")
    for name in ("earlier", "now"):
        (root.path / name).mkdir()
    return Built(
        root,
        build(root, "earlier", earlier, "--build=binary"),
        build(root, "now", tree.copy_to(scratch / "now")),
    )
