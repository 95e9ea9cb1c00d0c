import { h, put } from "../dom.js";
import { bytes, micros, percent, short, span } from "../format.js";
import { follow } from "../live.js";
import { legend } from "../phases.js";
import { Plots, moment } from "../plot.js";
import { RequestTable, search } from "../requests.js";
import { Table } from "../table.js";

const RANGES = { hour: 3600e3, day: 86400e3, week: 7 * 86400e3, month: 30 * 86400e3 };
const RELOAD_MS = 30e3;
const LEAST_MS = 5 * 60e3;

const status = document.getElementById("history-status");
const fields = { from: document.getElementById("history-from"), to: document.getElementById("history-to") };
let loaded = 0, chosen = null;

const perSecond = (value) => `${value < 1 ? share(value) : short(value)}/s`;
const bytesPerSecond = (value) => `${bytes(value)}/s`;
const share = (value) => String(Number(value.toPrecision(2)));
const lag = (value) => span(value / 1e6);
const plots = new Plots(document.getElementById("plots"), { choose, zoom: (from, to) => show({ from: Math.floor(from), to: Math.ceil(Math.max(to, from + LEAST_MS)) }) });

// Each chart: the kind of its series and their column, or several columns with names of their own; `rate`: per second.
const CHARTS = [
  { title: "Requests", note: "per second, by API", kind: "api", column: "requests", rate: true, show: perSecond },
  { title: "Errors", note: "per second, by code", kind: "error", column: "requests", rate: true, show: perSecond },
  { title: "Latency, 99 %", note: "by API", kind: "api", column: "totalP99Us", show: micros, log: true },
  { title: "Latency, median", note: "by API", kind: "api", column: "totalP50Us", show: micros, log: true },
  { title: "Produce by phase, 99 %", kind: "api", of: "Produce", columns: { queueP99Us: "queue", localP99Us: "local", remoteP99Us: "remote", responseQueueP99Us: "response queue", sendP99Us: "send" }, show: micros, log: true },
  { title: "Bytes", note: "per second, all clients", kind: "broker", of: "broker", columns: { bytesIn: "in", bytesOut: "out" }, rate: true, show: bytesPerSecond },
  { title: "Clients", note: "requests per second", kind: "client", column: "requests", rate: true, show: perSecond },
  { title: "Topics, in", note: "bytes per second", kind: "topic", column: "bytesIn", rate: true, show: bytesPerSecond },
  { title: "Topics, out", note: "bytes per second", kind: "topic", column: "bytesOut", rate: true, show: bytesPerSecond },
  { title: "Group lag", note: "unread records", kind: "group", column: "records", show: short },
  { title: "Group lag, time", note: "age of the oldest unread record", kind: "group", column: "lagUs", show: lag, units: [1e6, 2e6, 5e6, 15e6, 30e6, 60e6, 120e6, 300e6, 900e6, 1800e6, 3600e6, 7200e6, 21600e6, 86400e6] },
  { title: "Utilisation", note: "busiest process of each role", kind: "role", column: "utilisation", show: percent, top: 1 },
  { title: "Ring fill", note: "highest, by the role that reads", kind: "role", column: "ringFillPeak", show: percent, top: 1 },
  { title: "CPU", note: "cores, by role", kind: "role", column: "cpuTimeUs", rate: true, scale: 1e-6, show: share },
  { title: "Connections", kind: "broker", of: "broker", columns: { connections: "open" }, show: short },
  { title: "Connections opened and closed", note: "per second", kind: "broker", of: "broker", columns: { connectionsOpened: "opened", connectionsClosed: "closed", connectionsRefused: "refused" }, rate: true, show: perSecond },
  { title: "Throttle time", note: "seconds per second, by quota", kind: "throttle", column: "throttleTimeUs", rate: true, scale: 1e-6, show: share },
  { title: "Disk", kind: "broker", of: "broker", columns: { diskFreeBytes: "free", logBytes: "topics" }, show: bytes },
].map((chart) => ({ ...chart, plot: plots.add(chart.title, chart) }));

