import { h, put } from "../dom.js";
import { bytes, clock, micros, number, short } from "../format.js";
import { follow } from "../live.js";
import { ORDER, PHASES, bar, legend } from "../phases.js";
import { Table } from "../table.js";

let longestMean = 0, longestSlow = 0, longestTail = 0;
put("legend", legend());

const apis = new Table("apis", {
  caption: "Where time goes, by API",
  key: (row) => row.key,
  sort: "rate", descending: true,
  empty: "No request was finished in the last seconds.",
  columns: [
    { name: "api", title: "API", class: "tight", value: (row) => row.name, show: (row) => row.name },
    { name: "rate", title: "per second", number: true, value: (row) => row.requests_per_s, show: (row) => short(row.requests_per_s) },
    { name: "p50", title: "median", number: true, value: (row) => row.p50_us.total, show: (row) => micros(row.p50_us.total) },
    { name: "p99", title: "99 %", number: true, value: (row) => row.p99_us.total, show: (row) => micros(row.p99_us.total) },
    ...ORDER.map((phase, index) => ({ name: phase, title: `${PHASES[index]}, 99 %`, number: true, wide: true, value: (row) => row.p99_us[phase], show: (row) => micros(row.p99_us[phase]) })),
    { name: "mean", title: "where the mean goes", value: (row) => row.mean_us.total, show: (row) => bar(ORDER.map((phase) => row.mean_us[phase] ?? 0), longestMean) },
  ],
});

const columns = (longest) => [
  { name: "time", title: "Time", class: "mono tight", value: (row) => row.time_us, show: (row) => clock(row.time_us, 3) },
  { name: "api", title: "API", class: "tight", value: (row) => row.api, show: (row) => h("span", null, row.api, h("span", { class: "faint" }, ` v${row.version}`)) },
  { name: "client", title: "Client", class: "name", value: (row) => row.client_id, show: (row) => h("span", { title: [row.software, row.address, row.connection].filter(Boolean).join(" · ") }, row.client_id ?? "(not named)") },
  { name: "topic", title: "Topic", value: (row) => row.topic, show: topic },
  { name: "records", title: "records", number: true, medium: true, value: (row) => row.records, show: (row) => number(row.records) },
  { name: "in", title: "in", number: true, wide: true, value: (row) => row.request_bytes, show: (row) => bytes(row.request_bytes) },
  { name: "out", title: "out", number: true, wide: true, value: (row) => row.response_bytes, show: (row) => bytes(row.response_bytes) },
  { name: "error", title: "Error", value: (row) => row.error, show: (row) => (row.error ? h("span", { class: "bad" }, row.error) : "") },
  { name: "total", title: "total", number: true, value: (row) => row.total_us, show: (row) => micros(row.total_us) },
  { name: "phases", title: "Where it went", value: (row) => row.phases_us[0], help: "Sorts by time in the queue", show: (row) => bar(row.phases_us, longest()) },
];

const slowest = new Table("slowest", {
  caption: "Slowest of the last ten minutes", key: (row) => row.id, sort: "total", descending: true,
  empty: "No request yet, or the request log is off.", columns: columns(() => longestSlow),
});
slowest.sorted = null;
slowest.mark();
const tail = new Table("tail", {
  caption: "Latest", key: (row) => row.id, sort: "time", descending: true,
  empty: "No request yet, or the request log is off.", columns: columns(() => longestTail),
});

function worked(row) {
  return row.total_us - row.phases_us[2];
}

function topic(row) {
  if (row.topic === null) return "";
  const more = row.partitions > 1 ? ` +${row.partitions - 1}` : "";
  return h("span", null, row.topic, h("span", { class: "faint" }, ` ${row.partition}${more}`));
}

follow((facts) => {
  longestMean = Math.max(...facts.apis.map((api) => api.mean_us.total), 0);
  apis.update(facts.apis);
  // What a fetch waits for data is no slowness, so a few long waits must not flatten the others.
  longestSlow = Math.max(...facts.slowest.map(worked), 0);
  longestTail = Math.max(...facts.tail.map(worked), 0);
  slowest.update(facts.slowest);
  tail.update(facts.tail);
});
