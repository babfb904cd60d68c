# SPDX-License-Identifier: Apache-2.0
"""What ``info`` says of a machine, and which of its files can be written."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.differences import ASSIGNMENT_MODE, IO_ALLOC
from tests.conformance.layout import every_way
from tests.conformance.machines import monitoring_of
from tests.conformance.registers import event_configuration


def test_each_resource_has_a_folder(rdt):
    wanted = [cache.name for cache in needs.caches_of(rdt.profile)]
    wanted += ["MB"] if rdt.profile.bandwidth else []
    wanted += ["SMBA"] if rdt.profile.slow_bandwidth else []
    wanted += ["L3_MON"] if rdt.profile.monitoring else []
    wanted += ["PERF_PKG_MON"] if rdt.profile.packages else []
    assert rdt.ls("info") == sorted([*wanted, "last_cmd_status"])


def test_a_cache_has_these_files(rdt, cache):
    files = ["bit_usage", "cbm_mask", "min_cbm_bits", "num_closids", "shareable_bits", "sparse_masks"]
    devices = ["io_alloc", "io_alloc_cbm"] if cache.io_alloc and rdt.has(IO_ALLOC) else []
    assert rdt.ls(f"info/{cache.name}") == sorted([*files, *devices])


def test_a_cache_says_what_its_masks_may_be(rdt, cache):
    assert rdt.read(f"info/{cache.name}/cbm_mask") == f"{every_way(cache):x}\n"
    assert rdt.read(f"info/{cache.name}/min_cbm_bits") == f"{cache.min_cbm_bits}\n"
    assert rdt.read(f"info/{cache.name}/num_closids") == f"{cache.num_closids}\n"
    assert rdt.read(f"info/{cache.name}/shareable_bits") == f"{cache.shareable_bits:x}\n"
    assert rdt.read(f"info/{cache.name}/sparse_masks") == f"{cache.sparse:d}\n"


@needs.INTEL_BANDWIDTH
def test_bandwidth_is_given_by_per_cent(rdt):
    closids = rdt.profile.bandwidth.num_closids
    assert {name: rdt.read(f"info/MB/{name}") for name in rdt.ls("info/MB")} == {
        "bandwidth_gran": "10\n",
        "delay_linear": "1\n",
        "min_bandwidth": "10\n",
        "num_closids": f"{closids}\n",
        "thread_throttle_mode": "max\n",
    }


@needs.ARM_BANDWIDTH
def test_bandwidth_is_given_by_single_per_cent(rdt):
    assert {name: rdt.read(f"info/MB/{name}") for name in rdt.ls("info/MB")} == {
        "bandwidth_gran": "1\n",
        "delay_linear": "1\n",
        "min_bandwidth": "1\n",
        "num_closids": f"{rdt.profile.bandwidth.num_closids}\n",
    }


@needs.AMD_BANDWIDTH
def test_bandwidth_is_given_by_eighths_of_gigabytes(rdt):
    assert {name: rdt.read(f"info/MB/{name}") for name in rdt.ls("info/MB")} == {
        "bandwidth_gran": "1\n",
        "delay_linear": "0\n",
        "min_bandwidth": "0\n",
        "num_closids": f"{rdt.profile.bandwidth.num_closids}\n",
    }


@needs.SLOW_BANDWIDTH
def test_bandwidth_of_slow_memory_is_described_as_the_other_is(rdt):
    assert rdt.ls("info/SMBA") == rdt.ls("info/MB")
    for name in rdt.ls("info/SMBA"):
        assert rdt.read(f"info/SMBA/{name}") == rdt.read(f"info/MB/{name}")


@needs.MONITORING
def test_monitoring_says_what_it_counts_and_for_how_many(rdt):
    monitoring = monitoring_of(rdt.profile)
    configurable = dict(monitoring.configurable)
    features = []
    for event in monitoring.events:
        features += [event, f"{event}_config"] if event in configurable else [event]
    assert rdt.read("info/L3_MON/mon_features").split() == features
    assert rdt.read("info/L3_MON/num_rmids") == f"{monitoring.num_rmids}\n"
    files = ["max_threshold_occupancy", "mon_features", "num_rmids", *(f"{event}_config" for event in configurable)]
    files += ["mbm_assign_mode"] if rdt.has(ASSIGNMENT_MODE) else []
    assert rdt.ls("info/L3_MON") == sorted(files)


@needs.of(lambda profile: profile.threshold > 0)
def test_the_threshold_of_limbo_is_what_each_rmid_could_have_of_the_cache(rdt):
    assert rdt.read("info/L3_MON/max_threshold_occupancy") == f"{rdt.profile.threshold}\n"


@needs.COUNTS_IN_UNITS
def test_the_threshold_of_limbo_is_cut_to_what_the_hardware_counts_in(rdt):
    path, unit = "info/L3_MON/max_threshold_occupancy", monitoring_of(rdt.profile).scale
    before = rdt.read(path)
    for written, kept in ((2 * unit, 2 * unit), (2 * unit - 1, unit), (unit + 1, unit), (1, 0), (0, 0)):
        assert rdt.write(path, f"{written}\n") == done()
        assert rdt.read(path) == f"{kept}\n"
    for text in (f"{unit:#x}", f"+{unit}", f"0{unit:o}"):
        assert rdt.write(path, text) == done()
        assert rdt.read(path) == f"{unit}\n"
    assert rdt.write(path, before) == done()


@needs.MONITORING
def test_the_threshold_of_limbo_is_no_more_than_the_cache(rdt):
    path = "info/L3_MON/max_threshold_occupancy"
    before = rdt.read(path)
    most = rdt.profile.threshold_limit
    assert rdt.write(path, f"{most + 1}\n") == refused("EINVAL")
    assert rdt.write(path, "4294967296\n") == refused("ERANGE")
    for wrong in ("x\n", "-1\n", "\n", " 65536\n", "65536 \n", "1.5\n"):
        assert rdt.write(path, wrong) == refused("EINVAL")
    assert rdt.read(path) == before
    assert rdt.write(path, f"{most}\n") == done()
    assert rdt.write(path, before) == done()


@needs.MONITORING
def test_the_threshold_of_limbo_outlives_the_mount(rdt):
    path, unit = "info/L3_MON/max_threshold_occupancy", monitoring_of(rdt.profile).scale
    before = rdt.read(path)
    assert rdt.write(path, f"{2 * unit}\n") == done()
    assert rdt.umount() is None
    assert rdt.mount() is None
    assert rdt.read(path) == f"{2 * unit}\n"
    assert rdt.write(path, before) == done()


@needs.CONFIGURABLE_EVENTS
def test_what_an_event_counts_is_a_register_of_each_cache(rdt):
    path = "info/L3_MON/mbm_total_bytes_config"
    assert rdt.read(path) == "0=0x7f;1=0x7f;2=0x7f;3=0x7f\n"
    assert rdt.read("info/L3_MON/mbm_local_bytes_config") == "0=0x15;1=0x15;2=0x15;3=0x15\n"
    assert rdt.write(path, "0=0x30;3=3\n") == done()
    assert rdt.read(path) == "0=0x30;1=0x7f;2=0x7f;3=0x03\n"
    assert rdt.register(3, 0, event_configuration(0)) == 0x30
    assert rdt.register(3, 3, event_configuration(0)) == 3
    assert rdt.register(3, 3, event_configuration(1)) == 0x15
    assert rdt.write(path, "0=7f;3=7f\n") == done()


@needs.CONFIGURABLE_EVENTS
def test_what_an_event_counts_is_checked(rdt):
    path = "info/L3_MON/mbm_local_bytes_config"
    missing = "Missing '=' or non-numeric domain id"
    for text, answer in (
        ("0\n", invalid("Non-numeric event configuration value")),
        ("x=1\n", invalid(missing)),
        ("=1\n", invalid(missing)),
        ("0=\n", invalid("Non-numeric event configuration value")),
        ("0=zz\n", invalid("Non-numeric event configuration value")),
        ("0=80\n", invalid("Invalid event configuration: max valid mask is 0x7f")),
        ("9=1\n", refused("EINVAL")),
    ):
        assert rdt.write(path, text) == answer
    assert rdt.write(path, "0=15") == refused("EINVAL")
    assert rdt.read(path) == "0=0x15;1=0x15;2=0x15;3=0x15\n"


@needs.CONFIGURABLE_EVENTS
def test_what_an_event_counts_is_changed_up_to_the_first_mistake(rdt):
    path = "info/L3_MON/mbm_local_bytes_config"
    assert rdt.write(path, "1=3;9=3;2=3\n") == refused("EINVAL")
    assert rdt.read(path) == "0=0x15;1=0x03;2=0x15;3=0x15\n"
    assert rdt.write(path, "1=15\n") == done()


@needs.NO_CONFIGURABLE_EVENTS
def test_without_configurable_events_there_are_no_such_files(rdt):
    assert rdt.refusal_to_read("info/L3_MON/mbm_total_bytes_config") == "ENOENT"


@needs.MONITORING
@needs.kernel_with(ASSIGNMENT_MODE)
def test_counters_are_assigned_by_default_where_the_hardware_cannot_do_otherwise(rdt):
    path = "info/L3_MON/mbm_assign_mode"
    assert rdt.read(path) == "[default]\n"
    assert rdt.write(path, "default\n") == done()
    assert rdt.write(path, "mbm_event\n") == invalid("mbm_event mode is not supported")
    for wrong in ("x\n", "\n", "defaul\n"):
        assert rdt.write(path, wrong) == invalid("Unsupported assign mode")
    assert rdt.write(path, "default") == refused("EINVAL", "Unsupported assign mode\n")


def test_what_only_tells_cannot_be_written(rdt, cache):
    for name in sorted(set(rdt.ls(f"info/{cache.name}")) - {"io_alloc", "io_alloc_cbm"}):
        assert rdt.permissions(f"info/{cache.name}/{name}") == "100444"
        assert rdt.write(f"info/{cache.name}/{name}", "1\n") == refused("EACCES")
    assert rdt.write("info/last_cmd_status", "ok\n") == refused("EACCES")


@needs.MONITORING
def test_what_can_be_written_says_so(rdt):
    writable = {"max_threshold_occupancy", "mbm_assign_mode", "mbm_total_bytes_config", "mbm_local_bytes_config"}
    for name in rdt.ls("info/L3_MON"):
        assert rdt.permissions(f"info/L3_MON/{name}") == ("100644" if name in writable else "100444")


def test_info_is_nobodys_to_change(rdt):
    for folder in ("info", *(f"info/{name}" for name in rdt.ls("info") if name != "last_cmd_status")):
        assert rdt.permissions(folder) == "40555"
        assert rdt.rmdir(folder).errno == "EPERM"
