# SPDX-License-Identifier: Apache-2.0
"""What becomes of a service's odd answers; sound ones come from real services in tests/openstack."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.eventually import eventually
from vmqos.conf import loader
from vmqos.openstack import exceptions
from vmqos.openstack.service import CLOUDS_VARIABLE, LONGEST_REASON, Answer, Service

CHECKOUT = Path(__file__).resolve().parents[3]


class Odd(BaseHTTPRequestHandler):
    """Answers as it is told."""

    status, text = 200, ""

    def do_GET(self) -> None:
        self.send_response(type(self).status)
        self.send_header("Content-Length", str(len(type(self).text)))
        self.end_headers()
        self.wfile.write(type(self).text.encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[type[Odd]]:
    """What the server answers."""

    class Answers(Odd):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Answers.port = server.server_address[1]  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Answers
    server.shutdown()
    thread.join()
    server.server_close()


def service(tmp_path: Path, text: str) -> Service:
    (tmp_path / "vmqos.conf").write_text(f"[placement]\n{text}")
    return Service(loader.load(["--config-file", str(tmp_path / "vmqos.conf")]), "placement", "placement")


@pytest.fixture
def odd_service(tmp_path: Path, odd: type[Odd]) -> Service:
    endpoint = f"http://127.0.0.1:{odd.port}"  # type: ignore[attr-defined]
    return service(tmp_path, f"auth_type = admin_token\ntoken = x\nendpoint = {endpoint}\n")


@pytest.mark.parametrize(
    ("status", "text", "told"),
    [
        (
            500,
            json.dumps({"errors": [{"title": "Server Error", "detail": "the database is gone"}]}),
            "database is gone",
        ),
        (400, json.dumps({"errors": [{"title": "Bad Request"}]}), "Bad Request"),
        (400, json.dumps({"badRequest": {"message": "no such node", "code": 400}}), "400: no such node"),
        (503, "<html>\n  No   server is available\n</html>", "<html> No server is available </html>"),
        (502, "", "Bad Gateway"),
        (500, "[]", "500: []"),
        (500, json.dumps({"errors": []}), "500: {'errors': []}"),
        (401, "no", "Placement does not take the token of the user of [placement]: its own log tells why"),
        (403, "no", "the user of [placement] needs more rights"),
        (200, "<html>welcome</html>", "the answer is no JSON"),
    ],
)
def test_a_refusal_says_what_was_asked_and_why_it_was_refused(
    odd: type[Odd], odd_service: Service, status: int, text: str, told: str
) -> None:
    odd.status, odd.text = status, text
    with pytest.raises(exceptions.Refused) as raised:
        odd_service.ask("GET", "/traits", "1.26")
    assert told in str(raised.value)
    assert "GET /traits" in str(raised.value)
    assert raised.value.status == (status if status >= 400 else 0)


def test_an_answer_that_ends_in_its_middle_is_no_matter_of_the_credentials(
    odd: type[Odd], odd_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Odd) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b'{"servers": [')

    monkeypatch.setattr(odd, "do_GET", half)
    with pytest.raises(exceptions.Unreachable):
        odd_service.ask("GET", "/traits", "1.26")


def test_an_answer_that_comes_byte_by_byte_is_waited_for_no_longer_than_a_whole_one_may_take(
    tmp_path: Path, odd: type[Odd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes well within the timeout, which is for each of them."""
    goes_on, began = threading.Event(), time.monotonic()

    def trickle(self: Odd) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10000")
        self.end_headers()
        while not goes_on.wait(0.05) and time.monotonic() < began + 30:
            self.wfile.write(b" ")
        self.wfile.write(b" " * 10_000)

    monkeypatch.setattr(odd, "do_GET", trickle)
    endpoint = f"http://127.0.0.1:{odd.port}"  # type: ignore[attr-defined]
    slow = service(tmp_path, f"auth_type = admin_token\ntoken = x\nendpoint = {endpoint}\ntimeout = 1\n")
    with pytest.raises(exceptions.Unreachable, match="not there as a whole after 4 s"):
        slow.ask("GET", "/traits", "1.26")
    # Each further question would leave one more thread behind.
    with pytest.raises(exceptions.Unreachable, match="of an earlier question"):
        slow.ask("GET", "/traits", "1.26")
    monkeypatch.setattr(odd, "do_GET", Odd.do_GET)
    odd.text = "{}"
    goes_on.set()
    eventually(lambda: _answers(slow))
    assert time.monotonic() < began + 25