const events = new Table("events", {
  caption: "Events", stacks: true, key: (row) => row.key, sort: "time", descending: true, empty: "No events in this range.",
  columns: [
    { name: "time", title: "Time", class: "mono tight", value: (row) => row.time_ms, show: (row) => h("button", { class: "link", type: "button", onclick: () => choose(row.time_ms) }, moment(row.time_ms)) },
    { name: "name", title: "Event", class: "tight", value: (row) => row.name, show: (row) => h("span", { class: `event-name ${level(row.name)}` }, row.name.replaceAll("_", " ")) },
    { name: "detail", title: "", value: (row) => row.detail, show: (row) => row.detail ?? "" },
  ],
});

put("minute-legend", legend());
const requests = new RequestTable("minute-requests", { caption: "Slow requests, or else the latest", sort: "total", descending: true, empty: "No request of this minute is in the request log." });

async function requestsOf(begin) {
  put("minute-state", "Reading the request log …");
  const wanted = { since_ms: begin, until_ms: begin + 60e3 };
  try {
    const slow = await search({ ...wanted, slow: true });
    const found = slow.rows.length ? slow : await search(wanted);
    if (begin !== chosen) return;
    requests.update(found.rows);
    put("minute-command", found.command);
    put("minute-state", "");
  } catch (error) {
    if (begin === chosen) put("minute-state", `Cannot read the requests: ${error.message}`);
  }
}

function level(name) {
  if (["process_restart", "disk_full"].includes(name)) return "event-bad";
  return name.startsWith("broker_") ? "event-start" : name === "rebalance" ? "event-rebalance" : "event-change";
}

function seriesOf({ kind, column, columns, of, rate, scale = 1 }, found) {
  const all = found.series[kind] ?? {};
  const chosen = of ? Object.entries(columns).map(([key, name]) => [name, all[of]?.[key]]) : Object.entries(all).map(([name, each]) => [name || "(not named)", each[column]]);
  const factor = scale * (rate ? 1000 / found.step_ms : 1);
  // A count without a row is 0 in a minute with other rows.
  const recorded = rate ? found.series.broker?.broker?.bytesIn : null;
  const value = (each, point) => (each !== null ? each * factor : recorded && recorded[point] !== null ? 0 : null);
  return chosen.filter(([, values]) => values).map(([name, values]) => ({ name, values: values.map(value) }));
}

// Shows the requests of a minute.
function choose(ms) {
  const begin = Math.floor(ms / 60e3) * 60e3;
  document.getElementById("minute-panel").hidden = false;
  put("minute-title", `Minute of ${moment(begin)}`);
  put("minute-command", "");
  chosen = begin;
  requests.update([]);
  requestsOf(begin);
}

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
    const response = await fetch(`history.json?from_ms=${Math.floor(from)}&minutes=${Math.max(1, Math.ceil((to - from) / 60e3))}`);
    if (!response.ok) throw new Error((await response.text()).trim());
    draw(await response.json());
  } catch (error) {
    put("history-status", `Cannot load the history: ${error.message}`);
  }
}

function draw(found) {
  for (const chart of CHARTS) chart.plot.series = seriesOf(chart, found);
  events.update(found.events.map((each, key) => ({ ...each, key })));
  plots.update(found, found.events.map((each) => ({ ...each, level: level(each.name) })));
  const empty = CHARTS.every(({ plot }) => plot.series.length === 0);
  const unreadable = found.unreadable_hours_ms;
  const others = unreadable.length > 1 ? ` and ${unreadable.length - 1} more` : "";
  const missing = unreadable.length ? ` A file is damaged or unreadable: minutes are missing in the hour of ${moment(unreadable[0])}${others}. The broker's log has its name.` : "";
  status.dataset.empty = String(empty);
  put("history-status", (empty ? "No requests in this range, or their minute has not ended yet." : `A point is ${span(found.step_ms / 1000)}${found.step_ms > 60e3 ? ", with its worst minute" : ""}. Drag to enlarge, click for a minute.`) + missing);
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
