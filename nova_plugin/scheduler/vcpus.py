# SPDX-License-Identifier: Apache-2.0
"""Whether a server's vCPUs are as its promise needs them, on whatever host."""

from __future__ import annotations

from typing import Any

from vmqos import extra_specs
from vmqos.extra_specs import L2_WAYS, CacheRequest, InvalidExtraSpecs, SpecError

_PINNED = "allowed only where each vCPU that gets the ways is pinned, as hw:cpu_policy=dedicated has it"


def check(request: CacheRequest, spec_obj: Any) -> None:
    """See to it that the server has the vCPUs that the promise names, and that those that get L2 ways are pinned.

    Pinned are those of ``pcpuset`` in the server's NUMA topology: Nova makes it of ``hw:cpu_policy`` in the flavor and
    ``hw_cpu_policy`` in the image (``nova.virt.hardware.numa_get_constraints``).

    :param spec_obj: the RequestSpec.
    :raises vmqos.extra_specs.InvalidExtraSpecs: if no host could keep the promise.
    """
    if request.vcpus is None and request.l2_ways is None:
        return
    count = spec_obj.flavor.vcpus
    extra_specs.check_vcpus(request, count)
    if request.l2_ways is not None and not (request.vcpus or frozenset(range(count))) <= _pinned(spec_obj):
        raise InvalidExtraSpecs((SpecError(L2_WAYS.name, str(request.l2_ways), _PINNED),))


def _pinned(spec_obj: Any) -> frozenset[int]:
    topology = spec_obj.numa_topology if spec_obj.obj_attr_is_set("numa_topology") else None
    return frozenset().union(*(cell.pcpuset for cell in topology.cells)) if topology else frozenset()
