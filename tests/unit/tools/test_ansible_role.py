# SPDX-License-Identifier: Apache-2.0
"""The Ansible role knows every Debian package, and the guide every variable of the role; tests/packages applies it."""

from __future__ import annotations

import glob
import re
from collections import UserString
from pathlib import Path

import jinja2
import yaml

from tools.lab.workspace import CHECKOUT
from vmqos.conf import loader

ROLE = CHECKOUT / "packaging/ansible/roles/vmqos"


def test_the_role_can_install_every_package() -> None:
    packages = re.findall(r"^Package: (\S+)$", (CHECKOUT / "debian/control").read_text(), re.MULTILINE)
    assert packages
    task, *_ = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    wanted = task["ansible.builtin.set_fact"]["vmqos_wanted"]
    assert sorted(re.findall(r"'([a-z0-9-]+)'", wanted)) == sorted(packages)


def test_the_guide_explains_every_variable_of_the_role() -> None:
    page = (CHECKOUT / "doc/source/operator/ansible.rst").read_text()
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert sorted(re.findall(r"^   \* - ``(vmqos_\w+)``$", page, re.MULTILINE)) == sorted(defaults)


def test_a_package_that_is_not_there_ends_the_role_before_anything_is_installed(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    (block,) = [task["block"] for task in tasks if "block" in task]
    that = jinja2.Environment().compile_expression(block[0]["ansible.builtin.assert"]["that"])
    (tmp_path / "vmqos-agent_1.0.0_all.deb").touch()

    def is_there(package: str) -> object:
        return that(query=lambda kind, pattern: glob.glob(pattern), vmqos_packages_from=str(tmp_path), item=package)

    assert is_there("vmqos-agent") is True and is_there("vmqos-gateway") is False
    assert block[0]["loop"] == "{{ vmqos_wanted }}"


def comment(text: str) -> str:
    """What Ansible's filter of that name makes of a text in its plain style (ansible.plugins.filter.core)."""
    return "\n".join(["#", *(f"# {line}" for line in text.split("\n")), "#"])


def test_the_options_are_read_as_they_stand_in_the_variable(tmp_path: Path) -> None:
    wanted = yaml.safe_load("""
        agent: {audit_interval: 9}
        allocation: {shared_classes: [ways4, ways2-mb50]}
        gateway: {old_metrics: false}
        notifications: {topics: [notifications], host: compute-7}
    """)
    # What Ansible's vault has encrypted is no text to Jinja, but a sequence of letters.
    wanted["notifications"]["transport_url"] = UserString("rabbit://a:[b]@192.0.2.1/")
    # As Ansible sets it.
    ansible = jinja2.Environment(trim_blocks=True)
    ansible.filters["comment"] = comment
    template = ansible.from_string((ROLE / "templates/vmqos.conf.j2").read_text())
    managed = "managed\nby Ansible\n[agent]\naudit_interval = 8"
    (tmp_path / "vmqos.conf").write_text(template.render(vmqos_conf=wanted, ansible_managed=managed))
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    assert {section: {name: conf[section][name] for name in options} for section, options in wanted.items()} == wanted
