# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from keystoneauth1 import loading
from oslo_config import cfg

from vmqos.conf import keystone, loader

PASSWORD = "auth_type = password\nauth_url = http://keystone\nusername = vmqos\npassword = x\nproject_name = service\n"
APPLICATION = "auth_type = v3applicationcredential\nauth_url = http://keystone\napplication_credential_id = 1\n"


def load(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    path = tmp_path / "vmqos.conf"
    path.write_text(text)
    return loader.load(["--config-file", str(path)])


@pytest.mark.parametrize("section", keystone.SECTIONS)
@pytest.mark.parametrize(
    ("text", "configured"),
    [
        ("", False),
        ("[SECTION]\nregion_name = RegionOne\n", False),
        (f"[SECTION]\n{PASSWORD}", True),
        (f"[SECTION]\n{APPLICATION}", True),
        ("[SECTION]\nos_cloud = lab\n", True),
        (f"[SECTION]\nauth_section = keystone_authtoken\n[keystone_authtoken]\n{PASSWORD}", True),
    ],
)
def test_a_section_is_configured_once_it_says_how_to_log_in(
    tmp_path: Path, section: str, text: str, configured: bool
) -> None:
    conf = load(tmp_path, text.replace("SECTION", section))
    assert keystone.is_configured(conf, section) is configured
    others = set(keystone.SECTIONS) - {section}
    assert not any(keystone.is_configured(conf, other) for other in others)


@pytest.mark.parametrize("text", [PASSWORD, APPLICATION, "auth_section = elsewhere\n[elsewhere]\nfoo = bar\n"])
def test_what_keystoneauth_knows_is_no_typing_error(tmp_path: Path, text: str) -> None:
    common = "valid_interfaces = internal\ncafile = /ca.pem\ntimeout = 5\nendpoint_override = http://placement\n"
    assert list(loader.unknown_options(load(tmp_path, f"[placement]\n{common}{text}"))) == []


def test_keystoneauth_is_not_asked_where_none_of_its_options_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()

    def names(options: object) -> set[str]:
        asked.append(options)
        return set()

    monkeypatch.setattr(keystone, "names", names)
    assert list(loader.unknown_options(load(tmp_path, "[placement]\n[nova]\n"))) == []
    assert not asked
    list(loader.unknown_options(load(tmp_path, f"[nova]\n{PASSWORD}")))
    assert len(asked) == 1


def test_a_typing_error_among_them_is_told(tmp_path: Path) -> None:
    told = list(loader.unknown_options(load(tmp_path, f"[nova]\n{PASSWORD}usernme = vmqos\nos_clud = lab\n")))
    assert any("[nova] usernme is unknown" in line and "did you mean username?" in line for line in told)
    assert any("[nova] os_clud is unknown" in line and "did you mean os_cloud?" in line for line in told)
    assert len(told) == 2


def test_an_option_of_another_plugin_is_told(tmp_path: Path) -> None:
    (told,) = loader.unknown_options(load(tmp_path, f"[nova]\n{APPLICATION}default_domain_name = x\n"))
    assert "default_domain_name" in told


def test_what_one_configuration_has_no_other_one_needs(tmp_path: Path) -> None:
    first = load(tmp_path, f"[placement]\n{PASSWORD}")
    assert keystone.is_configured(first, "placement")
    keystone.register(first, "placement")
    loading.load_auth_from_conf_options(first, "placement")
    # auth_url is an option that has to be there, where a plugin registered it.
    assert not keystone.is_configured(load(tmp_path, ""), "placement")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("", False),
        ("[placement]\nos_cloud = lab\n", False),
        ("[placement]\nregion_name = RegionOne\npassword =\n", False),
        (f"[nova]\n{PASSWORD}", True),
        (f"[nova]\n{APPLICATION}application_credential_secret = x\n", True),
        (f"[placement]\nauth_section = keystone\n[keystone]\n{PASSWORD}", True),
        ("[nova]\nauth_type = admin_token\ntoken = x\nendpoint = http://nova\n", True),
    ],
)
def test_a_file_with_a_secret_is_known(tmp_path: Path, text: str, secret: bool) -> None:
    found = keystone.files_with_secrets(load(tmp_path, text), clouds=())
    assert list(found) == ([str(tmp_path / "vmqos.conf")] if secret else [])


def test_a_secret_in_a_further_folder_of_the_configuration_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (tmp_path / "vmqos.conf").write_text("")
    (folder / "credentials.conf").write_text(f"[placement]\n{PASSWORD}")
    (folder / "other.conf").write_text("[placement]\ncheck_interval = 60\n")
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf"), "--config-dir", str(folder)])
    assert list(keystone.files_with_secrets(conf, clouds=())) == [str(folder / "credentials.conf")]


def test_the_clouds_that_a_section_names_are_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secure.yaml").write_text("clouds: {}")
    (tmp_path / "clouds-public.yaml").write_text("public-clouds: {}")
    clouds = [str(tmp_path), str(tmp_path / "nowhere")]
    named = load(tmp_path, "[nova]\nos_cloud = lab\n")
    assert list(keystone.files_with_secrets(named, clouds)) == [str(tmp_path / "secure.yaml")]
    assert list(keystone.files_with_secrets(load(tmp_path, ""), clouds)) == []