def _answers(service: Service) -> bool:
    try:
        return service.ask("GET", "/traits", "1.26").status == 200
    except exceptions.Unreachable:
        return False


def test_an_answer_without_an_end_is_read_to_a_bound(
    odd: type[Odd], odd_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.openstack.service.LONGEST_ANSWER", 1 << 20)
    sent = 0

    def flood(self: Odd) -> None:
        nonlocal sent
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while sent < 1 << 30:
                sent += self.wfile.write(b" " * (1 << 16))

    monkeypatch.setattr(odd, "do_GET", flood)
    with pytest.raises(exceptions.Refused, match=r"GET /traits.*longer than 1048576 bytes"):
        odd_service.ask("GET", "/traits", "1.26")
    assert sent < 1 << 26


def test_a_status_that_is_expected_is_an_answer(odd: type[Odd], odd_service: Service) -> None:
    odd.status, odd.text = 409, "{}"
    assert odd_service.ask("GET", "/traits", "1.26", expected=(409,)) == Answer(409, {})
    odd.status, odd.text = 204, ""
    assert odd_service.ask("GET", "/traits", "1.26") == Answer(204, None)


def test_a_long_reason_is_cut(odd: type[Odd], odd_service: Service) -> None:
    odd.status, odd.text = 500, "x" * 10_000
    with pytest.raises(exceptions.Refused) as raised:
        odd_service.ask("GET", "/", "1.26")
    assert len(str(raised.value)) < LONGEST_REASON + 100


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("auth_type = password\nauth_url = http://127.0.0.1:1/v3\ntimeout = soon\n", "timeout"),
        ("auth_type = nonsense\n", "nonsense"),
        ("auth_type = password\nusername = vmqos\n", "auth_url"),
        ("os_cloud = nimbus\n", "nimbus"),
        (
            "auth_type = admin_token\ntoken = x\nendpoint = https://127.0.0.1:1\ncafile = /nowhere/ca.pem\n",
            "/nowhere/ca.pem",
        ),
    ],
)
def test_a_section_that_makes_no_sense_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(exceptions.NotLoggedIn) as raised:
        service(tmp_path, text).ask("GET", "/", "1.26")
    assert "[placement]" in str(raised.value) and told in str(raised.value)


