# SPDX-License-Identifier: Apache-2.0
"""The Ansible role knows every Debian package, and the guide every variable of the role; tests/packages applies it."""

from __future__ import annotations

import re

import yaml

from tools.lab.workspace import CHECKOUT

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
