# SPDX-License-Identifier: Apache-2.0
"""One service of the cloud: logging in as a section of the configuration says, and asking over HTTP."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from oslo_config import cfg

from vmqos.conf import keystone, loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.openstack import exceptions
from vmqos.version import version

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

TIMEOUT = 30.0
"""Seconds that a service may take to answer, unless the configuration says something else."""

WHOLE_ANSWER = 4
"""How many such times may pass until the answer is there as a whole, logging in and finding the service included: what
is waited for so long is each single byte."""

LONGEST_ANSWER = 64 << 20
"""Bytes of an answer that are read. Ten thousand resource providers are told in ten million."""

INTERFACES = ("internal", "public")
"""The endpoints to look for, in this order, unless the configuration says something else; Nova's own default."""

CLOUDS_VARIABLE = "OS_CLIENT_CONFIG_FILE"
"""The variable of the environment that names a clouds.yaml, which is taken where no other one can be read."""

NOT_OF_ITS_FORM = (AttributeError, TypeError, ValueError)
"""What openstacksdk lets through where a clouds.yaml is YAML, and not of the form that it should have."""

LONGEST_REASON = 500
"""Characters of an answer that are put into a message."""

HIDDEN = "(token)"

_TOKEN = re.compile(r"gAAAAA[\w-]{8,}=*|eyJ[\w-]{8,}[\w.-]*")
"""Keystone's tokens, cut off ones too: Fernet begins with 0x80 and a time in base64, a JWS with ``{"`` in base64."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered.

    :ivar status: the HTTP status.
    :ivar body: the JSON value; ``None`` where there is none.
    :ivar section: which service it was, for errors.
    :ivar question: what it was asked, for errors.
    """

    status: int
    body: Any
    section: str = field(default="", compare=False)
    question: str = field(default="", compare=False)

    def read(self, kind: type[T]) -> T:
        """The body as a value of this type. What else an object has is left out of dataclasses, and kept in others.

        :raises vmqos.openstack.exceptions.Refused: if it is none. A proxy may answer, or a service that is too old.
        """
        try:
            return msgspec.convert(self.body, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            # UnicodeEncodeError: JSON may have half of a pair of surrogates (RFC 8259, section 8.2).
            reason = _short(f"the answer is not of the form that it has by the API's reference: {error}")
            raise exceptions.Refused(self.section, self.question, 0, reason) from error


class Service:
    """A service of OpenStack. It is found, and logged in to, with the first question; not for several threads at once.

    :param conf: the configuration of vmqos.
    :param section: the section with the credentials.
    :param service_type: its type in the catalog, such as ``placement``.
    """

    def __init__(self, conf: cfg.ConfigOpts, section: str, service_type: str) -> None:
        self.section = section
        self._conf = conf
        self._service_type = service_type
        self._adapter: Adapter | None = None
        self._late: Future[tuple[Any, bytes]] | None = None

    def ask(
        self,
        method: str,
        path: str,
        microversion: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        expected: tuple[int, ...] = (),
    ) -> Answer:
        """Send one request.

        :param path: below the service's endpoint, beginning with a slash.
        :param body: the JSON value to send.
        :param expected: answers of 400 and higher that are no failure to the caller.
        :raises vmqos.openstack.exceptions.NotLoggedIn: if the credentials do not lead to the service.
        :raises vmqos.openstack.exceptions.Unreachable: if it does not answer, or not as a whole within a bounded time.
        :raises vmqos.openstack.exceptions.Refused: if it answers anything of 400 or higher that is not expected, or
            something that is no JSON, or too long.
        """
        from keystoneauth1.exceptions import ClientException, ConnectFailure, ConnectTimeout, UnknownConnectionError
        from requests.exceptions import RequestException

        question = f"{method} {path.partition('?')[0]}"
        request = {
            "json": body,
            "params": dict(query or {}),
            "microversion": microversion,
            "headers": {"Accept": "application/json"},
            "raise_exc": False,
            "stream": True,
        }
        try:
            adapter = self._connected()
            patience = WHOLE_ANSWER * (adapter.session.timeout or TIMEOUT)
            answer, content = self._received(lambda: _whole(adapter.request(path, method, **request)), patience)
        except (ConnectFailure, ConnectTimeout, UnknownConnectionError, RequestException) as error:
            raise exceptions.Unreachable(self.section, _short(str(error))) from error
        except (ClientException, OSError) as error:
            # OSError: requests has no error of its own for a cafile or a certfile that is not there.
            self._adapter = None
            raise exceptions.NotLoggedIn(self.section, _short(str(error))) from error
        if len(content) > LONGEST_ANSWER:
            raise exceptions.Refused(self.section, question, 0, f"the answer is longer than {LONGEST_ANSWER} bytes")
        if answer.status_code >= 400 and answer.status_code not in expected:
            reason = _short(_reason(content, answer.reason), _sent_token(answer))
            raise exceptions.Refused(self.section, question, answer.status_code, reason)
        try:
            # Not its json(), which guesses an encoding where there is no JSON: that costs more than all the rest.
            return Answer(answer.status_code, json.loads(content) if content else None, self.section, question)
        except (ValueError, RecursionError) as error:
            raise exceptions.Refused(self.section, question, 0, f"the answer is no JSON: {error}") from error

    def _received(self, ask: Callable[[], tuple[Any, bytes]], patience: float) -> tuple[Any, bytes]:
        """What comes of a request, in a thread that can be left alone: the library's timeout is for each byte.

        :param patience: seconds.
        :raises vmqos.openstack.exceptions.Unreachable: if it takes longer, or an earlier one is not over yet.
        """
        if self._late is not None and not self._late.done():
            raise exceptions.Unreachable(self.section, "the answer of an earlier question is not there as a whole yet")
        found: Future[tuple[Any, bytes]] = Future()

        def run() -> None:
            try:
                found.set_result(ask())
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=run, name=f"ask-{self.section}", daemon=True).start()
        try:
            return found.result(patience)
        except TimeoutError as error:
            self._late = found
            late = f"the answer is not there as a whole after {patience:g} s"
            raise exceptions.Unreachable(self.section, late) from error

    def _connected(self) -> Adapter:
        if self._adapter is None:
            try:
                self._adapter = self._connect()
            except loader.NO_SUBSTITUTE as error:
                raise exceptions.NotLoggedIn(self.section, f"one of the values {loader.NO_SUCH_NAME}") from error
            except (ConfigurationError, cfg.Error, ValueError) as error:
                raise exceptions.NotLoggedIn(self.section, str(error)) from error
        return self._adapter

    def _connect(self) -> Adapter:
        options = self._conf[self.section]
        if options.os_cloud:
            return self._by_clouds_yaml(options.os_cloud)
        from keystoneauth1 import loading

        keystone.register(self._conf, self.section)
        auth = loading.load_auth_from_conf_options(self._conf, self.section)
        session = loading.load_session_from_conf_options(self._conf, self.section, auth=auth)
        _check_files(_files_of(session))
        session.timeout = session.timeout or TIMEOUT
        session.app_name, session.app_version = "vmqos", version()
        wanted = {} if options.valid_interfaces else {"interface": list(INTERFACES)}
        return loading.load_adapter_from_conf_options(
            self._conf,
            self.section,
            session=session,
            service_type=options.service_type or self._service_type,
            **wanted,
        )

    def _by_clouds_yaml(self, cloud: str) -> Adapter:
        # It takes 16 MiB more, and is needed for the places and the grammar of clouds.yaml alone.
        from keystoneauth1.adapter import Adapter
        from openstack import exceptions as sdk
        from openstack.config import OpenStackConfig
        from openstack.config.loader import CONFIG_FILES, SECURE_FILES, VENDOR_FILES

        kind = self._service_type
        # The gateway's unit names the copy that systemd made for it, an empty one where there is nothing to copy. The
        # library would take that name together with all other variables, such as a password's, or not at all.
        copy = os.environ.get(CLOUDS_VARIABLE)
        files = [*CONFIG_FILES, *([copy] if copy else ())]
        _check_files([*files, *SECURE_FILES, *VENDOR_FILES])
        try:
            region = OpenStackConfig(
                config_files=files,
                load_envvars=False,
                app_name="vmqos",
                app_version=version(),
                pw_func=None,
            ).get_one(cloud=cloud)
            session = region.get_session()
        except sdk.SDKException as error:
            raise ConfigurationError(f"os_cloud = {cloud}: {error}") from error
        except NOT_OF_ITS_FORM as error:
            raise ConfigurationError(f"os_cloud = {cloud}: clouds.yaml is not of its form: {error}") from error
        _check_files(_files_of(session))
        session.timeout = session.timeout or TIMEOUT
        return Adapter(
            session,
            service_type=region.get_service_type(kind),
            service_name=region.get_service_name(kind),
            interface=region.get_interface(kind),
            region_name=region.get_region_name(kind),
            endpoint_override=region.get_endpoint(kind),
        )


