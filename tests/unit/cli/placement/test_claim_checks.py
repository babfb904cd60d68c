# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at Placement where no Placement answers; with a real one it is tried in tests/openstack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.local_api import examples
from vmqos.cli.placement import claim_checks, withdraw
from vmqos.conf import loader
from vmqos.host.finding import Status


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://127.0.0.1:1", "Placement can't be reached"),
        ("https://127.0.0.1:1\ncafile = /nowhere/ca.pem", "/nowhere/ca.pem"),
    ],
)
def test_placement_that_can_not_be_asked_is_a_warning_that_names_whose_log_tells_more(
    tmp_path: Path, endpoint: str, told: str
) -> None:
    config = tmp_path / "vmqos.conf"
    config.write_text(
        f"[placement]\nhypervisor_hostname = one\nauth_type = admin_token\ntoken = x\nendpoint = {endpoint}\n"
    )
    conf = loader.load(["--config-file", str(config)])
    (finding,) = claim_checks.claims(conf, examples.vms)
    assert (finding.status, finding.command) == (Status.WARNING, "journalctl --unit vmqos-gateway")
    assert told in finding.detail


def test_a_host_without_the_library_of_libvirt_is_told_so_at_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(withdraw.HostnameUnknown, match="libvirt-python is not installed"):
        withdraw.hostname(loader.defaults())
    assert capfd.readouterr().err == "", "and no thread ends with a traceback"
