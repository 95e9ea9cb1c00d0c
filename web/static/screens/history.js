import { h, put } from "../dom.js";
import { micros, short } from "../format.js";
import { follow } from "../live.js";
import { Plots, moment } from "../plot.js";

const RANGES = { hour: 3600e3, day: 86400e3, week: 7 * 86400e3, month: 30 * 86400e3 };
const RELOAD_MS = 30e3;
const LEAST_MS = 5 * 60e3;

const status = document.getElementById("history-status");
const fields = { from: document.getElementById("history-from"), to: document.getElementById("history-to") };
let loaded = 0;

const perSecond = (value) => `${short(value)}/s`;
const plots = new Plots(document.getElementById("plots"), { choose: () => {}, zoom: (from, to) => show({ from: Math.floor(from), to: Math.ceil(Math.max(to, from + LEAST_MS)) }) });

// Each chart: the kind and column of its series; `rate`: per second of a point.
const CHARTS = [
  { title: "Requests", note: "per second, by API", kind: "api", column: "requests", rate: true, show: perSecond },
  { title: "Latency, 99 %", note: "total time by API; the worst minute of each point", kind: "api", column: "totalP99Us", show: micros, log: true },
  { title: "Latency, median", note: "total time by API; the worst minute of each point", kind: "api", column: "totalP50Us", show: micros, log: true },
].map((chart) => ({ ...chart, plot: plots.add(chart.title, chart) }));

function wanted() {
  const query = new URLSearchParams(location.search);
  const from = Date.parse(query.get("from") ?? ""), to = Date.parse(query.get("to") ?? "");
  if (from < to) return { from, to };
  return { range: query.get("range") in RANGES ? query.get("range") : "hour" };
}

function show(range) {
  const query = range.range ? { range: range.range } : { from: new Date(range.from).toISOString(), to: new Date(range.to).toISOString() };
  history.pushState(null, "", `?${new URLSearchParams(query)}`);
  load();
}

async function load() {
  const range = wanted();
  const to = range.to ?? Date.now();
  const from = range.from ?? to - RANGES[range.range];
  loaded = Date.now();
  for (const button of document.querySelectorAll("#history-range button")) button.setAttribute("aria-pressed", String(button.dataset.range === range.range));
  fields.from.value = local(from);
  fields.to.value = local(to);
  try {
    const answer = await fetch(`history.json?from_ms=${Math.floor(from)}&minutes=${Math.max(1, Math.ceil((to - from) / 60e3))}`);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    draw(await answer.json());
  } catch (error) {
    put("history-status", `Cannot load the history: ${error.message}`);
  }
}

function draw(found) {
  for (const { kind, column, rate, plot } of CHARTS) {
    plot.series = Object.entries(found.series[kind] ?? {}).filter(([, columns]) => columns[column]).map(([name, columns]) => ({
      name, values: rate ? columns[column].map((value) => (value === null ? null : value * 1000 / found.step_ms)) : columns[column],
    }));
  }
  plots.update(found, []);
  const empty = CHARTS.every(({ plot }) => plot.series.length === 0);
  const missing = found.unreadable_hours ? ` ${found.unreadable_hours} hours cannot be read; see the broker's log.` : "";
  status.dataset.empty = String(empty);
  put("history-status", (empty ? "No requests in this range, or their minute has not ended yet." : `A point is ${found.step_ms / 60e3} min.`) + missing);
}

// The value of a datetime-local field, in the browser's time zone.
function local(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
}

plots.holder.addEventListener("cursor", ({ detail: point }) => {
  const range = plots.range;
  put("history-cursor", point === null || !range ? "" : `${moment(range.from_ms + point * range.step_ms)}`);
});
put("history-range", Object.keys(RANGES).map((name) => h("button", { type: "button", class: "tool", "data-range": name, onclick: () => show({ range: name }) }, `Last ${name}`)));
document.getElementById("history-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const from = Date.parse(fields.from.value), to = Date.parse(fields.to.value);
  if (from < to) show({ from, to });
  else put("history-status", "The range ends before it begins.");
});
window.addEventListener("popstate", load);
load();
follow(() => {
  if (wanted().range && Date.now() - loaded >= RELOAD_MS) load();
});
