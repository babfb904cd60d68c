# SPDX-License-Identifier: Apache-2.0
"""The targets: which text each reads, and by which function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CORPUS, FINDINGS = HERE / "corpus", HERE / "findings"

Parse = Callable[[bytes], bool]
"""Hands bytes to one parser: ``True`` if it took them, ``False`` if it refused them by an error that it documents.

Every other exception is a finding, and so is an ``AssertionError``, by which the target says that a rule is broken.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, and what is known of its texts.

    :ivar name: also that of its folders in ``corpus`` and ``findings``.
    :ivar text: which text it reads, for people.
    :ivar function: where its :data:`Parse` is: ``MODULE:FUNCTION``, the module below :mod:`tests.fuzz.targets`.
    :ivar words: what its texts are made of, beside what the corpus shows.
    :ivar longest: bytes of an input, at most.
    :ivar is_json: whether lines of it are JSON, of which an engine is to change values (:mod:`.json_edits`).
    """

    name: str
    text: str
    function: str
    words: tuple[str, ...] = ()
    longest: int = 4096
    is_json: bool = False

    def load(self) -> Parse:
        """The function; its module is imported only now, so that an engine can instrument what it imports."""
        module, _, name = self.function.partition(":")
        found: Parse = getattr(importlib.import_module(f"tests.fuzz.targets.{module}"), name)
        return found

    def inputs(self) -> list[Path]:
        """The inputs that are kept: those of the corpus, and those that were findings."""
        return [path for folder in (CORPUS, FINDINGS) for path in sorted((folder / self.name).glob("*"))]


_XML = ("<![CDATA[", "]]>", "&#13;", "&#0;", "<!--", "-->", "xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'")
_JSON = ("null", "true", "[]", "{}", "-1", "1e400", "NaN", '"\\ud800"', "99999999999999999999")
_HTTP = ("GET ", "PUT ", "HEAD ", " HTTP/1.1\r\n", "Host: ", "Transfer-Encoding: chunked\r\n", "Content-Length: 1\r\n")
_DIGITS = "9" * 60
"""A part of more digits than Python makes a number of (:data:`tests.fuzz.trial.FEWEST_DIGITS`)."""

TABLE = (
    Target(
        "schemata",
        "a group's schemata",
        "resctrl:schemata_file",
        ("L3:", "MB:", "uninitialized", _DIGITS),
        8192,
    ),
    Target("info", "resctrl's info/", "resctrl:info", ("\n== ", "io_alloc", "min_bandwidth", "sparse_masks")),
    Target("groups", "all groups of resctrl", "resctrl:all_groups", ("\n== ", "pseudo-locked", "exclusive", "P")),
    Target("counters", "a counter of mon_data", "resctrl:counter", ("Unavailable", "1e3", "_", _DIGITS), 8192),
    Target(
        "assignments",
        "counters' assignments (AMD)",
        "resctrl:assignments",
        ("\n== ", "[mbm_event]", "0=_;", "//"),
    ),
    Target("tasks", "a group's tasks", "resctrl:tasks_file", (_DIGITS,), 8192),
    Target("cpu-list", "a list of CPUs of sysfs or libvirt", "resctrl:cpu_list", ("0-99999,",), 8192),
    Target("group-name", "the name of a group", "resctrl:group_name", ("vmqos.", "shared-", "ways", "-mb", "mbps")),
    Target("mounts", "/proc/self/mounts, cpuinfo, cmdline", "resctrl:mounts", ("\n== ", "\\040", "\\000", "fuse.x")),
    Target("mountinfo", "/proc/self/mountinfo", "proc:mountinfo", (" - cgroup2 ", "\\040", "\\000", "\\777")),
    Target(
        "cgroup",
        "/proc/PID/cgroup, in the mounts",
        "proc:cgroup",
        ("\n== ", "0::/", "machine-qemu\\x2d", "\\000"),
    ),
    Target("cmdline", "/proc/PID/cmdline", "proc:cmdline", ("\0-uuid\0", "38c43823-3651-469c-b344-166d1c87d77b")),
    Target("stat", "/proc/PID/stat", "proc:stat", ("(", ")", ") Z ", _DIGITS)),
    Target("status", "/proc/PID/status", "proc:status", ("Tgid:\t", "\nUid:\t", _DIGITS)),
    Target(
        "locks", "/proc/locks, and the holder's name", "proc:locks", ("\n== ", "FLOCK", "FILE", "-> ", "4711", _DIGITS)
    ),
    Target("maps", "/proc/PID/maps", "proc:maps", ("\n== ", "/dev/null\n", "00001000-00002000 ", _DIGITS)),
    Target("domain-xml", "a VM's domain XML", "libvirt:domain", (*_XML, "cpuset='", "current='"), 8192),
    Target(
        "status-file",
        "libvirt's status file of a VM",
        "libvirt:status",
        (*_XML, "<domstatus", "cpuset='"),
        8192,
    ),
    Target("metadata", "Nova's metadata in it", "libvirt:metadata", (*_XML, "<nova:extraSpec name='"), 8192),
    Target("memory-xml", "a domain XML that is changed", "libvirt:memory", (*_XML, "cpuset='", "qemu:arg"), 8192),
    Target("extra-specs", "a flavor's extra specs", "promises:specs", ("hw:cache_", "resources:", _DIGITS), 8192),
    Target("cpu-spec", "hw:cache_vcpus", "promises:cpus", ("0-9999,", "^")),
    Target("shared-class", "the name of a shared class", "promises:shared_class", ("ways", "code", "mbps", _DIGITS)),
    Target(
        "agent-api",
        "a request to the agent",
        "api:agent",
        (
            *_HTTP,
            "/v1/plan?spec=hw%3A",
            "seconds=",
            "/v1/flavors/",
            "/v1/trials/",
            "key=",
            "hw:mem_bandwidth_percent=",
            "hw:cache_ways=",
            "/v1/sizes/",
            "curve=2:0.9:1.61,3:",
            "at_least=true&",
        ),
    ),
    Target(
        "gateway-api",
        "a request to the gateway",
        "api:gateway",
        (*_HTTP, "/metrics", "/v1/vms/", "/page/", "%2e%2e"),
    ),
    Target("agent-answer", "an answer of the agent", "api:answer", _JSON, 8192, is_json=True),
    Target("metrics", "the agent's answers, as metrics", "api:metrics", ("\n== ", *_JSON), 8192, is_json=True),
    Target("placement", "an answer of Placement", "openstack:placement", _JSON, is_json=True),
    Target("nova", "an answer of Nova", "openstack:nova", _JSON, is_json=True),
    Target("gnocchi-yaml", "gnocchi_resources.yaml", "gnocchi:resources", ("&a", "*a", "2001-99-99", "metrics:"), 8192),
    Target(
        "provider-yaml",
        "provider.yaml",
        "openstack:provider_yaml",
        ("!!int ", "&a", "*a", "<<: ", "2001-99-99"),
    ),
    Target(
        "recording",
        "a recording of a kernel",
        "recordings:recording",
        ("\n", '{"op": "tree", "sec": 0}', "\u2028"),
        is_json=True,
    ),
    Target(
        "neighbours",
        "a recording of neighbours",
        "neighbours:recording",
        ("\n", '{"host":', '{"time":', _DIGITS, *_JSON),
        8192,
        is_json=True,
    ),
)
"""Every target."""

CONTROL = Target("control", "a parser with a planted defect", "control:parse", ("wa", "ys"), 64)
"""It is fuzzed before the others, to see that the engine finds anything at all."""

BY_NAME = {target.name: target for target in (*TABLE, CONTROL)}
