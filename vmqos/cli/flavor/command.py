# SPDX-License-Identifier: Apache-2.0
"""``vmqos flavor``: promises in the flavors of a cloud."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vmqos import extra_specs
from vmqos.cli import exceptions
from vmqos.cli.common.output import Details, Listing, is_for_machines
from vmqos.cli.flavor import api, flavor_specs, host_offers, host_ways
from vmqos.cli.show.safe_text import neutralise
from vmqos.extra_specs import InvalidExtraSpecs, Key, SpecError


class Set(Details):
    """Put a promise into a flavor, and ask Placement for what it takes.

    Sets the extra specs hw:... that the options name, and leaves the others as they are. What the promise takes is
    asked of Placement too, with the traits that a host needs for it, so that Nova places a server only where it is
    left. Exclusive ways take resources:CUSTOM_LLC_WAYS and a control group, resources:CUSTOM_LLC_CLASSES; L2 ways and
    a limit in MB/s take a control group.

    A shared promise, or a limit in per cent alone, asks for its class, such as resources:CUSTOM_LLC_SHARED_WAYS4, if
    the hosts keep it ([allocation] shared_classes = ways4 in vmqos.conf). If Placement knows of no host that does, the
    flavor asks for nothing, and a line says so.

    --code-ways and --data-ways come together, and instead of --cache-ways; --bandwidth-mbps is instead of
    --bandwidth-percent. --policy stands beside L3 ways, --vcpus beside L3 or L2 ways. To go from one to the other,
    remove what the flavor promises with 'vmqos flavor unset' first.

    Running servers keep the promise that they were made with, until they are resized.

    The cloud is found as the openstack command does it: by clouds.yaml, or OS_AUTH_URL and its kin in the environment.

    For example::

        vmqos flavor set c2.cache --cache-ways 2
        vmqos flavor set c2.cache --cache-ways 4 --policy shared
        vmqos flavor set c2.split --code-ways 2 --data-ways 4
        vmqos flavor set c2.radio --l2-ways 4 --cache-ways 2 --vcpus 2-3
        vmqos flavor set c2.half --bandwidth-percent 50
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the flavor, and an option for each key of the grammar."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        for key in extra_specs.KEYS:
            parser.add_argument(
                key.option,
                dest=key.field,
                metavar=_metavar(key.option),
                type=_checked(key),
                choices=key.words or None,
                help=f"{key.name}: {key.allowed.replace('%', '%%')}",
            )
        parser.add_argument(
            "--filter-only",
            action="store_true",
            help="do not ask Placement, and remove what was asked: the scheduler's CacheWaysFilter counts alone",
        )
        _add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read the flavor, and write what differs."""
        given = {key.name: getattr(parsed_args, key.field) for key in extra_specs.KEYS}
        wanted = {name: value for name, value in given.items() if value is not None}
        if not wanted:
            what = f"at least one of {', '.join(key.option for key in extra_specs.KEYS)} is needed"
            raise exceptions.MissingArgument(what=what, command="flavor set")
        connection = api.connect(parsed_args.os_cloud)
        flavor = api.find(connection, parsed_args.flavor)
        placement, shared = not parsed_args.filter_only, flavor_specs.shared_to_ask_for(flavor.extra_specs, wanted)
        if placement and shared is not None and (problem := api.not_offered(connection, shared)):
            self.app.stderr.write(
                f"The flavor does not ask Placement for its class: {neutralise(problem)}. The scheduler's filter alone "
                "looks for hosts until [allocation] shared_classes on the hosts names the class, and the flavor is set "
                "again.\n"
            )
            placement = False
        try:
            change = flavor_specs.change(flavor.extra_specs, wanted, placement=placement, vcpus=flavor.vcpus)
        except InvalidExtraSpecs as error:
            problem = "; ".join(_told(error, wanted) for error in error.errors)
            if any(key.name in flavor.extra_specs for key in extra_specs.KEYS):
                problem += "; 'vmqos flavor unset' removes what it promises so far"
            raise exceptions.NoSuchPromise(flavor=neutralise(flavor.name), problem=problem) from error
        return _shown(flavor, api.apply(connection, flavor, change), parsed_args)


class Unset(Details):
    """Remove the promise from a flavor, and what it asks Placement for.

    All extra specs hw:... of vmqos are removed, and those that ask Placement for its resource classes and traits.
    Running servers keep the promise that they were made with, until they are resized.

    The cloud is found as the openstack command does it: by clouds.yaml, or OS_AUTH_URL and its kin in the environment.

    For example::

        vmqos flavor unset c2.cache
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the flavor."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        _add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read the flavor, and remove what is there."""
        connection = api.connect(parsed_args.os_cloud)
        flavor = api.find(connection, parsed_args.flavor)
        change = flavor_specs.clearing(flavor.extra_specs)
        return _shown(flavor, api.apply(connection, flavor, change), parsed_args)


