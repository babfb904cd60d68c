# SPDX-License-Identifier: Apache-2.0
"""The line ``MB`` of ``schemata``."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.registers import amd_limit, intel_delay, slow_limit

UNLIMITED = 4294967295


@needs.BANDWIDTH
def test_a_class_starts_without_a_limit(rdt):
    rdt.group("g")
    most = rdt.profile.bandwidth.max
    assert rdt.bandwidths() == dict.fromkeys(rdt.cache_ids(3), most)
    assert rdt.bandwidths("g") == dict.fromkeys(rdt.cache_ids(3), most)


@needs.INTEL_BANDWIDTH
def test_a_percentage_is_rounded_up_to_the_hardwares_step(rdt):
    rdt.group("g")
    for written, kept in ((100, 100), (91, 100), (90, 90), (55, 60), (51, 60), (50, 50), (11, 20), (10, 10)):
        assert rdt.write("g/schemata", f"MB:1={written}\n") == done()
        assert rdt.bandwidths("g") == {0: 100, 1: kept}
        assert rdt.register(3, 1, intel_delay(1)) == 100 - kept
    assert rdt.register(3, 0, intel_delay(1)) == 0


@needs.INTEL_BANDWIDTH
def test_a_percentage_out_of_range_is_told_with_the_range(rdt):
    for wrong in (0, 1, 9, 101, 400, UNLIMITED):
        assert rdt.write("schemata", f"MB:0={wrong}\n") == invalid(f"MB value {wrong} out of range [10,100]")
    assert rdt.bandwidths() == {0: 100, 1: 100}


@needs.ARM_BANDWIDTH
def test_a_single_per_cent_is_a_step_where_the_hardware_has_such(rdt):
    rdt.group("g")
    for value in (100, 99, 41, 1):
        assert rdt.write("g/schemata", f"MB:1={value}\n") == done()
        assert rdt.bandwidths("g") == {0: 100, 1: value}
    for wrong in (0, 101, UNLIMITED):
        assert rdt.write("g/schemata", f"MB:0={wrong}\n") == invalid(f"MB value {wrong} out of range [1,100]")


@needs.AMD_BANDWIDTH
def test_a_limit_in_eighths_of_gigabytes_is_taken_as_it_is(rdt):
    rdt.group("g")
    for value in (0, 1, 7, 16, 2047, 2048):
        assert rdt.write("g/schemata", f"MB:2={value}\n") == done()
        assert rdt.bandwidths("g")[2] == value
        assert rdt.register(3, 2, amd_limit(1)) == value
    assert rdt.register(3, 0, amd_limit(1)) == 2048


@needs.AMD_BANDWIDTH
def test_a_limit_beyond_the_greatest_is_told_with_the_range(rdt):
    for wrong in (2049, 4096, UNLIMITED):
        assert rdt.write("schemata", f"MB:0={wrong}\n") == invalid(f"MB value {wrong} out of range [0,2048]")
    assert rdt.register(3, 0, amd_limit(0)) == 2048


@needs.BANDWIDTH
def test_a_bandwidth_is_a_decimal_number(rdt):
    for wrong in ("abc", "0x32", "-10", "50%", "5.5", "", "50 60", "4294967346", "99999999999999999999", "5e1"):
        assert rdt.write("schemata", f"MB:0={wrong}\n") == invalid(f"Invalid MB value {wrong}")
    for text in ("050", "+50", " 50", "50 "):
        assert rdt.write("schemata", f"MB:0={text}\n") == done()
        assert rdt.bandwidths()[0] == 50


@needs.BANDWIDTH
def test_a_bandwidth_has_the_same_grammar_as_a_mask(rdt):
    assert rdt.write("schemata", "MB:\n") == invalid("Missing 'MB' value")
    assert rdt.write("schemata", "MB:0\n") == invalid("Missing '=' or non-numeric domain")
    assert rdt.write("schemata", "MB: 0=50\n") == invalid("Missing '=' or non-numeric domain")
    assert rdt.write("schemata", "MB:0=50;0=60\n") == invalid("Duplicate domain 0")
    assert rdt.write("schemata", "MB:99=50\n") == refused("EINVAL")
    assert rdt.write("schemata", "mb:0=50\n") == invalid("Unknown or unsupported resource name 'mb'")


@needs.BANDWIDTH
def test_caches_have_bandwidths_of_their_own(rdt):
    assert rdt.write("schemata", "MB:0=50;1=70\n") == done()
    assert rdt.write("schemata", "MB:1=30\n") == done()
    found = rdt.bandwidths()
    assert (found[0], found[1]) == (50, 30)


@needs.BANDWIDTH
def test_size_repeats_the_bandwidth(rdt):
    assert rdt.write("schemata", "MB:0=50\n") == done()
    assert rdt.lines("size")["MB"] == {number: str(value) for number, value in rdt.bandwidths().items()}


@needs.SLOW_BANDWIDTH
def test_bandwidth_of_slow_memory_is_a_line_of_its_own(rdt):
    before = rdt.lines("schemata")
    assert rdt.write("schemata", "SMBA:1=8\n") == done()
    now = rdt.lines("schemata")
    assert int(now["SMBA"][1]) == 8 == rdt.register(3, 1, slow_limit(0))
    assert {**now, "SMBA": before["SMBA"]} == before
    assert rdt.write("schemata", "SMBA:1=2049\n") == invalid("MB value 2049 out of range [0,2048]")


@needs.NO_BANDWIDTH
def test_a_machine_without_bandwidth_allocation_knows_no_such_line(rdt):
    assert rdt.write("schemata", "MB:0=50\n") == invalid("Unknown or unsupported resource name 'MB'")


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_a_class_starts_unlimited(bare):
    assert bare.mount("mba_MBps") is None
    bare.group("g")
    assert bare.bandwidths() == {0: UNLIMITED, 1: UNLIMITED}
    assert bare.bandwidths("g") == {0: UNLIMITED, 1: UNLIMITED}


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_any_number_of_megabytes_is_taken_as_it_is(bare):
    assert bare.mount("mba_MBps") is None
    for value in (0, 1, 55, 500, 4294967294, UNLIMITED):
        assert bare.write("schemata", f"MB:1={value}\n") == done()
        assert bare.bandwidths() == {0: UNLIMITED, 1: value}
        assert bare.lines("size")["MB"] == {0: str(UNLIMITED), 1: str(value)}


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_what_is_no_number_is_told(bare):
    assert bare.mount("mba_MBps") is None
    for wrong in ("abc", "-1", "4294967296", "5.5", ""):
        assert bare.write("schemata", f"MB:0={wrong}\n") == invalid(f"Invalid MB value {wrong}")
    assert bare.bandwidths()[0] == UNLIMITED


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_a_limit_stays_though_a_later_line_is_refused(bare):
    assert bare.mount("mba_MBps") is None
    assert bare.write("schemata", "MB:0=500\nL3:0=zz\n") == invalid("Non-hex character in the mask zz")
    assert bare.bandwidths()[0] == 500


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_the_same_cache_twice_is_the_later_value(bare):
    assert bare.mount("mba_MBps") is None
    assert bare.write("schemata", "MB:0=500;0=600\n") == done()
    assert bare.bandwidths()[0] == 600


@needs.BANDWIDTH_CONTROLLER
def test_with_mba_mbps_a_removed_groups_limit_does_not_come_back(bare):
    assert bare.mount("mba_MBps") is None
    bare.group("g")
    assert bare.write("g/schemata", "MB:0=500\n") == done()
    assert bare.rmdir("g").errno is None
    bare.group("g")
    assert bare.bandwidths("g") == {0: UNLIMITED, 1: UNLIMITED}
