# SPDX-License-Identifier: Apache-2.0
"""The RPM packages: built by rpmbuild on Debian, where the macros of Fedora are not there, and compared with Debian's.

No root of Fedora or RHEL is used: that they install there is not shown here.
"""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packages import tree
from tests.packages.debian_packages import PACKAGES, Built, version
from tests.packages.debian_root import DebianRoot
from tools.lab.workspace import CHECKOUT

SPEC = CHECKOUT / "packaging/rpm/vmqos.spec"
CONF = "/etc/vmqos/vmqos.conf"

KNOWN = {
    "hardcoded-library-path",  # systemd's and sysusers' directories are in /usr/lib on every architecture
    "no-dependency-on",  # Fedora's rpmbuild makes it
    "no-group-tag",  # Fedora has no groups any more
    "no-packager-tag",  # whoever builds them sets it
    "no-signature",  # whoever publishes them signs them
    "non-readable",  # vmqos.conf may have credentials
    "spelling-error",  # resctrl, libvirt, cpu
}
"""Errors of rpmlint that are none: Debian's rpmlint has no configuration of Fedora's."""

FORMAT = r"[%{FILEMODES:perms}\t%{FILEUSERNAME}:%{FILEGROUPNAME}\t%{FILEFLAGS:fflags}\t%{FILENAMES}\n]"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a package.

    :ivar mode: as ls shows it.
    :ivar owner: user and group.
    :ivar flags: c: a configuration file, n: one that an upgrade leaves alone, d: documentation, l: a licence.
    """

    mode: str
    owner: str
    flags: str


@dataclass(frozen=True, slots=True)
class Rpms:
    """What was built.

    :ivar root: where, in the directory ``/rpm``.
    :ivar files: by package and path.
    """

    root: DebianRoot
    files: dict[str, dict[str, File]]

    def ask(self, package: str, *words: str) -> str:
        """What rpm says of one of the packages."""
        (file,) = (self.root.path / "rpm/RPMS/noarch").glob(f"{package}-{version()}-*.rpm")
        return self.root.run("rpm", "--query", "--package", *words, f"/rpm/RPMS/noarch/{file.name}")


@pytest.fixture(scope="session")
def rpms(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Rpms:
    folder = tree.copy_to(tmp_path_factory.mktemp("rpm") / "tree")
    tree.commit(folder)
    tree.git(folder, "tag", "--annotate", "--message", "Release", version())
    sources = built.root.path / "rpm/SOURCES"
    sources.mkdir(parents=True)
    sdist = [sys.executable, "-m", "build", "--no-isolation", "--sdist", f"--outdir={sources}", str(folder)]
    done = subprocess.run(sdist, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (built.root.path / "rpm/vmqos.spec").write_text(SPEC.read_text())
    # --nodeps: what dpkg has installed, rpm does not know. The variable has Debian's Python install to /usr.
    build = "DEB_PYTHON_INSTALL_LAYOUT=deb rpmbuild -ba --nodeps --define '_topdir /rpm' /rpm/vmqos.spec"
    built.root.shell(build)
    made = sorted((built.root.path / "rpm/RPMS/noarch").iterdir())
    files: dict[str, dict[str, File]] = {}
    for file in made:
        shown = built.root.run("rpm", "--query", "--package", "--queryformat", FORMAT, f"/rpm/RPMS/noarch/{file.name}")
        lines = [line.split("\t") for line in shown.splitlines()]
        name = file.name.removesuffix(".noarch.rpm").rsplit("-", 2)[0]
        files[name] = {path: File(mode, owner, flags.strip()) for mode, owner, flags, path in lines}
    return Rpms(built.root, files)


def requirements(spec: str) -> dict[str, set[tuple[str, str]]]:
    """The Python distributions that each package of the spec requires, with the lowest version."""
    found: dict[str, set[tuple[str, str]]] = {}
    for part in re.split(r"^%package -n ", spec, flags=re.MULTILINE)[1:]:
        required = re.findall(r"^Requires: +python3dist\(([^)]+)\)(?: >= (\S+))?$", part, re.MULTILINE)
        found[part.split(maxsplit=1)[0]] = set(required)
    return found


def test_the_parts_are_those_of_debian(rpms: Rpms) -> None:
    assert sorted(rpms.files) == sorted(PACKAGES)
    assert rpms.ask("vmqos-agent", "--queryformat", "%{VERSION}").strip() == version()
    assert list((rpms.root.path / "rpm/SRPMS").glob(f"vmqos-{version()}-*.src.rpm"))


def of_debian(built: Built, package: str) -> dict[str, str]:
    """The files of a Debian package by path, with their modes."""
    (file,) = (one for one in built.now if one.name.startswith(f"{package}_"))
    shown = built.root.run("dpkg-deb", "--contents", f"/now/{file.name}")
    words = [line.split(maxsplit=5) for line in shown.splitlines()]
    return {one[5].removeprefix("."): one[0] for one in words if not one[0].startswith("d")}


# Where the two have the same file in places of their own, and what one makes of itself.
SAME = (
    (r"^/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/"),
    (r"^/usr/lib/python3/dist-packages/vmqos-[^/]*/licenses/LICENSE$", ""),
    # Debian has what it says in the package's copyright file.
    (r"^/usr/lib/python3/dist-packages/vmqos/gateway/page/static/vendor/uplot/LICENSE$", ""),
    # Who installed it, which Debian's tools leave out.
    (r"^/usr/lib/python3/dist-packages/vmqos[^/]*\.dist-info/(RECORD|pbr\.json|direct_url\.json|INSTALLER)$", ""),
    (r"^/usr/share/(doc|licenses|lintian)/.*", ""),
)


def alike(files: dict[str, str]) -> dict[str, str]:
    """The files by a path that is the same in both."""
    found = {}
    for path, mode in files.items():
        for pattern, text in SAME:
            path = re.sub(pattern, text, path)
        if path:
            found[path] = mode
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_files_of_debians_with_the_same_modes(rpms: Rpms, built: Built, package: str) -> None:
    files = {path: file.mode for path, file in rpms.files[package].items() if not file.mode.startswith("d")}
    assert alike(files) == alike(of_debian(built, package))


def test_all_is_roots_and_no_file_but_the_programs_can_be_run(rpms: Rpms) -> None:
    for files in rpms.files.values():
        for path, file in files.items():
            assert file.owner == "root:root"
            if path.startswith("/usr/bin/"):
                assert file.mode == "-rwxr-xr-x"
            elif path != CONF:
                assert file.mode in ("-rw-r--r--", "drwxr-xr-x"), path


def test_the_configuration_is_closed_and_an_upgrade_leaves_it_alone(rpms: Rpms) -> None:
    assert rpms.files["vmqos-agent"][CONF] == File("-rw-r-----", "root:root", "cn")
    marked = [path for files in rpms.files.values() for path, file in files.items() if "c" in file.flags]
    assert marked == [CONF]


def test_each_package_has_the_licence(rpms: Rpms) -> None:
    for package, files in rpms.files.items():
        assert [Path(path).name for path, file in files.items() if file.flags == "l"] == ["LICENSE"], package


@pytest.mark.parametrize(
    ("package", "units"),
    [
        ("vmqos-agent", "vmqos-agent.service"),
        # A timer that runs loses nothing by an upgrade.
        ("vmqos-gateway", "vmqos-gateway.service vmqos-withdraw.timer"),
    ],
)
def test_units_are_started_restarted_and_stopped_with_the_package(rpms: Rpms, package: str, units: str) -> None:
    scripts = rpms.ask(package, "--scripts")
    assert re.search(rf"install-system-units .*{units} ", scripts)
    assert f"remove-system-units {units} " in scripts and f"mark-restart-system-units {package}.service " in scripts
    # To unmount resctrl removes the groups of all programs.
    assert not re.search(r"(remove|restart)-system-units .*resctrl", scripts)


def test_a_host_without_the_agent_mounts_resctrl_no_more_at_its_next_boot(rpms: Rpms) -> None:
    scripts = rpms.ask("vmqos-agent", "--scripts")
    before_removal = scripts.partition("preuninstall scriptlet")[2].partition("postuninstall scriptlet")[0]
    assert "systemctl --no-reload disable sys-fs-resctrl.mount resctrl-access.service" in before_removal


def test_accounts_are_made_before_a_unit_needs_them(rpms: Rpms) -> None:
    agent, ceilometer = (rpms.ask(name, "--scripts") for name in ("vmqos-agent", "vmqos-ceilometer"))
    assert agent.index("systemd-sysusers /usr/lib/sysusers.d/vmqos.conf") < agent.index("install-system-units")
    assert "systemd-sysusers /usr/lib/sysusers.d/vmqos-ceilometer.conf" in ceilometer


def test_a_scriptlet_is_a_script_that_a_shell_can_read(rpms: Rpms) -> None:
    for package in PACKAGES:
        for script in re.split(r"^\w+ scriptlet \(using /bin/sh\):$", rpms.ask(package, "--scripts"), flags=re.M)[1:]:
            rpms.root.run("sh", "-n", "-c", script)
            # What is not a macro here stays as it was written.
            assert "%" not in script


def test_what_a_package_requires_is_what_the_wheel_requires() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(CHECKOUT / "setup.cfg")

    def extra(name: str) -> set[tuple[str, str]]:
        found = re.findall(r"^([A-Za-z][\w.-]*)(?:>=([\d.]+))? +#", setup["extras"][name], re.MULTILINE)
        # 9.7.0 is 9.7, and PyPI's names know no case.
        return {(re.sub(r"[._]", "-", one.lower()), re.sub(r"(\.0)+$", "", lowest)) for one, lowest in found}

    required = requirements(SPEC.read_text())
    assert required["python3-vmqos"] - {("keystoneauth1", "5.6")} == extra("cli")
    agent, gateway = required["vmqos-agent"], required["vmqos-gateway"]
    assert required["python3-vmqos"] | agent | gateway == extra("agent") | extra("cli")
    assert required["vmqos-ceilometer"] == extra("ceilometer")
    assert required["vmqos-watcher"] == extra("watcher")


def test_what_a_package_requires_is_what_debian_s_requires() -> None:
    debian_s = {"libvirt-python": "libvirt", "python-watcher": "watcher", "pyyaml": "yaml"}
    of_spec = {
        package: {(debian_s.get(name, name), lowest) for name, lowest in required}
        for package, required in requirements(SPEC.read_text()).items()
    }
    found: dict[str, set[tuple[str, str]]] = {}
    for package in re.split(r"^Package: ", (CHECKOUT / "debian/control").read_text(), flags=re.MULTILINE)[1:]:
        (depends,) = re.findall(r"^Depends:((?:.*\n )+.*)", package, re.MULTILINE)
        python = re.findall(r"python3-(?!vmqos)([\w.-]+)(?: \(>= (?:\d+:)?([\d.]+)\))?", depends)
        lowest = {(name.replace(".", "-"), re.sub(r"(\.0)+$", "", least)) for name, least in python}
        found[package.split(maxsplit=1)[0]] = lowest
    assert found == of_spec


def test_rpmlint_finds_no_fault(rpms: Rpms) -> None:
    said = rpms.root.shell("rpmlint /rpm/vmqos.spec /rpm/SRPMS/*.rpm /rpm/RPMS/noarch/*.rpm || true")
    assert "7 packages and 1 specfiles checked" in said
    faults = re.findall(r"^\S+ E: (\S+).*$", said, re.MULTILINE)
    assert set(faults) <= KNOWN, said


@pytest.mark.parametrize("program", ["vmqos", "vmqos-agent", "vmqos-gateway"])
def test_what_is_in_the_packages_runs(rpms: Rpms, program: str) -> None:
    packages = f"{shlex.quote('/rpm/RPMS/noarch')}/*.rpm"
    rpms.root.shell(
        "test -e /rpm/unpacked || { mkdir /rpm/unpacked; cd /rpm/unpacked; "
        f"for file in {packages}; do rpm2cpio $file | cpio --extract --make-directories --quiet; done; }}"
    )
    modules = "/rpm/unpacked/usr/lib/python3/dist-packages"
    said = rpms.root.shell(f"cd / && PYTHONPATH={modules} /rpm/unpacked/usr/bin/{program} --version")
    assert said.split()[-1] == version()