class ConnectedService(Service):
    """A service that another library has logged in to, such as openstacksdk.

    :param section: how the service is called in messages, such as ``placement``.
    :param adapter: the way to it.
    """

    def __init__(self, section: str, adapter: Adapter) -> None:
        self.section = section
        self._given = adapter
        self._adapter = adapter
        self._late = None

    def _connect(self) -> Adapter:
        return self._given


def _files_of(session: Any) -> list[str]:
    """The files of certificates and keys that a session's connections read."""
    certificates = session.cert if isinstance(session.cert, list | tuple) else [session.cert]
    return [path for path in (session.verify, *certificates) if isinstance(path, str)]


def _check_files(paths: Iterable[str]) -> None:
    """Make sure that no library waits for ever for a file: the open of a FIFO waits for a writer.

    A directory of certificates is one for the library.

    :raises vmqos.conf.exceptions.ConfigurationError: if something else is there.
    """
    for path in paths:
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise ConfigurationError(f"{path} is no regular file")


def _whole(answer: Any) -> tuple[Any, bytes]:
    """An answer and its body, of which there is too much where it is longer than :data:`LONGEST_ANSWER`."""
    content = bytearray()
    with answer:
        for piece in answer.iter_content(1 << 16):
            content += piece
            if len(content) > LONGEST_ANSWER:
                break
    return answer, bytes(content)


def _reason(content: bytes, phrase: str | None) -> str:
    """What Placement, Nova or the server in front of them says in its answer.

    :param phrase: what stands beside the status.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        # Not its text, which guesses an encoding for all of a page.
        text = content[: 4 * LONGEST_REASON].decode(errors="replace")
        return text.strip() or phrase or "no reason given"
    errors = body.get("errors") if isinstance(body, dict) else None
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return str(errors[0].get("detail") or errors[0].get("title") or errors[0])
    if isinstance(body, dict) and len(body) == 1:
        only = next(iter(body.values()))
        if isinstance(only, dict) and "message" in only:
            return str(only["message"])
    return str(body)


def _sent_token(answer: Any) -> str:
    """The token that was sent with the request. A proxy may repeat a request's headers in its answer."""
    return str(answer.request.headers.get("X-Auth-Token") or "")


def _short(text: str, token: str = "") -> str:
    """One line that may be logged: bounded, and without a token.

    :param token: a token that is known; those of other requests are found by their form.
    """
    if token:
        text = text.replace(token, HIDDEN)
    line = _TOKEN.sub(HIDDEN, " ".join(text[: 4 * LONGEST_REASON].split()))
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."