class Check(Listing):
    """Find the flavors of the cloud whose promise is wrong, or is not what they ask Placement for.

    Looks at all flavors, those that are not public too; that takes an administrator or a reader of the system. Prints
    one line a problem: bad values, keys that look like one of vmqos and are none (hw_cache_ways), requests that
    Placement can't grant, L2 ways without pinned vCPUs, more ways than any host has, shared classes and traits that no
    host has. Only an administrator may ask Placement about hosts; for others, lines on standard error say that this was
    not checked.

    'vmqos flavor set' mends what a flavor asks Placement for, with its promise repeated; 'openstack flavor unset
    --property' removes a key that is none.

    The exit status is 0 if there is no problem, 1 if there is one or the cloud can't be asked, 2 for wrong usage.

    The cloud is found as the openstack command does it: by clouds.yaml, or OS_AUTH_URL and its kin in the environment.

    For example::

        vmqos flavor check
        vmqos flavor check --filter-only -f json
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what is right."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--filter-only",
            action="store_true",
            help="a flavor may ask Placement for nothing: the scheduler's CacheWaysFilter counts its servers",
        )
        _add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read all flavors."""
        connection = api.connect(parsed_args.os_cloud)
        flavors = sorted(api.flavors(connection), key=lambda flavor: str(flavor.name))
        misfits = self._misfits(connection, flavors)
        lacking = self._lacking(connection, flavors)
        found = [
            (flavor.name, flavor.id, problem)
            for flavor in flavors
            for problem in (
                *flavor_specs.problems(flavor.extra_specs, placement=not parsed_args.filter_only, vcpus=flavor.vcpus),
                *misfits.get(flavor.id, ()),
                *lacking.get(flavor.id, ()),
            )
        ]
        self.exit_status = int(bool(found))
        if is_for_machines(parsed_args):
            return ("flavor", "id", "problem"), found
        if not found and parsed_args.formatter == "table":
            self.app.stdout.write(f"Nothing to mend: {len(flavors)} flavors are fine.\n")
        return ("Flavor", "ID", "Problem"), [tuple(neutralise(str(field)) for field in row) for row in found]

    def _misfits(self, connection: Any, flavors: Iterable[Any]) -> dict[str, tuple[str]]:
        """What is wrong with the flavors that promise more ways, or fewer, than any host can promise; by ID."""
        promised = {flavor.id: flavor_specs.exclusive_ways(flavor.extra_specs) for flavor in flavors}
        amounts = set(promised.values()) - {0}
        try:
            misfits = host_ways.misfits(connection, amounts) if amounts else {}
        except exceptions.CloudFailed as error:
            problem = error.values["problem"]
            self.app.LOG.warning(f"it was not checked whether any host has the ways that flavors promise: {problem}")
            return {}
        return {flavor: (misfits[ways].told(ways),) for flavor, ways in promised.items() if ways in misfits}

    def _lacking(self, connection: Any, flavors: Iterable[Any]) -> dict[str, list[str]]:
        """What is wrong with the flavors that ask Placement for what no host has; by ID."""
        asked = {flavor.id: host_offers.asked(flavor.extra_specs) for flavor in flavors}
        try:
            lacking = host_offers.lacking(connection, frozenset[str]().union(*asked.values()))
        except exceptions.CloudFailed as error:
            problem = error.values["problem"]
            self.app.LOG.warning(f"it was not checked whether any host has what flavors ask Placement for: {problem}")
            return {}
        return {flavor: [lacking[name] for name in sorted(names & lacking.keys())] for flavor, names in asked.items()}


def _checked(key: Key) -> Callable[[str], str]:
    """What an option's value has to be; it stays the text that it is."""

    def check(text: str) -> str:
        try:
            key.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {key.allowed}") from error
        return text

    return check


def _told(error: SpecError, wanted: Mapping[str, str]) -> str:
    """What is wrong in the words of the command line: an option where it was given, and those that would help."""
    options = {key.name: key.option for key in extra_specs.KEYS}
    given = error.key in wanted
    what = f"{options[error.key]} {neutralise(error.value)}" if given else f"{error.key}={error.value!r} (as it is)"
    allowed = error.allowed
    for name, option in options.items():
        allowed = allowed.replace(name, f"{option} ({name})")
    return f"{what}: {allowed}"


def _metavar(option: str) -> str:
    return {"--policy": "POLICY", "--vcpus": "VCPUS"}.get(option, "NUMBER")


def _add_flavor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flavor", metavar="FLAVOR", help="its name or ID")


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--os-cloud", metavar="CLOUD", help="its name in clouds.yaml; that of OS_CLOUD by default")


def _shown(
    flavor: Any, specs: Mapping[str, str], parsed_args: argparse.Namespace
) -> tuple[Sequence[str], Iterable[Any]]:
    """The flavor with what it promises and asks for."""
    about = flavor_specs.shown(specs)
    if is_for_machines(parsed_args):
        return ("flavor", "id", "extra_specs"), (flavor.name, flavor.id, about)
    promise = "\n".join(f"{key}={neutralise(value)}" for key, value in about.items()) or "-"
    return ("Flavor", "ID", "Extra specs"), (neutralise(flavor.name), neutralise(flavor.id), promise)
