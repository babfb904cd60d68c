# SPDX-License-Identifier: Apache-2.0
"""The options of keystoneauth, which stand in ``[placement]`` and ``[nova]`` as they stand in ``nova.conf``.

They are keystoneauth's own, and so are their names, defaults and explanations. Nothing here is imported before a
configuration has one of these sections: the library takes 9 MiB and a seventh of a second.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from oslo_config import cfg

from vmqos.conf.exceptions import ConfigurationError

SECTIONS = ("placement", "nova")
"""The sections that may have them."""

EXPLAINED = (
    "Beside the options below, keystoneauth's stand here, as in the same section of nova.conf: auth_type and what it "
    "needs (with password: auth_url, username, password, project_name, user_domain_name, project_domain_name; with "
    "v3applicationcredential: auth_url, application_credential_id, application_credential_secret), auth_section, "
    "region_name, valid_interfaces, endpoint_override, cafile, insecure, timeout. "
)
"""What the sample says of each of the sections."""

CLOUDS = ("/etc/openstack", "~/.config/openstack")
"""Where openstacksdk looks for clouds.yaml and secure.yaml, besides the working directory."""

_SECRET = ("password", "passcode", "secret", "token", "transport_url")
"""How the names of the options end that keystoneauth's plugins and oslo.messaging mark as secret."""


def register(conf: cfg.ConfigOpts, section: str) -> None:
    """Make the options known that no plugin has of its own; the plugin's follow when it is loaded.

    :raises vmqos.conf.exceptions.ConfigurationError: if keystoneauth is not installed.
    """
    try:
        from keystoneauth1 import loading
    except ImportError as error:
        raise ConfigurationError(f"[{section}] needs openstacksdk: pip install 'vmqos[agent]' ({error})") from error
    loading.register_auth_conf_options(conf, section)
    loading.register_session_conf_options(conf, section)
    loading.register_adapter_conf_options(conf, section)


def is_configured(conf: cfg.ConfigOpts, section: str) -> bool:
    """Whether the section says how to log in.

    The agent asks this too, and never logs in: the files are read here without keystoneauth.
    """
    if conf[section].os_cloud:
        return True
    found: dict[str, dict[str, str]] = {}
    for _, sections in parsed(conf):
        for name, options in sections.items():
            values = {option.replace("-", "_"): texts[-1] for option, texts in options.items() if texts}
            found.setdefault(name, {}).update(values)
    login = found.get(found.get(section, {}).get("auth_section") or section, {})
    # The second one is what keystoneauth called it before.
    return bool(login.get("auth_type") or login.get("auth_plugin"))


def names(section: Mapping[str, list[str]]) -> set[str]:
    """The options that keystoneauth knows in a section, those of the plugin that it names included.

    :param section: the section's options and their values, as they stand in a file.
    :raises vmqos.conf.exceptions.ConfigurationError: if keystoneauth is not installed.
    """
    conf = cfg.ConfigOpts()
    register(conf, "section")
    from keystoneauth1 import exceptions, loading

    known = {name.replace("-", "_") for name in conf["section"]}
    for plugin in section.get("auth_type", ()):
        try:
            # A plugin's options have synonyms, such as user_name.
            for option in loading.get_auth_plugin_conf_options(plugin):
                known |= {option.dest, *(str(other.name).replace("-", "_") for other in option.deprecated_opts)}
        except exceptions.NoMatchingPlugin:
            continue
    return known


def files_with_secrets(conf: cfg.ConfigOpts, clouds: Sequence[str] = CLOUDS) -> Iterator[str]:
    """The files of this configuration that have a secret in them, as far as they can be read.

    :param clouds: the folders of clouds.yaml, which is one of the files where a section names a cloud.
    """
    for path, sections in parsed(conf):
        options = [(name, value) for found in sections.values() for name, values in found.items() for value in values]
        if any(value and name.replace("-", "_").endswith(_SECRET) for name, value in options):
            yield path
    if any(conf[section].os_cloud for section in SECTIONS):
        for folder in clouds:
            for name in ("clouds.yaml", "clouds.yml", "secure.yaml", "secure.yml"):
                path = os.path.join(os.path.expanduser(folder), name)
                if os.path.isfile(path):
                    yield path


def parsed(conf: cfg.ConfigOpts) -> Iterator[tuple[str, dict[str, dict[str, list[str]]]]]:
    """The files of this configuration that can be read, and the options of each by section."""
    for path in _files(conf):
        sections: dict[str, dict[str, list[str]]] = {}
        try:
            cfg.ConfigParser(path, sections).parse()
        except (OSError, ValueError, cfg.ParseError):
            continue
        yield path, sections


def _files(conf: cfg.ConfigOpts) -> Iterable[str]:
    yield from conf.config_file or ()
    # oslo.config reads these folders so, and those of /etc where no other is named.
    for folder in conf.config_dir or conf.default_config_dirs or ():
        yield from sorted(glob.glob(os.path.join(glob.escape(folder), "*.conf")))
