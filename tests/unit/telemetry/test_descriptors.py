# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.descriptors."""

import resource

import pytest

from vmqos.daemon import bounded_server
from vmqos.hypervisor import connection
from vmqos.telemetry import descriptors


@pytest.fixture
def limits(monkeypatch):
    """The process's limits, as they are told and set here and nowhere else."""
    now = {}

    def set_limit(what, wanted):
        if now.get("fixed"):
            raise ValueError("not allowed to raise maximum limit")
        now["limits"] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda what: now["limits"])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    return now


def test_the_soft_limit_is_raised_to_the_hard_one(limits):
    limits["limits"] = (1024, 4096)
    assert descriptors.raise_limit() == 4096 - 512
    assert limits["limits"] == (4096, 4096)


def test_where_it_can_not_be_raised_fewer_are_kept(limits):
    limits |= {"limits": (1024, 4096), "fixed": True}
    assert descriptors.raise_limit() == 1024 - descriptors.SPARE


def test_with_the_limit_of_the_units_enough_is_left_for_a_thousand_vms(limits):
    limits["limits"] = (65536, 65536)
    every = 2 * (descriptors.raise_limit() // 2)
    assert 65536 - every > 1000 + 2 * bounded_server.PLACES + 3 * connection.MOST + descriptors.SPARE


def test_a_tight_limit_keeps_none(limits):
    limits["limits"] = (64, 64)
    assert descriptors.raise_limit() == 0


def test_no_limit_is_no_hindrance(limits):
    limits["limits"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert descriptors.raise_limit() > 100_000
