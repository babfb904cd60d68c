# SPDX-License-Identifier: Apache-2.0
"""Why the experiment can't be made: one class a reason, its message what it would take."""

from __future__ import annotations


class BenchError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "the experiment failed"

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class NoL3Allocation(BenchError):
    """Nothing to protect the victim with."""

    msg_fmt = (
        "{path} offers no L3 to partition (there is no info/L3 and no info/L3CODE), so nothing can be protected: the "
        "experiment needs a processor with L3 cache allocation; see 'vmqos doctor'"
    )


class NoSuchCache(BenchError):
    """No L3 cache has that id."""

    msg_fmt = "there is no L3 cache with the id {wanted}; there are: {known}"


class TooFewCores(BenchError):
    """Victim and neighbour would share a core, and disturb each other by more than the cache."""

    msg_fmt = (
        "the experiment needs two cores that share an L3 cache, one for the victim and one for its neighbour, which "
        "this command may use (its CPU affinity) and no control group has in its cpus_list: {found}"
    )


class TooFewWays(BenchError):
    """The default group can't lend that many ways."""

    msg_fmt = (
        "the experiment needs {wanted} of L3 cache {cache} that no group but the default group "
        "holds, at one end of its mask so that it keeps {floor} or more; it can lend {most}. Reserved ways are not "
        "lent, and I/O ways only with [allocation] use_shareable_ways. {found}"
    )


class TooFewClosids(BenchError):
    """No control group is left for the victim."""

    msg_fmt = (
        "the experiment needs one more control group, and all {total} CLOSIDs are taken; remove a group that is not "
        "needed, or stop a VM that has ways of its own"
    )


class UnknownSize(BenchError):
    """The kernel does not say how large the cache is."""

    msg_fmt = "the kernel does not say how large L3 cache {cache} is ({sysfs}): say --working-set"


class AnotherRun(BenchError):
    """Two experiments at a time would measure each other."""

    msg_fmt = "another 'vmqos bench' runs on this host (process {owner} holds {path}); wait for its end"


class LoadFailed(BenchError):
    """A load did not start, or ended by itself."""

    msg_fmt = "{what} failed: {problem}"


class NoLibvirt(BenchError):
    """VMs can't be asked for."""

    msg_fmt = "libvirt at {uri} can't be asked for VM '{wanted}': {problem}"


class NoSuchVm(BenchError):
    """No running VM has that UUID or name."""

    msg_fmt = "no running VM has the UUID or name '{wanted}'"


class AmbiguousVm(BenchError):
    """Several running VMs have that name."""

    msg_fmt = "several VMs are called '{wanted}'; give the UUID of one: {matches}"


class VmHasWays(BenchError):
    """Who has a promise must not lose it for an experiment."""

    msg_fmt = (
        "VM {name} has tasks in a control group of their own ({count} of {total} tasks are not in the default group): "
        "the experiment is for VMs without a promise, whose ways would be taken otherwise"
    )


class VmNotConfined(BenchError):
    """The VM can't be measured on one cache."""

    msg_fmt = (
        "VM {name} may run on the CPUs {cpus}, which belong to the L3 caches {caches}: the experiment needs it "
        "confined to those of one; pin it with 'virsh vcpupin' and 'virsh emulatorpin'"
    )


class VmsShareCpus(BenchError):
    """They would measure how time is shared, not the cache."""

    msg_fmt = "{one} and {other} may run on the same CPUs ({cpus}): the experiment needs them on cores of their own"


class VmNotRunning(BenchError):
    """A paused VM makes no noise, and to let it run is the operator's decision."""

    msg_fmt = "VM {name} does not run (it is paused or shut off)"


class Disturbed(BenchError):
    """Another program changed our group while the protected victim was measured."""

    msg_fmt = (
        "another program changed the group {group} during the measurement ({problem}), which says nothing then; "
        "measure again"
    )
