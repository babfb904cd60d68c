# SPDX-License-Identifier: Apache-2.0
"""Names that users choose, wherever they are shown: the log, the command, the metrics, the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from xml.sax.saxutils import escape, quoteattr

import libvirt
from prometheus_client.parser import text_string_to_metric_families

from tests.campaign.hostile.families.metadata import ROLES, instance, set_element
from tests.campaign.hostile.inputs import Attacker, Family, Harm, Hold, Input, Refused
from tests.campaign.hostile.stage import Stage
from tools.lab import vms

LONGEST = 255
"""Characters of a name in Nova: what is longer may be cut."""

SHOWN: dict[str, str] = {
    "an eight-bit escape sequence": "\u009b2Jweb",
    "a next-line character": "web\u0085x",
    "a line separator": "web\u2028x",
    "a right-to-left mark": "\u202egpj.exe",
    "a direction isolate": "\u2066a\u2069",
    "a zero-width space": "we\u200bb",
    "HTML": "<script>alert(1)</script>",
    "an image": '"><img src=x onerror=alert(1)>',
    "quotes and backslashes": "\"\\\"'\\'`",
    "a label of a metric": 'x",uuid="y"} 1\\n# HELP',
    "a shell command": "$(reboot); `reboot` | reboot",
    "a format": "%s%n%(name)s{0}{name}$name",
    "a path": "../../../../etc/passwd",
    "an option": "--help",
    "200 characters": "n" * 200,
    "100 000 characters": "n" * 100_000,
    "300 combining marks": "e" + "\u0301" * 300,
    "wide characters": "\u4e2d" * 100,
    "an emoji of many parts": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 20,
    "a tab and a line feed": "a\tb\nc",
    "JSON": '","state":"kept","x":"',
    "blanks only": "   ",
}
"""Names in Nova's metadata, of the instance and of its flavor."""

LIBVIRT_NAMES: dict[str, str] = {
    "an escape sequence": "\x1b[2Jvm",
    "a carriage return": "a\rb",
    "a line feed": "a\nb",
    "a slash": "../../etc/passwd",
    "a dot": ".",
    "200 bytes": "n" * 200,
    "HTML": "<b onclick=x>",
    "quotes": "\"'\\",
    "a right-to-left mark": "\u202egpj",
    "a name like a group": "vmqos.shared-ways2",
}
"""Names of libvirt's domains: it writes ``NAME.pid`` and makes a cgroup of the name."""


def check_shown(stage: Stage, uuid: str, name: str = "") -> None:
    """Look at every place that shows names.

    :param name: what the API must say the instance is called.
    :raises Harm: if one shows something raw, or can't be read any more.
    """
    vms_told = {vm["uuid"]: vm for vm in stage.ask("/v1/vms")["vms"]}
    if uuid not in vms_told:
        raise Harm("the VM is not in the list of the API")
    told = vms_told[uuid]["instance_name"]
    if name and told not in (name, name.strip()) and not (len(told) >= LONGEST and name.startswith(told)):
        raise Harm(f"the API calls it {told[:80]!r}")
    try:
        samples = [one for family in text_string_to_metric_families(stage.fetch("/metrics")) for one in family.samples]
    except ValueError as error:
        raise Harm(f"the metrics can't be parsed: {error}") from error
    if not any(sample.labels.get("uuid") == uuid for sample in samples):
        raise Harm("the VM is not among the metrics")
    commands = (["vm", "list"], ["vm", "show", uuid], ["vm", "list", "-f", "json"])
    *_, answer = outputs = stage.commands(*commands)
    for arguments, output in zip(commands, outputs, strict=True):
        _check_text(output, arguments)
    try:
        json.loads(answer)
    except ValueError as error:
        raise Harm(f"the command's JSON can't be parsed: {error}") from error


def _check_text(output: bytes, arguments: list[str]) -> None:
    if not output:
        raise Harm(f"vmqos {' '.join(arguments)} printed nothing")
    try:
        text = output.decode()
    except UnicodeDecodeError as error:
        raise Harm(f"vmqos {' '.join(arguments)} printed no UTF-8: {error}") from error
    raw = sorted({character for character in text if not character.isprintable()} - {"\n"})
    if raw:
        raise Harm(f"vmqos {' '.join(arguments)} printed {''.join(raw)!r}")


def _shown(stage: Stage, role: str, name: str, checked: bool) -> Hold:
    vm = stage.cloud_vm(role)
    set_element(stage, role, instance(f"<n:name>{escape(name)}</n:name><n:flavor name={quoteattr(name)}/>"))
    yield
    if checked:
        check_shown(stage, vm.uuid, name)
    set_element(stage, role, instance('<n:flavor name="plain"/>'))


def _called(stage: Stage, name: str) -> Hold:
    vm = vms.Vm(name, vms.Flavor("hostile"), display_name="hostile")
    connection = stage.host.connection()
    try:
        try:
            vms.start(connection, vm)
        except libvirt.libvirtError as error:
            raise Refused(f"libvirt: {str(error).strip()[:120]}") from error
        yield
        check_shown(stage, vm.uuid)
    finally:
        vms.remove(connection, vm.uuid)


def _inputs() -> Iterator[Input]:
    for number, (what, name) in enumerate(SHOWN.items()):
        turn, role = divmod(number, len(ROLES))
        act = partial(_shown, role=ROLES[role], name=name, checked=True)
        yield Input(f"an instance and a flavor called {what}", Attacker.CLOUD_USER, act, f"names {turn + 1}")
    for number, (what, name) in enumerate(LIBVIRT_NAMES.items()):
        act = partial(_called, name=name)
        batch = f"domains {number // 5 + 1}"
        yield Input(f"a domain called {what}", Attacker.CLOUD_USER, act, batch)


FAMILY = Family("names", "names of VMs and flavors", tuple(_inputs()))
