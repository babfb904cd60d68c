// SPDX-License-Identifier: Apache-2.0
// The page's loop: ask the agent, show what it says, say so when it does not answer.

import { Address } from "./address.js";
import { Silent, askAll } from "./agent.js";
import { Attention, problems } from "./attention.js";
import { ChangeList } from "./changelist.js";
import { Day } from "./day.js";
import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { Events } from "./events.js";
import { Executed } from "./executed.js";
import { duration, moment, visible } from "./format.js";
import { later, oldAges, oldness, shownOf } from "./freshness.js";
import { History } from "./history.js";
import * as host from "./host.js";
import { Known } from "./known.js";
import { Looks } from "./looks.js";
import { Numbers } from "./marks.js";
import { toldApart } from "./names.js";
import { changes, tell } from "./news.js";
import { Ranking } from "./ranking.js";
import { Rest } from "./rest.js";
import { Sizes } from "./sizes.js";
import { Slowed } from "./slowed.js";
import { VmTable } from "./vmtable.js";
import { WayMap, markGroups } from "./waymap.js";

/** Milliseconds between two looks, at the least: people can't follow more. */
const PAUSE = 2000;

/** Milliseconds between two tries while the agent does not answer. */
const PATIENT_PAUSE = 4000;

const part = (id) => document.getElementById(id);
const numbers = new Numbers();
const known = new Known();
const looks = new Looks();
const history = new History();
const day = new Day();
const executed = new Executed();
const rest = new Rest();
const sizes = new Sizes();
const parts = { none: part("no-vms"), away: part("away"), number: part("vms-count"), find: part("find") };
const showAddress = (step) => {
  address.show({ ...table.view, ...map.view }, { step });
  askForDetails();
};
const table = new VmTable(part("vms"), parts, numbers, showAddress);
const open = (uuid) => table.open(uuid);
const mapParts = { root: part("ways"), none: part("no-ways"), levels: part("levels") };
const map = new WayMap(mapParts, numbers, open, () => showAddress(true));
const address = new Address((view) => {
  map.view = view;
  table.view = view;
  askForDetails();
});
const ranking = new Ranking(part("moved"), part("ranking"), open);
part("by-bandwidth").addEventListener("click", () => table.sortBy("total"));
const events = new Events();
const changeParts = { section: part("changed"), list: part("changes"), more: part("more"), none: part("no-changes") };
const changeList = new ChangeList(changeParts, open);
const problemParts = { list: part("attention"), more: part("all-problems"), calm: part("calm") };
const attention = new Attention(problemParts, open);
const slowed = new Slowed(part("slowed"), part("slowing"), open);

let before = null;
let answered = null;
let heard = 0;
let shownHost = null;
let timer = 0;
let paused = false;
let busy = false;

async function look() {
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  try {
    const now = Date.now() / 1000;
    const answers = await askAll({ health: "v1/health" });
    const health = answers.health.value;
    const changed = { ...known.question(health, now), ...events.question(health) };
    Object.assign(answers, await askAll({ ...changed, ...slowed.question(now) }), await looks.ask(now));
    known.hear(answers, health, now);
    Object.assign(answers, known.answers(now));
    executed.hear(answers.executed);
    if (answers.slowed) slowed.hear(answers.slowed, now);
    await remember(answers.telemetry.value);
    rest.hear(answers.telemetry.value);
    if (answers.events) events.hear(answers.events, health);
    heard = Date.now() / 1000;
    answered = shownOf(answers.health.value, heard);
    setText(part("time"), moment(answered));
    show(part("freshness"), true);
    hearAgain();
    render(answers);
    askForDetails();
  } catch (error) {
    if (!(error instanceof Silent)) throw error;
    fallSilent(error);
  } finally {
    busy = false;
    if (!paused && !document.hidden) timer = setTimeout(look, pause());
  }
}

function pause() {
  return part("silence").hidden ? Math.max(PAUSE, history.interval * 1000) : PATIENT_PAUSE;
}

/** Ask for what unfolded VMs show alone, and draw it when it comes: nothing waits for it. */
function askForDetails() {
  history.complete(() => [...table.unfolded], () => table.redraw());
  day.keep(table.unfolded);
  day.ask(() => table.daily, () => history.latest, () => table.redraw());
  sizes.ask([...table.unfolded], Date.now() / 1000, () => table.redraw());
}

/** Keep the sample; ask for the history of all rows where samples were missed: at the start, and after a pause. */
async function remember(telemetry) {
  if (!telemetry) return;
  if (telemetry.taken_at - history.latest > 3 * (PAUSE / 1000 + telemetry.interval)) {
    const past = await askAll({ history: history.question });
    if (past.history.value) history.load(past.history.value);
  }
  history.append(telemetry, executed.values);
}

