import { put } from "../dom.js";
import { bytes, micros, number, short } from "../format.js";
import { follow } from "../live.js";
import { ORDER, bar, legend } from "../phases.js";
import { draw as drawPipeline } from "../pipeline.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

put("legend", legend());

const means = (api) => ORDER.map((phase) => api.mean_us[phase] ?? 0);

let longest = 0;
const apis = new Table("apis", {
  caption: "Requests by API",
  key: (row) => row.key,
  sort: "rate", descending: true,
  empty: "No request was finished in the last seconds.",
  columns: [
    { name: "api", title: "API", class: "tight", value: (row) => row.name, show: (row) => row.name },
    { name: "rate", title: "per second", number: true, value: (row) => row.requests_per_s, show: (row) => short(row.requests_per_s) },
    { name: "p50", title: "median", number: true, value: (row) => row.p50_us.total, show: (row) => micros(row.p50_us.total) },
    { name: "p99", title: "99 %", number: true, value: (row) => row.p99_us.total, show: (row) => micros(row.p99_us.total) },
    { name: "queue", title: "queue, 99 %", number: true, value: (row) => row.p99_us.queue, show: (row) => micros(row.p99_us.queue) },
    { name: "mean", title: "where the mean goes", value: (row) => row.mean_us.total, show: (row) => bar(means(row), longest) },
  ],
});

follow((facts) => {
  const verdict = document.getElementById("verdict");
  if (verdict.textContent !== facts.verdict.text) verdict.textContent = facts.verdict.text;
  verdict.dataset.level = facts.verdict.level;
  drawPipeline(document.getElementById("pipeline"), facts);
  const t = facts.totals;
  tiles(facts.time_ms, [
    { label: "Requests", value: short(t.requests_per_s), unit: "/s", of: t.requests_per_s, series: "requests" },
    { label: "Records in", value: short(t.records_per_s), unit: "/s", of: t.records_per_s, series: "records" },
    { label: "Received", value: `${bytes(t.bytes_in_per_s)}/s`, of: t.bytes_in_per_s, series: "in" },
    { label: "Sent", value: `${bytes(t.bytes_out_per_s)}/s`, of: t.bytes_out_per_s, series: "out" },
    { label: "Errors", value: short(t.errors_per_s), unit: "/s", of: t.errors_per_s, series: "errors" },
    { label: "Connections", value: number(t.connections), unit: "", of: t.connections, series: "connections" },
  ]);
  longest = Math.max(...facts.apis.map((api) => api.mean_us.total), 0);
  apis.update(facts.apis);
});
