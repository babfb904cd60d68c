# SPDX-License-Identifier: Apache-2.0
"""Keystone, with a database in a file."""

from __future__ import annotations

import threading
from typing import Any

import httpx

from tests.openstack.servers import manage, settings, wsgi
from tests.openstack.servers.process import free_port
from tools.lab.workspace import Workspace

PASSWORD = "secret"
REGION = "RegionOne"


class Keystone:
    """A Keystone with one administrator, and users for services as they are asked for.

    :ivar auth_url: where to log in.
    """

    def __init__(self, workspace: Workspace) -> None:
        directory = workspace.path / "keystone"
        directory.mkdir()
        port = free_port()
        self.auth_url = f"http://127.0.0.1:{port}/v3"
        configuration = settings.write(
            directory / "keystone.conf",
            {
                "DEFAULT": {"use_stderr": True},
                "database": {"connection": f"sqlite:///{directory}/database"},
                "fernet_tokens": {"key_repository": directory / "fernet-keys"},
                "credential": {"key_repository": directory / "credential-keys"},
                # Many rounds protect passwords that are worth something.
                "identity": {"password_hash_rounds": 4},
            },
        )
        (directory / "fernet-keys").mkdir(mode=0o700)
        (directory / "credential-keys").mkdir(mode=0o700)
        urls = [f"--bootstrap-{kind}-url={self.auth_url}" for kind in ("admin", "internal", "public")]
        manage.run(
            workspace,
            "keystone-manage",
            "keystone.cmd.manage",
            configuration,
            ["db_sync"],
            ["fernet_setup", "--keystone-user", "root", "--keystone-group", "root"],
            ["credential_setup", "--keystone-user", "root", "--keystone-group", "root"],
            ["bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION, *urls],
        )
        where = {"OS_KEYSTONE_CONFIG_FILES": str(configuration)}
        self._server = wsgi.serve(workspace, directory, "keystone.wsgi.api", port, where)
        self._token = ""
        # Services that start at the same time need the same project and role.
        self._making = threading.Lock()

    def credentials(self, user: str = "admin", role: str = "service") -> dict[str, str]:
        """A section for a configuration: a user by its password.

        :param role: what a user other than the administrator is in the project ``service``.
        """
        if user != "admin":
            with self._making:
                self._ensure_user(user, role)
        return {
            "auth_type": "password",
            "auth_url": self.auth_url,
            "username": user,
            "password": PASSWORD,
            "project_name": "admin" if user == "admin" else "service",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
            "region_name": REGION,
        }

    def application_credential(self, user: str) -> dict[str, str]:
        """A section with an application credential of a service's user."""
        token, who = self._log_in(user)
        path = f"/users/{who['user']['id']}/application_credentials"
        made = self._ask("POST", path, {"application_credential": {"name": "vmqos"}}, token)["application_credential"]
        return {
            "auth_type": "v3applicationcredential",
            "auth_url": self.auth_url,
            "application_credential_id": made["id"],
            "application_credential_secret": made["secret"],
            "region_name": REGION,
        }

    def offer(self, name: str, kind: str, url: str) -> None:
        """Put a service into the catalog, instead of one of the same name."""
        for old in self._ask("GET", f"/services?name={name}")["services"]:
            self._ask("DELETE", f"/services/{old['id']}")
        service = self._ask("POST", "/services", {"service": {"name": name, "type": kind}})["service"]["id"]
        for interface in ("internal", "public"):
            endpoint = {"service_id": service, "interface": interface, "url": url, "region_id": REGION}
            self._ask("POST", "/endpoints", {"endpoint": endpoint})

    def project(self, name: str) -> str:
        """A project's UUID; made if it is not there."""
        return self._ensure("projects", "project", {"name": name, "domain_id": "default"})

    def token(self) -> str:
        """An administrator's token."""
        if not self._token:
            self._token, _ = self._log_in("admin")
        return self._token

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def _ensure_user(self, name: str, role_name: str) -> None:
        project = self.project("service")
        user = self._ensure("users", "user", {"name": name, "domain_id": "default", "password": PASSWORD})
        role = self._ensure("roles", "role", {"name": role_name})
        self._ask("PUT", f"/projects/{project}/users/{user}/roles/{role}")

    def _ensure(self, plural: str, kind: str, value: dict[str, str]) -> str:
        found = self._ask("GET", f"/{plural}?name={value['name']}")[plural]
        return str(found[0]["id"] if found else self._ask("POST", f"/{plural}", {kind: value})[kind]["id"])

    def _log_in(self, user: str) -> tuple[str, Any]:
        access = self.credentials(user)
        domain = {"name": "Default"}
        identity = {
            "methods": ["password"],
            "password": {"user": {"name": user, "domain": domain, "password": PASSWORD}},
        }
        scope = {"project": {"name": access["project_name"], "domain": domain}}
        answer = httpx.post(f"{self.auth_url}/auth/tokens", json={"auth": {"identity": identity, "scope": scope}})
        answer.raise_for_status()
        return answer.headers["X-Subject-Token"], answer.json()["token"]

    def _ask(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        headers = {"X-Auth-Token": token or self.token()}
        answer = httpx.request(method, f"{self.auth_url}{path}", json=body, headers=headers, timeout=30)
        if answer.is_error:
            raise RuntimeError(f"Keystone answers {method} {path} with {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None
