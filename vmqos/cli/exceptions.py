# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a command: one class a failure, its message what the operator should do."""

from __future__ import annotations


class CommandError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "the command failed"

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class NoSuchVm(CommandError):
    """No running VM has that UUID or name."""

    msg_fmt = "no running VM has the UUID or name '{wanted}'; 'vmqos vm list' shows them all"


class VmNotServed(CommandError):
    """The VM runs, and the agent could not look at it yet."""

    msg_fmt = "VM {uuid} runs and is not served, so nothing is known of it: {problem}"


class CachesUnknown(CommandError):
    """The agent can't read resctrl now."""

    msg_fmt = "the caches are not known now: {problem}; see 'vmqos doctor'"


class NoVmWithEvents(CommandError):
    """No VM that runs, or that an event is about, has that UUID or name."""

    msg_fmt = (
        "no VM that runs or is named in an event here has the UUID or name '{wanted}'; 'vmqos events' shows all events"
    )


class AmbiguousVm(CommandError):
    """Several VMs match."""

    msg_fmt = "'{wanted}' fits {count} VMs, give more of the UUID: {matches}"


class AgentTooOld(CommandError):
    """The agent does not know the question."""

    msg_fmt = "the vmqos-agent that runs is of an earlier version, which does not judge neighbours; upgrade it"


class NothingSampled(CommandError):
    """The agent samples nothing."""

    msg_fmt = "there is nothing to record: the agent does not read the counters regularly ([telemetry] interval is 0)"


class NoCulprit(CommandError):
    """No neighbour is said to slow the VM."""

    msg_fmt = (
        "no VM is said to slow {vm}, so it is not known whom to hold back; 'vmqos neighbours {vm}' says more, and "
        "--culprit names a VM"
    )


class UsageError(CommandError):
    """The command line is wrong in a way that argparse does not see; the exit status says so."""


class NotTogether(UsageError):
    """Options that contradict each other, or the command's arguments."""

    msg_fmt = "{problem}; see 'vmqos help {command}'"


class TooSeldom(CommandError):
    """A trial is too short for the samples that it needs."""

    msg_fmt = (
        "the agent reads the counters every {interval:g} s, and a trial lasts {longest:g} s at most: that are too few "
        "samples; lower [telemetry] interval"
    )


class NoLimitPossible(CommandError):
    """The host has nothing to hold a VM back with."""

    msg_fmt = (
        "{vm} can't be held back: this host's memory bandwidth can't be throttled by resctrl, which needs MBA in the "
        "CPU and in the kernel (info/MB in resctrl), {problem}"
    )


class NoTrials(CommandError):
    """The agent does not know trials, or not on this socket."""

    msg_fmt = (
        "no trial can be had here: the vmqos-agent that runs is of an earlier version, or this is not its own socket "
        "([api] socket)"
    )


class AgentOfAnotherVersion(CommandError):
    """The agent takes a question for a wrong one, and is of another version than the command."""

    msg_fmt = (
        "the vmqos-agent that runs is of version {agent}, this command is of version {command}, and the agent takes "
        "what it asks for to be wrong: {problem}; after an upgrade, restart the agent ('systemctl restart vmqos-agent')"
    )


class TrialLost(CommandError):
    """A trial ended before its time."""

    msg_fmt = "the trial ended before its time, and nothing can be said: {problem}; {state}"


class NotPutBack(CommandError):
    """A VM on which something was tried does not have yet what it had."""

    msg_fmt = (
        "{vm} does not have yet what it had before the trial ({problem}): look at 'vmqos vm show {vm}' and at "
        "'journalctl -u vmqos-agent'"
    )


class NothingToSize(CommandError):
    """The VM can't be let have ways of its own, one after the other."""

    msg_fmt = "{vm} can't be sized: {problem}"


class NoVmOfFlavor(CommandError):
    """No VM of that flavor runs here."""

    msg_fmt = "no VM of the flavor '{wanted}' runs here; the flavors that do are: {known}"


class NoFreeWays(CommandError):
    """No further way can be tried."""

    msg_fmt = (
        "no way is free on L3 cache {cache} beside the {ways} of {vm}, so there is nothing to try; 'vmqos cache show' "
        "says who has the others"
    )


class TooManyToBegin(CommandError):
    """No way is left beside those with which a VM would begin."""

    msg_fmt = (
        "--from {wanted} leaves nothing to try: {vm} has {ways} ways, {free} more are free on L3 cache {cache}, and "
        "one of them at least has to be left to compare with; 'vmqos cache show' says who has the others"
    )


class TooFewFreeWays(CommandError):
    """No two numbers of ways can be tried on a VM that has none of its own."""

    msg_fmt = (
        "{free} ways in one piece are free on L3 cache {cache}, and more than the {ways} with which {vm} begins are "
        "needed to compare; 'vmqos cache show' says who has the others"
    )


