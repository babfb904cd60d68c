# SPDX-License-Identifier: Apache-2.0
"""Whether a host may be withdrawn; beside Placement and Nova that has its tests in ``tests/unit/nova_plugin``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.extra_specs.resources import L3_CAT, LLC_CLASSES, LLC_WAYS
from vmqos.openstack import provider_yaml
from vmqos.openstack.placement import Inventory


def test_while_the_agent_runs_a_withdrawal_is_refused_and_only_said_by_a_dry_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.host.single_instance.is_running", lambda path: True)
    offered, conf = tmp_path / "vmqos.yaml", tmp_path / "vmqos.conf"
    inventories = {LLC_WAYS: Inventory(9, max_unit=9), LLC_CLASSES: Inventory(15)}
    offered.write_text(provider_yaml.render(inventories, [L3_CAT]))
    conf.write_text(f"[placement]\nprovider_yaml = {offered}\n")
    before = offered.read_text()
    said = run("--config-file", str(conf), "placement", "withdraw", "--dry-run")
    assert (said.status, said.err) == (0, "") and said.out.startswith(f"Would reserve all that {offered} has")
    refused = run("--config-file", str(conf), "placement", "withdraw")
    assert (refused.status, refused.out) == (1, "")
    assert "vmqos-agent runs, and vmqos-gateway would tell Placement again" in refused.err
    assert offered.read_text() == before


def test_where_the_gateway_tells_openstack_nothing_there_is_nothing_to_withdraw(run: Run, tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text("")
    said = run("--config-file", str(tmp_path / "vmqos.conf"), "placement", "withdraw", "--dry-run")
    assert (said.status, said.err) == (0, "")
    assert "has the gateway tell neither Placement nor nova-compute" in said.out
