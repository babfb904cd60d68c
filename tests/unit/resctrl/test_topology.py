# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.topology, on directories that look like sysfs."""

import pytest

from vmqos.resctrl import topology


def cache(directory, index, **files):
    path = directory / "cache" / f"index{index}"
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(f"{text}\n")


def l3(sysfs, cpu, cache_id, shared, size="16384K", index=3):
    files = {"level": 3, "type": "Unified", "size": size, "shared_cpu_list": shared}
    cache(sysfs / f"cpu{cpu}", index, **({} if cache_id is None else {"id": cache_id}), **files)


@pytest.fixture
def two_sockets(tmp_path):
    for cpu in range(4):
        socket = cpu // 2
        directory = tmp_path / f"cpu{cpu}"
        cache(directory, 0, id=cpu, level=1, type="Data", size="32K", shared_cpu_list=cpu)
        cache(directory, 1, id=cpu, level=1, type="Instruction", size="32K", shared_cpu_list=cpu)
        cache(directory, 2, id=cpu, level=2, type="Unified", size="1M", shared_cpu_list=cpu)
        l3(tmp_path, cpu, socket, f"{2 * socket}-{2 * socket + 1}")
    (tmp_path / "cpufreq").mkdir()
    (tmp_path / "online").write_text("0-3\n")
    return tmp_path


def test_each_l3_has_the_cpus_of_its_socket(two_sockets):
    assert topology.l3_of_cpus(str(two_sockets)) == {0: frozenset({0, 1}), 1: frozenset({2, 3})}


def test_sizes_are_in_bytes(two_sockets):
    assert topology.cache_sizes(str(two_sockets)) == {0: 16 << 20, 1: 16 << 20}
    assert topology.cache_sizes(str(two_sockets), level=2) == dict.fromkeys(range(4), 1 << 20)


def test_an_instruction_cache_is_not_taken_for_the_data_cache(tmp_path):
    cache(tmp_path / "cpu0", 0, id=7, level=1, type="Instruction", size="64K", shared_cpu_list=0)
    cache(tmp_path / "cpu0", 1, id=8, level=1, type="Data", size="32K", shared_cpu_list=0)
    assert topology.cache_sizes(str(tmp_path), level=1) == {8: 32 << 10}


def test_a_cpu_that_is_offline_is_in_no_cache(two_sockets):
    (two_sockets / "cpu4").mkdir()
    (two_sockets / "cpu5" / "cache").mkdir(parents=True)
    assert topology.l3_of_cpus(str(two_sockets)) == {0: frozenset({0, 1}), 1: frozenset({2, 3})}


def test_a_cache_without_an_id_is_left_out(tmp_path):
    l3(tmp_path, 0, None, "0-1")
    l3(tmp_path, 1, None, "0-1")
    l3(tmp_path, 2, 1, "2-3")
    assert topology.l3_of_cpus(str(tmp_path)) == {1: frozenset({2, 3})}


def test_an_id_that_is_no_number_is_no_id(tmp_path):
    l3(tmp_path, 0, "-1", "0")
    assert topology.l3_of_cpus(str(tmp_path)) == {}


def test_a_size_that_is_missing_or_odd_is_not_told(tmp_path):
    l3(tmp_path, 0, 0, "0", size="")
    l3(tmp_path, 1, 1, "1", size="lots")
    l3(tmp_path, 2, 2, "2", size="4096")
    assert topology.cache_sizes(str(tmp_path)) == {2: 4096}
    assert set(topology.l3_of_cpus(str(tmp_path))) == {0, 1, 2}


def test_a_cpu_whose_list_is_missing_shares_with_nobody(tmp_path):
    l3(tmp_path, 3, 5, "")
    l3(tmp_path, 4, 6, "x-y")
    assert topology.l3_of_cpus(str(tmp_path)) == {5: frozenset({3}), 6: frozenset({4})}


def test_ids_that_are_not_in_a_row_are_kept(tmp_path):
    for cpu, cache_id in enumerate((16, 2, 9)):
        l3(tmp_path, cpu, cache_id, cpu)
    assert list(topology.l3_of_cpus(str(tmp_path))) == [2, 9, 16]


def test_a_machine_that_tells_nothing_has_no_caches(tmp_path):
    assert topology.l3_of_cpus(str(tmp_path)) == {}
    assert topology.l3_of_cpus(str(tmp_path / "nowhere")) == {}


def test_this_machine_is_understood():
    caches = topology.read_caches(3)
    assert all(found.cpus and found.id == cache_id for cache_id, found in caches.items())


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", set()), ("\n", set()), ("0\n", {0}), ("0-3", {0, 1, 2, 3}), ("0-1,8,10-11\n", {0, 1, 8, 10, 11})],
)
def test_a_list_of_cpus_reads_as_the_kernel_means_it(text, cpus):
    assert topology.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["x", "0-", "-1", "1;2", "\u0661", "0-99999999999", "1_0"])
def test_no_list_of_cpus_is_refused(text):
    with pytest.raises(ValueError, match="no range of CPUs"):
        topology.parse_cpu_list(text)


@pytest.mark.parametrize("text", ["3-1", "0-99999,0-99999", "0-50000," * 3])
def test_a_list_that_runs_backwards_or_names_more_cpus_than_a_kernel_has_is_refused(text):
    with pytest.raises(ValueError, match="backwards, or too many CPUs"):
        topology.parse_cpu_list(text)


def test_the_cpus_that_are_online_are_told_as_the_kernel_writes_them(two_sockets, tmp_path):
    assert topology.online_cpus(str(two_sockets)) == "0-3"
    assert topology.online_cpus(str(tmp_path / "nowhere")) == ""


TOPOLOGY = topology.CacheTopology(cpus={0: frozenset({0, 1, 2, 3})}, l2={4: frozenset({0, 1}), 7: frozenset({2, 3})})


@pytest.mark.parametrize(
    ("threads", "cores"),
    [
        ([{0}], {4}),
        ([{0}, {1}], {4}),
        ([{0, 1}, {3}], {4, 7}),
        ([{0}, {1, 2}], set()),
        ([{0}, {9}], set()),
        ([], set()),
    ],
)
def test_threads_are_pinned_if_each_is_bound_to_one_core(threads: list[set[int]], cores: set[int]) -> None:
    assert TOPOLOGY.cores_of(map(frozenset, threads)) == cores
