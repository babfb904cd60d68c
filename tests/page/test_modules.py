# SPDX-License-Identifier: Apache-2.0
"""The pure parts of the page's scripts, value by value, in the browser that runs them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.page.browser import Browser
from tests.page.conftest import OpenPage


@pytest.fixture
def page(open_page: OpenPage) -> Browser:
    return open_page()


CASES: list[tuple[str, str, Any]] = [
    (
        "format.js",
        "[0, 1023, 1024, 1536, 1572864, 104857600, 1023.99 * 1024, 2 ** 40, 2 ** 52].map(it.size)",
        ["0 B", "1023 B", "1 KiB", "1.5 KiB", "1.5 MiB", "100 MiB", "1 MiB", "1 TiB", "4096 TiB"],
    ),
    ("format.js", "[0, 59.9, 60, 7500, 93784].map(it.duration)", ["0 s", "59 s", "1 min", "2 h 5 min", "1 d 2 h"]),
    (
        "format.js",
        "[0, 0.04, 12.34, 999.94, 999.96, 2.345e9, 5e15].map(it.events)",
        ["0/s", "0/s", "12.3/s", "1000/s", "1 k/s", "2.3 G/s", "5000 T/s"],
    ),
    ("format.js", "[0, 0.456, 12].map(it.ratio)", ["0.00", "0.46", "12.00"]),
    (
        "known.js",
        "it.waited([{ retry_in: 5 }, { retry_in: 1 }, { retry_in: null }, {}], 2)",
        [{"retry_in": 3}, {"retry_in": 0}, {"retry_in": None}, {}],
    ),
    (
        "known.js",
        """((known, told) => {
            const asked = (health, now) => Object.keys(known.question(health, now)).length;
            const seen = [asked({ revision: 'a' }, 0)];
            known.hear(told, { revision: 'a' }, 0);
            seen.push(asked({ revision: 'a' }, 60), asked({ revision: 'a' }, 61));
            seen.push(asked({ revision: 'b' }, 1), asked({}, 1));
            known.hear({}, { revision: 'b' }, 1);
            seen.push(asked({ revision: 'b' }, 1), asked(undefined, 1), known.answers(2).vms.value.vms[0].retry_in);
            known.hear({ ...told, caches: { error: 'gone' } }, { revision: 'b' }, 2);
            return [...seen, asked({ revision: 'b' }, 2)];
        })(
            new it.Known(),
            { vms: { value: { vms: [{ retry_in: 9 }] } }, caches: { value: {} }, capabilities: { value: {} } },
        )""",
        [3, 0, 3, 3, 3, 3, 3, 7, 3],
    ),
    (
        "format.js",
        "[0, 0.049, 0.0994, 0.0996, 0.256, 1].map(it.portion)",
        ["0 %", "4.9 %", "9.9 %", "10 %", "26 %", "100 %"],
    ),
    ("format.js", "[0, 1.25, 99.94, 99.96, 250.4].map(it.power)", ["0 W", "1.3 W", "99.9 W", "100 W", "250 W"]),
    ("format.js", "it.visible('a b\\u00a0\\u202ec\\n\\u0007\\ud800')", "a b\\u{a0}\\u{202e}c\\u{a}\\u{7}\\u{d800}"),
    ("format.js", "it.visible('Zürich 数 \U0001f4a9')", "Zürich 数 \U0001f4a9"),
    ("format.js", "it.waysOf('c05')", [11, 10, 2, 0]),
    ("format.js", "it.waysOf('80000000000000000001')", [79, 0]),
    ("format.js", "[it.waysOf('0'), it.waysOf('')]", [[], []]),
    ("format.js", "[{}, {0: '3', 1: 'c'}, {0: '3', 1: '4'}].map(it.waysByCache)", ["", "2", "0:2 1:1"]),
    (
        "format.js",
        "it.waysByCache(Object.fromEntries([0, 1, 2, 3, 5].map((id) => [id, id === 2 ? '7' : '3'])))",
        "0-1,3,5:2 2:3",
    ),
    (
        "format.js",
        "[{}, {0: 'f'}, {0: 'f', 1: 'f', 2: '3', 3: 'f'}].map((masks) => it.eachCache(masks, (mask) => mask))",
        ["", "0: f", "0-1,3: f, 2: 3"],
    ),
    (
        "format.js",
        "[it.why('unassigned'), it.why('new\\u202e')]",
        ["no hardware counter is assigned to the VM now: there are too few for all VMs", "new\\u{202e}"],
    ),
    (
        "format.js",
        "[undefined, {}, {measured: {rates: {total: null}, age_seconds: 5}},"
        " {measured: {rates: {total: 1572864}, age_seconds: 95.5}}].map(it.lastMeasured)",
        ["", "", "", "1.5 MiB/s 1 min 35 s ago"],
    ),
    ("format.js", "[[], [3], [1, 0, 2, 8, 8]].map(it.listOf)", ["", "3", "0-2,8"]),
    ("format.js", "['', '3', '0-2,8'].map(it.numbersIn)", [[], [3], [0, 1, 2, 8]]),
    (
        "format.js",
        "[{}, {bandwidth: {0: 50, 1: 50}, bandwidth_unit: '%'},"
        " {bandwidth: {0: 125, 1: 250}, bandwidth_unit: 'MB/s'}].map(it.limitOf)",
        ["", "50 %", "0: 125 MB/s, 1: 250 MB/s"],
    ),
    (
        "lanes.js",
        "[it.partsOf({mask: '3'}), it.partsOf({mask: '3', code_mask: '3', data_mask: '3'}),"
        " it.partsOf({mask: '7', code_mask: '1', data_mask: '6'})]"
        ".map((all) => all.map((one) => [one.part ?? '', one.mask]))",
        [[["", "3"]], [["", "3"]], [["data", "6"], ["code", "1"]]],
    ),
    (
        "lanes.js",
        "it.heaps([...Array(9).keys()].map((id) => ({resource: id < 4 ? 'L3' : 'L2', id})), ({id}) => id % 2)"
        ".map((heap) => heap.map((one) => one.id))",
        [[0], [1], [2], [3], [4, 6, 8], [5, 7]],
    ),
    (
        "lanes.js",
        "((caches) => [new Set(), new Set(['L3'])].map((apart) => it.heaps(caches, ({id}) => id > 5, apart).length)"
        ".concat(it.levelsToFold(caches, ({id}) => id), it.levelsToFold(caches, () => 0)))"
        "([...Array(9).keys()].map((id) => ({resource: id < 6 ? 'L3' : 'L2', id})))",
        [4, 9, "L3"],
    ),
    ("lanes.js", "it.pieces([10, 9, 8, 5, 1, 0])", [[10, 3], [5, 1], [1, 2]]),
    (
        "lanes.js",
        "it.lanes([{owner: 'vm', ways: [0]}, {owner: 'class', ways: [1, 2]}, {owner: 'default', ways: [1, 2, 3]}])"
        ".map((lane) => lane.map((one) => one.owner))",
        [["vm", "default"], ["class"]],
    ),
    # A VM that was not counted all the time is ranked by the mean of when it was, and that is known.
    (
        "history.js",
        "((history) => { history.load({interval: 10, times: [0, 10, 20, 30], vms: {a: {total: [9, 1, null, 3]},"
        " b: {total: [1, 1, 1, 1]}}}); return ['a', 'b', 'c'].map((uuid) => [history.mean(uuid, 'total', 30),"
        " history.known(uuid, 'total', 30)]); })(new it.History())",
        [[2, 2 / 3], [1, 1], [None, 0]],
    ),
    (
        "ranking.js",
        "it.ranked([{uuid: 'a'}, {uuid: 'b'}, {uuid: 'c'}], {mean: (uuid) => ({a: 1, b: 3, c: null})[uuid],"
        " known: (uuid) => ({a: 1, b: 0.5})[uuid]}).map(({vm, share, known}) => [vm.uuid, share, known])",
        [["b", 0.75, 0.5], ["a", 0.25, 1]],
    ),
    # Bytes that are gone with a VM are no traffic, another group of that name is not the one before, and what has not
    # been counted is not known.
    (
        "rest.js",
        "((of, at) => [[[1, 2], [5, 8]], [[9, 2], [5, 8]], [[1, null], [5, 8]]].map(([then, now]) => it.rateBetween("
        "at(1, {'': of('a', then)}), at(3, {'': of('a', now), new: of('b', [1e9])})))"
        ".concat(it.rateBetween(at(1, {'': of('a', [1])}), at(3, {'': of('b', [9])})),"
        " it.rateBetween(at(1, {'': of('a', [1])}), at(99, {'': of('a', [9])})), it.rateBetween(at(1), at(2))))"
        "((generation, bytes) => ({generation, caches: Object.fromEntries(bytes.map((one, id) => [id,"
        " {mbm_total_bytes: one}]))}), (taken_at, groups) => ({taken_at, host: {groups}}))",
        [5, 3, None, None, None, None],
    ),
    (
        "rest.js",
        "((rest, groups) => [1, 1, 3].map((taken_at) => { rest.hear({taken_at, host: {groups: groups(taken_at)}});"
        " return rest.value; }).concat((rest.hear(null), rest.value)))(new it.Rest(), (moment) => ({'': {"
        "generation: 'a', caches: {0: {mbm_total_bytes: 10 * moment}}}}))",
        [None, None, 10, 10],
    ),
    (
        "details.js",
        "[{total: 3, local: 2, remote: 1}, {total: null, local: 2, remote: null},"
        " {total: 3, local: null, remote: null}].map((rates) => Object.fromEntries("
        "it.fieldsOf({caches: [], masks: {}, group: '', state: '', since: 0,"
        " retry_in: null}, {rates, caches: {}}, {}, {values: null, reason: ''}, 0))['Bandwidth now'] ?? '')",
        ["2 B/s local, 1 B/s remote", "2 B/s local", ""],
    ),
    ("scale.js", "[[], [null], [3, 1, null, 2], [...Array(100).keys()]].map(it.usual)", [0, 0, 3, 98]),
    # Values that differ little are all within the scale; a burst is not, and a limit always is.
    (
        "scale.js",
        "[[[1, 2, 3], null], [[...Array(99).fill(10), 14], null], [[...Array(99).fill(10), 900], null],"
        " [[1], 50], [[], null], [[0, 0], null]]"
        ".map(([values, limit]) => Math.round(100 * it.topOf(values, limit)) / 100)",
        [3.15, 14.7, 10.5, 52.5, 1, 1],
    ),
    (
        "scale.js",
        "it.bursts([1, 2, 3, 4, 5, 6], [9, 20, 30, null, 40, 1], 10).map((one) => [one.time, one.value])",
        [[3, 30], [5, 40]],
    ),
    (
        "executed.js",
        "[{unavailable: 'no'}, {age_seconds: 60, interval: 2, unavailable: ''}, {vms: {}, unavailable: ''},"
        " {vms: {a: {reason: 'refused'}}, unavailable: ''},"
        " {vms: {a: {reason: '', share: 0, rates: {cycles: null, instructions: null}}}, unavailable: ''},"
        " {vms: {a: {reason: '', share: null, rates: {cycles: null, instructions: null}}}, unavailable: ''}]"
        ".map((answer) => it.executedOf({interval: 2, ...answer}, 'a')).map(({values, reason}) => values ?? reason)",
        [
            "no",
            "the agent counted 1 min ago and not since",
            "the agent has not begun to count this VM",
            "refused",
            "other programs had the processor's counters",
            "its first figures come with the next look",
        ],
    ),
    (
        "executed.js",
        "[[4, 2, 1], [0, 0, 0]].map(([cycles, instructions, cache_misses]) => it.executedOf({unavailable: '',"
        " interval: 2, vms: {a: {reason: '', share: 1, rates: {cycles, instructions, cache_misses}}}}, 'a').values)"
        ".map((values) => Object.values(values))",
        [[0.5, 2, 1, 1], [None, 0, 0, 1]],
    ),
    (
        "packages.js",
        "[undefined, {}, {package_rates: {}}].map(it.packagesOf)",
        [None, None, None],
    ),
    (
        "packages.js",
        "[[3, 2, 1, 4], [3, 0, 1, 4], [null, null, null, null]].map(([core_energy, unhalted_core_cycles,"
        " stalls_llc_miss, uops_retired]) => it.packagesOf({package_rates: {core_energy, unhalted_core_cycles,"
        " stalls_llc_miss, uops_retired}})).map((found) => it.PACKAGES.map((name) => found[name]))",
        [[3, 2, None, 0.5], [3, None, None, None], [None, None, None, None]],
    ),
    (
        "spark.js",
        "it.paths([[0, 1], [1, 9], [2, 2]], {width: 100, height: 10, now: 2, span: 2, top: 4}).beyond",
        "M50.0 1h0",
    ),
    (
        "spark.js",
        "(({line, area}) => [line, area])(it.paths([[0, 4], [1, 2], [2, null], [3, 4], [4, null], [5, 0]],"
        " {width: 50, height: 10, now: 5, span: 5, top: 4}))",
        [
            "M0.0 1.0h0L10.0 5.0M30.0 1.0h0M50.0 9.0h0",
            "M0.0 10L0.0 1.0L10.0 5.0V10ZM30.0 10L30.0 1.0V10ZM50.0 10L50.0 9.0V10Z",
        ],
    ),
    (
        "format.js",
        "[it.clock(86399, 0), it.clock(86401, 0), it.moment(1, 2)]",
        ["23:59:59", "1970-01-02 00:00:01", "00:00:01 UTC"],
    ),
    ("format.js", "[it.minute(86399, 0), it.minute(86460, 0)]", ["23:59 UTC", "1970-01-02 00:01 UTC"]),
    (
        "day.js",
        "[it.questionOf('a&b', 5000, null), it.questionOf('a', 5000.5, 4800), it.questionOf('a', 999999, 0)]"
        ".map((question) => question.split('&').slice(1).join('&'))",
        ["seconds=86400&vm=a%26b", "seconds=261&vm=a", "seconds=86400&vm=a"],
    ),
    (
        "history.js",
        "[Math.min, Math.max]"
        ".map((of) => it.slots([0, 60, 120, 180], [3, null, 1, 7], 60, 2, 240, (all) => of(...all)))"
        ".map((all) => all.map(([, value]) => value))",
        [[3, 1], [3, 7]],
    ),
    ("history.js", "it.slots([0, 10, 20], [], 10, 2, 40)", [[10, None], [20, None]]),
    (
        "address.js",
        "['?charts=day', '?charts=week'].map((search) => it.addressOf(it.viewOf(search)))",
        ["?charts=day", ""],
    ),
    (
        "address.js",
        "['?each=L3&each=L2', '?each=L3&each=L3&each=%3Cb%3E'].map((search) => it.addressOf(it.viewOf(search)))",
        ["?each=L3&each=L2", "?each=L3"],
    ),
    (
        "order.js",
        "it.held([{uuid: 'new'}, {uuid: 'a'}, {uuid: 'b'}], ['b', 'gone', 'a']).map((vm) => vm.uuid)",
        ["b", "a", "new"],
    ),
    (
        "news.js",
        "it.changes([{uuid: 1, name: 'a', state: 'kept', reason: ''}, {uuid: 2, name: 'b', state: 'kept'}],"
        " [{uuid: 1, name: 'a', state: 'pending', reason: 'no way'}, {uuid: 3, name: 'c', state: 'none', reason: ''}])",
        ["a is pending now: no way", "c has started: none", "b is gone"],
    ),
    (
        "news.js",
        "it.changes([], [1, 2, 3, 4, 5].map((uuid) => ({uuid, name: `v${uuid}`, state: 'none', reason: ''}))).at(-1)",
        "and 2 more changes",
    ),
]


@pytest.mark.parametrize(("module", "expression", "expected"), CASES, ids=[case[1][:60] for case in CASES])
def test_a_value_becomes_what_people_read(module: str, expression: str, expected: Any, page: Browser) -> None:
    assert page.value(module, expression) == expected


def slots(page: Browser, samples: list[tuple[float, float | None]], interval: float, most: int) -> Any:
    times, values = zip(*samples, strict=True)
    return page.value("history.js", f"it.slots({json.dumps(times)}, {json.dumps(values)}, {interval}, {most})")


def test_a_gap_in_the_values_or_in_the_times_is_a_gap_in_the_line(page: Browser) -> None:
    samples = [(0.0, 1.0), (10.0, 2.0), (20.0, None), (30.0, 4.0), (40.0, 5.0), (90.0, 6.0)]
    assert slots(page, samples, 10.0, 60) == [[0, 1], [10, 2], [20, None], [30, 4], [40, 5], [50, None], [90, 6]]


def test_many_samples_become_few_points_that_do_not_move_when_a_new_one_comes(page: Browser) -> None:
    samples = [(float(when), math.sin(when / 50)) for when in range(1000, 1600)]
    before = slots(page, samples, 1.0, 60)
    after = slots(page, [*samples[1:], (1600.0, 0.0)], 1.0, 60)
    assert 60 <= len(before) <= 61
    assert set(map(tuple, before[1:-1])) <= set(map(tuple, after))


def test_the_history_forgets_what_is_older_than_ten_minutes_and_vms_that_are_gone(page: Browser) -> None:
    found = page.value(
        "history.js",
        """(() => {
          const history = new it.History();
          const old = {llc_occupancy: [5], total: [1], local: [1], remote: [0]};
          history.load({interval: 1, times: [100], vms: {old}});
          const vm = {totals: {llc_occupancy: 7}, rates: {total: 2, local: 1, remote: null}};
          history.append({taken_at: 101, interval: 1, vms: {new: vm}});
          history.append({taken_at: 101, interval: 1, vms: {new: vm}});
          history.append({taken_at: 750, interval: 1, vms: {new: vm}});
          return [history.times, [...history.vms.keys()], history.values('new', 'remote'), history.greatest('total')];
        })()""",
    )
    assert found == [[750], ["new"], [None], 2]


def test_all_series_of_a_vm_are_filled_in_by_their_times(page: Browser) -> None:
    found = page.value(
        "history.js",
        """(() => {
          const history = new it.History();
          const series = {llc_occupancy: [5, 6], total: [1, 2]};
          history.load({interval: 1, times: [100, 101], vms: {one: series, other: series}});
          const vm = {totals: {llc_occupancy: 7}, rates: {total: 3, local: 1, remote: 2}};
          history.append({taken_at: 102, interval: 1, vms: {one: vm, other: vm}});
          const before = [history.isPart('one'), history.values('one', 'local')];
          const told = {total: [2, 3, 4], local: [8, null, 9], core_watts: [1.5, 2.5, 3.5]};
          history.fill('one', {times: [101, 102, 103], vms: {one: told}});
          history.fill('nobody', {times: [101], vms: {}});
          const names = ['total', 'local', 'core_watts', 'instructions'];
          return [before, history.isPart('one'), history.isPart('nobody'), history.isPart('other'),
                  names.map((name) => history.values('one', name))];
        })()""",
    )
    filled = [[1, 2, 3], [None, 8, 1], [None, 1.5, 2.5], [None, None, None]]
    assert found == [[True, [None, None, 1]], False, False, True, filled]


def test_a_vm_that_comes_later_has_no_values_before(page: Browser) -> None:
    found = page.value(
        "history.js",
        """(() => {
          const history = new it.History();
          history.load({interval: 1, times: [1, 2], vms: {}});
          history.append({taken_at: 3, interval: 1, vms: {new: {totals: {llc_occupancy: 0}, rates: {total: null}}}});
          return [history.values('new', 'llc_occupancy'), history.values('nobody', 'total')];
        })()""",
    )
    assert found == [[None, None, 0], []]