def test_a_cloud_is_looked_for_in_the_copy_that_the_gateways_unit_names_and_no_other_variable_counts(
    tmp_path: Path, odd: type[Odd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself may be root's alone, and the gateway is not root."""
    unit = (CHECKOUT / "etc" / "systemd" / "vmqos-gateway.service").read_text()
    assert f"Environment={CLOUDS_VARIABLE}=%d/clouds.yaml" in unit
    endpoint = f"http://127.0.0.1:{odd.port}"  # type: ignore[attr-defined]
    copy = tmp_path / "clouds.yaml"
    copy.write_text(f"clouds: {{lab: {{auth_type: none, placement_endpoint_override: '{endpoint}'}}}}")
    odd.text = "{}"
    monkeypatch.setenv("OS_PLACEMENT_ENDPOINT_OVERRIDE", "http://127.0.0.1:1")
    monkeypatch.setenv("OS_CLOUD", "other")
    monkeypatch.setenv(CLOUDS_VARIABLE, str(copy))
    assert service(tmp_path, "os_cloud = lab\n").ask("GET", "/", "1.26") == Answer(200, {})


@pytest.mark.parametrize(
    "clouds", ["5", "[lab]", "{lab: 5}", "{lab: {auth: 5}}", "{lab: {auth_type: none, api_timeout: soon}}"]
)
def test_a_clouds_yaml_of_another_form_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clouds: str) -> None:
    copy = tmp_path / "clouds.yaml"
    copy.write_text(f"clouds: {clouds}")
    monkeypatch.setenv(CLOUDS_VARIABLE, str(copy))
    with pytest.raises(exceptions.NotLoggedIn, match=r"\[placement\].*os_cloud = lab.*clouds\.yaml"):
        service(tmp_path, "os_cloud = lab\n").ask("GET", "/", "1.26")


def test_a_clouds_yaml_or_a_certificate_that_is_a_fifo_is_named_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, copy = tmp_path / "fifo", tmp_path / "clouds.yaml"
    os.mkfifo(fifo)
    monkeypatch.setenv(CLOUDS_VARIABLE, str(fifo))
    told = f"{fifo} is no regular file"
    with pytest.raises(exceptions.NotLoggedIn, match=told):
        service(tmp_path, "os_cloud = lab\n").ask("GET", "/", "1.26")
    monkeypatch.setenv(CLOUDS_VARIABLE, str(copy))
    endpoint = "https://127.0.0.1:1"
    for files in (f"cacert: {fifo}", f"cert: {fifo}", f"cert: {copy}, key: {fifo}"):
        copy.write_text(f"clouds: {{lab: {{auth_type: none, placement_endpoint_override: '{endpoint}', {files}}}}}")
        with pytest.raises(exceptions.NotLoggedIn, match=told):
            service(tmp_path, "os_cloud = lab\n").ask("GET", "/", "1.26")
    login = f"auth_type = admin_token\ntoken = x\nendpoint = {endpoint}\n"
    for files in (f"cafile = {fifo}\n", f"certfile = {copy}\nkeyfile = {fifo}\n"):
        with pytest.raises(exceptions.NotLoggedIn, match=told):
            service(tmp_path, f"{login}{files}").ask("GET", "/", "1.26")


def test_a_password_with_a_plain_dollar_is_explained_and_not_told(tmp_path: Path) -> None:
    text = "auth_type = password\nauth_url = http://127.0.0.1:1/\nusername = nova\npassword = pa$word\n"
    with pytest.raises(exceptions.NotLoggedIn, match=r"a plain \$ is written \$\$") as raised:
        service(tmp_path, text).ask("GET", "/", "1.26")
    assert "word" not in str(raised.value)


def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    away = service(tmp_path, "auth_type = admin_token\ntoken = x\nendpoint = http://127.0.0.1:1\n")
    with pytest.raises(exceptions.Unreachable, match=r"Placement can't be reached: .*127\.0\.0\.1"):
        away.ask("GET", "/", "1.26")


def test_no_library_of_the_cloud_is_loaded_before_it_is_asked() -> None:
    code = (
        "import sys; from vmqos.agent import loop; from vmqos.conf import loader; "
        "agent = loop.Agent(loader.load(['--config-file', '/dev/null'])); "
        "print(sorted({'keystoneauth1', 'openstack', 'requests', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "<pre>GET /traits\nX-Auth-Token: tok-of-mine\n</pre>",
        json.dumps({"errors": [{"detail": "bad token gAAAAABmQ2l3-_xyzABCDEFghijkl=="}]}),
        json.dumps({"error": {"message": "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln is expired"}}),
        "x" * (4 * LONGEST_REASON - 20) + "gAAAAABmQ2l3-_xyzABCDEFghijkl==" + "x" * 10_000,
        " " * 4 * LONGEST_REASON + "y" * 400 + "gAAAAABmQ2l3-_xyz" + "x" * 10_000,
    ],
)
def test_what_is_told_of_an_answer_has_no_token(tmp_path: Path, odd: type[Odd], text: str) -> None:
    endpoint = f"http://127.0.0.1:{odd.port}"  # type: ignore[attr-defined]
    asked = service(tmp_path, f"auth_type = admin_token\ntoken = tok-of-mine\nendpoint = {endpoint}\n")
    odd.status, odd.text = 500, text
    with pytest.raises(exceptions.Refused) as raised:
        asked.ask("GET", "/traits", "1.26")
    told = str(raised.value)
    assert "tok-of-mine" not in told and "gAAAAA" not in told and "eyJ" not in told
    assert len(told) < LONGEST_REASON + 100