function render(answers) {
  const errors = {};
  const value = (name, otherwise) => {
    if (answers[name].error) errors[name] = answers[name].error;
    return answers[name].value ?? otherwise;
  };
  const now = Date.now() / 1000;
  const health = value("health", null);
  const vms = toldApart(value("vms", { vms: [] }).vms);
  const { caches: l3, l2_caches: l2 = [] } = value("caches", { caches: [] });
  const caches = [...l3, ...l2];
  const capabilities = value("capabilities", null);
  const telemetry = answers.telemetry.value ?? null;
  const readings = telemetry?.vms ?? {};

  const found = problems({ health, vms, errors }, now);
  attention.update(found, vms);
  slowed.update(vms, now);
  changeList.update(events.known, vms, events.areTold);
  ranking.update(vms, history);
  shownHost = { health, vms, caches, capabilities, telemetry, rest: rest.value };
  tellHost(shownHost);
  if (!before) map.view = address.view;
  map.update(caches, vms, errors.caches ?? health?.resctrl.error ?? null, { readings, host: telemetry?.host });
  table.update({ vms, readings, history, day, health, now, counted: telemetry?.host, executed, sizes, events: events.known });
  if (!before) table.view = address.view;
  setText(part("counters"), told(telemetry, answers.telemetry.error));
  show(part("counters"), vms.length > 0 || !telemetry);
  show(part("finder"), vms.length > 0);

  setText(part("host-name"), visible(health?.hostname ?? location.hostname));
  setAttribute(part("host-name"), "title", visible(health?.hostname ?? location.hostname));
  tellHealth(health?.status ?? "unknown", health?.status ?? "failing");
  tellStates(health?.vms ?? {});
  const old = oldness(health);
  setText(part("old"), old);
  show(part("old"), Boolean(old));
  document.body.classList.toggle("stale", Boolean(old));
  document.title = `${found.length ? `(${found.length}) ` : ""}${visible(health?.hostname ?? location.hostname)} · vmqos`;
  tell(part("news"), before ? changes(before, vms) : []);
  before = vms;
}

/** The host's facts, and the ages of what is old beside the figures that come of it. */
function tellHost(state) {
  host.update(part("host"), state);
  for (const age of document.querySelectorAll("[data-ages]")) setText(age, oldAges(state.health, age.dataset.ages.split(" ")));
}

/** The agent's own health. How its VMs fare is told beside it: one VM that waits is no fault of the agent. */
function tellHealth(word, level) {
  setText(part("health"), `agent ${word}`);
  setAttribute(part("health"), "data-level", level);
}

function tellStates(counts) {
  const found = ["degraded", "pending", "kept"].filter((state) => counts[state]);
  keyed(part("states"), found, {
    key: (state) => state,
    create: (state) => make("li", { class: "badge", "data-level": state }),
    update: (badge, state) => setText(badge, `${counts[state]} ${state}`),
  });
}

function told(telemetry, error) {
  if (!telemetry) return `No counters: ${visible(error ?? "the agent has none")}.`;
  return (
    `Counters are read ${telemetry.interval ? `every ${telemetry.interval} s` : "when somebody looks"}. ` +
    "Occupancies are sums over all caches; a bar below them is one cache, and the share is that of the fullest. " +
    `Lines show the last ${duration(history.span)}; all VMs' occupancies have one scale, and all their bandwidths. ` +
    "A dashed line is what a VM was promised on all caches together."
  );
}

function fallSilent(error) {
  const since = answered ? ` What you see is of ${moment(answered)}.` : "";
  const text = `The agent does not answer (${error.message}).${since} Trying again every ${PATIENT_PAUSE / 1000} s.`;
  setText(part("silence"), text);
  show(part("silence"), true);
  show(part("old"), false);
  if (!before) tellUnknown();
  if (shownHost?.health) tellHost({ ...shownHost, health: later(shownHost.health, Date.now() / 1000 - heard) });
  document.body.classList.add("stale");
  tellHealth("silent", "failing");
  document.title = "(!) vmqos does not answer";
}

/** Say in each part why nothing stands there: the agent has not answered since the page was opened. */
function tellUnknown() {
  for (const empty of ["calm", "no-ways", "no-vms"]) {
    setText(part(empty), "Not known: the agent has not answered yet.");
    show(part(empty), true);
  }
  host.updateUnheard(part("host"));
  show(part("vms"), false);
  show(part("finder"), false);
}

function hearAgain() {
  if (!part("silence").hidden && before) tell(part("news"), ["The agent answers again"]);
  show(part("silence"), false);
}

part("pause").addEventListener("click", () => {
  paused = !paused;
  setAttribute(part("pause"), "aria-pressed", String(paused));
  if (paused) clearTimeout(timer);
  else look();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !paused) look();
});
// What sticks to the top, and where a jump ends, is below the first line, which has two lines on narrow screens.
const first = document.querySelector("body > header");
new ResizeObserver(() => {
  document.documentElement.style.setProperty("--head", `${first.offsetHeight}px`);
}).observe(first);
markGroups(part("ways").closest("main"));
look();