class LivesOnMore(CommandError):
    """A VM that left ways behind goes on finding much there."""

    msg_fmt = (
        "how many ways {vm} needs can't be told: with {ways} ways, in which {fits} fit, it still finds {left} in ways "
        "that it left. It uses that more often than others bring in something there. Size it while other VMs do more, "
        "or resize it to a flavor with ways of its own: then it leaves nothing behind"
    )


class NotCounted(CommandError):
    """What a VM does with its ways is not known."""

    msg_fmt = "how many ways {vm} needs can't be told: {problem}; see 'vmqos doctor'"


class BadRecording(CommandError):
    """A file is no recording, or something in it can't be."""

    msg_fmt = "{path} can't be replayed: line {line}: {problem}"


class NotInRecording(CommandError):
    """The recording has no such VM, or is not that long."""

    msg_fmt = "{path} has no {wanted}: {there_is}"


class NoSuchCache(CommandError):
    """No cache of that level that can be partitioned has that id."""

    msg_fmt = "there is no {level} cache to partition with the id '{wanted}'; there are: {known}"


class NoSuchColumn(UsageError):
    """-c names a column that the command does not print."""

    msg_fmt = "there is no column '{wanted}' with this format; there are: {known}"


class AgentStillRuns(CommandError):
    """Resetting under a running agent undoes nothing."""

    msg_fmt = (
        "vmqos-agent runs and would make its groups again at once; stop it first with "
        "'systemctl stop vmqos-agent', or insist with --force"
    )


class NotConfirmed(CommandError):
    """The operator said no, or could not be asked."""

    msg_fmt = "nothing was changed: {reason}"


class MissingArgument(UsageError):
    """An argument that this way of calling the command needs."""

    msg_fmt = "{what}; see 'vmqos help {command}'"


class RefusedExtraSpecs(UsageError):
    """The agent says that the extra specs are none."""

    msg_fmt = "{problem}"


class NoSuchProfile(UsageError):
    """No simulated machine has that name."""

    msg_fmt = "there is no simulated machine '{wanted}'; there are: {known}"


class NoSuchMountOption(CommandError):
    """The simulated machine can't be mounted like this."""

    msg_fmt = (
        "the machine '{profile}' can't be mounted with '{options}': there are cdp, cdpl2, mba_MBps and debug, joined "
        "by commas, and it takes those whose hardware it has"
    )


class NoFuse(CommandError):
    """The simulator can't be mounted."""

    msg_fmt = (
        "the simulator can't be mounted ({problem}): it needs root, the package fuse3 ('apt install fuse3') "
        "and mfusepy ('pip install vmqos[simulator]')"
    )


class NoSuchDefinitions(CommandError):
    """The file that Ceilometer should read is not there, so it reads the one in its package."""

    msg_fmt = (
        "there is no {path}: Ceilometer reads the one of its own package then; copy that one there first "
        "(publisher/data/gnocchi_resources.yaml in the directory of the Python package ceilometer)"
    )


class NoResourceDefinitions(CommandError):
    """A file is not what it should be."""

    msg_fmt = "{path} is no gnocchi_resources.yaml that metrics can be added to: {problem}"


class UnusableFile(CommandError):
    """A file can't be read or written."""

    msg_fmt = "can't use {path}: {problem}"


class NotEmpty(CommandError):
    """A mount would hide what is in a directory."""

    msg_fmt = (
        "something is in the directory {path} already, a resctrl that is mounted there for instance; name one that is "
        "empty or not there yet"
    )


class NoSuchFlavor(CommandError):
    """No flavor of the cloud has that name or ID."""

    msg_fmt = "the cloud has no flavor with the name or ID '{wanted}'; 'openstack flavor list --all' shows them all"


class NoSuchPromise(CommandError):
    """What a flavor would promise is not to be understood."""

    msg_fmt = "flavor {flavor} was not changed: {problem}"


class CloudFailed(CommandError):
    """The cloud can't be found, can't be reached, or refuses."""

    msg_fmt = (
        "the cloud can't be asked: {problem}; it is described by OS_... in the environment or by clouds.yaml, "
        "as for 'openstack flavor list'"
    )


class NoSuchHost(CommandError):
    """Placement has no resource provider of that name."""

    msg_fmt = "Placement has no compute node '{wanted}'; 'openstack hypervisor list' shows the hypervisor hostnames"


class GatewayWouldTell(CommandError):
    """A host whose agent runs can't be withdrawn."""

    msg_fmt = (
        "vmqos-agent runs, and vmqos-gateway would tell Placement again what this host has; stop the agent first with "
        "'systemctl stop vmqos-agent'"
    )


class PlacementNotTold(CommandError):
    """The groups are gone, and OpenStack still takes this host for one that keeps promises."""

    msg_fmt = (
        "Nova may still place servers with a promise here, for OpenStack was not told: {problem}; "
        "run 'vmqos placement withdraw' when that is mended"
    )
