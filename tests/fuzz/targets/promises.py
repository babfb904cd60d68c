# SPDX-License-Identifier: Apache-2.0
"""What a flavor promises."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from vmqos import extra_specs, group_names
from vmqos.extra_specs import CachePolicy, InvalidExtraSpecs, cpu_spec, resources


def specs(data: bytes) -> bool:
    found = dict(line.partition("=")[::2] for line in data.decode(errors="replace").split("\n"))
    parsed = extra_specs.parse(found)
    assert extra_specs.parse(extra_specs.relevant(found)).request == parsed.request
    assert bool(extra_specs.parse(extra_specs.relevant(found)).errors) is bool(parsed.errors)
    assert len("; ".join(map(str, parsed.errors))) < 20_000
    assert all(amount > 0 for amount in resources.asked(found).values())
    assert resources.required(found) <= set(resources.TRAITS)
    request = parsed.request
    if request is None:
        return False
    assert not parsed.errors
    resources.requested(request), resources.required_traits(request)
    with contextlib.suppress(InvalidExtraSpecs):
        extra_specs.check_vcpus(request, 4)
    shared = resources.shared_class(request)
    if shared is not None and extra_specs.asks_for(shared):
        # A class serves several VMs, whatever the policy: without ways, none can be asked for.
        told = group_names.class_request(group_names.class_group(shared))
        assert told == replace(shared, policy=CachePolicy.SHARED)
        assert resources.class_of(resources.class_name(shared)) == shared
    return True


def cpus(data: bytes) -> bool:
    text = data.decode(errors="replace")
    try:
        found = cpu_spec.parse(text)
    except ValueError:
        assert not extra_specs.VCPUS.takes(text), "the grammar takes it, the parser does not"
        return False
    assert found and cpu_spec.parse(cpu_spec.show(found)) == found
    return True


def shared_class(data: bytes) -> bool:
    try:
        found = resources.class_of(data.decode(errors="replace"))
    except ValueError:
        return False
    assert resources.class_of(resources.class_name(found)) == found
    assert resources.is_resource_class(resources.class_resource(found))
    return True
