import { apiTable } from "../apis.js";
import { h, put } from "../dom.js";
import { bytes, clock, micros, number } from "../format.js";
import { follow, redraw } from "../live.js";
import { ORDER, bar, legend, scaleOf } from "../phases.js";
import { Table } from "../table.js";

const MOST_KEPT = 2000;
const FILTERS = ["api", "client", "topic", "error", "slower"];
let scaleOfSlowest = 0, scaleOfTail = 0;
let kept = new Map();
put("legend", legend());

const drawApis = apiTable("Time by phase and API", ORDER);

const columns = (scale) => [
  { name: "time", title: "Time", class: "mono tight", value: (row) => row.time_us, show: (row) => clock(row.time_us, 3) },
  { name: "api", title: "API", class: "tight", value: (row) => row.api, show: (row) => h("span", null, row.api, h("span", { class: "faint" }, ` v${row.version}`)) },
  { name: "client", title: "Client", class: "name", value: (row) => row.client_id, show: (row) => h("span", { title: [row.software, row.address, row.connection].filter(Boolean).join(" · ") }, row.client_id ?? "(not named)") },
  { name: "topic", title: "Topic", medium: true, value: (row) => row.topic, show: topic },
  { name: "records", title: "records", number: true, medium: true, value: (row) => row.records, show: (row) => number(row.records) },
  { name: "in", title: "in", number: true, wide: true, value: (row) => row.request_bytes, show: (row) => bytes(row.request_bytes) },
  { name: "out", title: "out", number: true, wide: true, value: (row) => row.response_bytes, show: (row) => bytes(row.response_bytes) },
  { name: "error", title: "Error", value: (row) => row.error, show: (row) => (row.error ? h("span", { class: "bad" }, row.error) : "") },
  { name: "total", title: "total", number: true, value: (row) => row.total_us, show: (row) => micros(row.total_us) },
  { name: "phases", title: "Time by phase", value: (row) => row.phases_us[0], help: "Sorts by time in the queue", show: (row) => bar(row.phases_us, scale()) },
];

const slowest = new Table("slowest", {
  caption: "Slowest of the last ten minutes", stacks: true, key: (row) => row.id, sort: "total", descending: true,
  empty: "No request yet, or the request log is off.", columns: columns(() => scaleOfSlowest),
});
slowest.sorted = null;
slowest.mark();
const tail = new Table("tail", {
  caption: "Latest", stacks: true, key: (row) => row.id, sort: "time", descending: true,
  empty: "No request yet, or the request log is off.", columns: columns(() => scaleOfTail),
});

function topic(row) {
  if (row.topic === null) return "";
  const more = row.partitions > 1 ? ` +${row.partitions - 1}` : "";
  return h("span", null, row.topic, h("span", { class: "faint" }, ` ${row.partition}${more}`));
}

// The filter is in the address, so that it can be linked.
const fields = Object.fromEntries(FILTERS.map((name) => [name, document.getElementById(`filter-${name}`)]));

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const name of FILTERS) fields[name].value = wanted.get(name) ?? "";
  redraw();
}

function writeAddress() {
  const wanted = new URLSearchParams(FILTERS.filter((name) => fields[name].value).map((name) => [name, fields[name].value]));
  history.replaceState(null, "", wanted.size ? `#${wanted}` : location.pathname + location.search);
  redraw();
}

const has = (text, wanted) => (text ?? "").toLowerCase().includes(wanted.trim().toLowerCase());

function matches(row) {
  return has(row.api, fields.api.value) && has(row.client_id, fields.client.value) && has(row.topic, fields.topic.value)
    && (fields.error.value === "any" ? Boolean(row.error) : has(row.error, fields.error.value))
    && row.total_us >= Number(fields.slower.value) * 1000;
}

for (const field of Object.values(fields)) field.addEventListener("input", writeAddress);
window.addEventListener("popstate", readAddress);
readAddress();

// Requests of earlier updates are kept, so that a filter finds more than the latest hundred.
function keep(rows) {
  for (const row of rows) kept.set(row.id, row);
  if (kept.size > MOST_KEPT) kept = new Map([...kept].sort(([, a], [, b]) => b.time_us - a.time_us).slice(0, MOST_KEPT));
  return [...kept.values()];
}

function draw(table, rows) {
  const shown = rows.filter(matches);
  const scale = scaleOf(shown.map((row) => row.phases_us));
  table.entitle("phases", `Time by phase, up to ${micros(scale)}`);
  table.empty = rows.length ? "No matching request." : "No request yet, or the request log is off.";
  return [scale, shown];
}

follow((facts) => {
  drawApis(facts.apis);
  let shown;
  [scaleOfSlowest, shown] = draw(slowest, facts.slowest);
  slowest.update(shown);
  const all = keep(facts.tail);
  const isFiltered = all.length > 0 && FILTERS.some((name) => fields[name].value);
  [scaleOfTail, shown] = draw(tail, isFiltered ? all : facts.tail);
  tail.searched = isFiltered ? ` of ${all.length.toLocaleString("en-US")} since ${clock(Math.min(...all.map((row) => row.time_us)))}` : "";
  tail.update(shown);
});
