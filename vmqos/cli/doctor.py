# SPDX-License-Identifier: Apache-2.0
"""``vmqos doctor``: what this host lacks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vmqos.cli.common import settings
from vmqos.cli.common.output import Listing, is_for_machines
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.tables import Cell
from vmqos.local_api.client import TIMEOUT, AgentClient

if TYPE_CHECKING:
    from vmqos.host.finding import Finding

_STYLES = {"ok": "green", "warning": "bold yellow", "problem": "bold red"}


class Doctor(Listing):
    """Check whether this host can keep promises, and say what mends what it lacks.

    Looks at the CPUs, the kernel, the resctrl mount and what is in it, libvirt, and the agent, which need not run.
    Run it as root, or some checks can't look.

    The exit status is 0 if no check found a problem (there may be warnings: things worth knowing that keep no
    promise from being kept), 1 if one did, 2 for wrong usage.

    For example::

        vmqos doctor --problems
        vmqos doctor -f json
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to leave out."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--problems", action="store_true", help="leave out what is fine")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Examine the host."""
        # Imported here: these reach for libvirt and resctrl, which the commands that ask the agent do not need.
        from vmqos.cli.placement import claim_checks
        from vmqos.host import doctor
        from vmqos.host.finding import Status

        options = self.app.options
        agent = settings.agent(options)
        conf = settings.configuration(options)
        # It hands the question on: where the agent hangs, it says so when its own patience, as long as ours, is over.
        gateway = AgentClient(conf.gateway.socket, 1.5 * TIMEOUT, program="vmqos-gateway")
        findings = doctor.examine(
            conf,
            agent.health,
            gateway.health,
            agent.hardware_events,
            check_claims=lambda: claim_checks.claims(conf, agent.vms),
            check_left_paused=lambda: _left_paused(conf.resctrl.path),
        )
        self.exit_status = int(any(finding.status is Status.PROBLEM for finding in findings))
        if parsed_args.problems:
            checks = len(findings)
            findings = [finding for finding in findings if finding.status is not Status.OK]
            if not findings and parsed_args.formatter == "table":
                self.app.stdout.write(f"Nothing to mend: {checks} checks are fine.\n")
        if is_for_machines(parsed_args):
            rows = [(finding.title, finding.status.value, finding.detail, finding.command) for finding in findings]
            return ("title", "status", "detail", "command"), rows
        return ("Check", "Status", "Finding"), [
            (
                finding.title,
                Cell(finding.status.value, style=_STYLES[finding.status.value]),
                neutralise(finding.detail) + (f"\n-> {neutralise(finding.command)}" if finding.command else ""),
            )
            for finding in findings
        ]


def _left_paused(resctrl_path: str) -> Iterator[Finding]:
    """The VMs that an experiment left paused; none while one runs, for what it pauses it lets run again."""
    from vmqos.bench import left_paused
    from vmqos.host.finding import Finding, Status
    from vmqos.host.single_instance import is_running

    for vm in () if is_running(resctrl_path, who="bench") else left_paused.find():
        yield Finding("Paused VM", Status.WARNING, f"{vm}, and does not run", vm.command)
