import { apiTable } from "../apis.js";
import { h, put } from "../dom.js";
import { bytes, clock, micros, number } from "../format.js";
import { follow } from "../live.js";
import { ORDER, bar, legend, longestWork } from "../phases.js";
import { Table } from "../table.js";

let longestSlow = 0, longestTail = 0;
put("legend", legend());

const drawApis = apiTable("Time by phase and API", ORDER);

const columns = (longest) => [
  { name: "time", title: "Time", class: "mono tight", value: (row) => row.time_us, show: (row) => clock(row.time_us, 3) },
  { name: "api", title: "API", class: "tight", value: (row) => row.api, show: (row) => h("span", null, row.api, h("span", { class: "faint" }, ` v${row.version}`)) },
  { name: "client", title: "Client", class: "name", value: (row) => row.client_id, show: (row) => h("span", { title: [row.software, row.address, row.connection].filter(Boolean).join(" · ") }, row.client_id ?? "(not named)") },
  { name: "topic", title: "Topic", medium: true, value: (row) => row.topic, show: topic },
  { name: "records", title: "records", number: true, medium: true, value: (row) => row.records, show: (row) => number(row.records) },
  { name: "in", title: "in", number: true, wide: true, value: (row) => row.request_bytes, show: (row) => bytes(row.request_bytes) },
  { name: "out", title: "out", number: true, wide: true, value: (row) => row.response_bytes, show: (row) => bytes(row.response_bytes) },
  { name: "error", title: "Error", value: (row) => row.error, show: (row) => (row.error ? h("span", { class: "bad" }, row.error) : "") },
  { name: "total", title: "total", number: true, value: (row) => row.total_us, show: (row) => micros(row.total_us) },
  { name: "phases", title: "Time by phase", value: (row) => row.phases_us[0], help: "Sorts by time in the queue", show: (row) => bar(row.phases_us, longest()) },
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

function topic(row) {
  if (row.topic === null) return "";
  const more = row.partitions > 1 ? ` +${row.partitions - 1}` : "";
  return h("span", null, row.topic, h("span", { class: "faint" }, ` ${row.partition}${more}`));
}

follow((facts) => {
  drawApis(facts.apis);
  longestSlow = longestWork(facts.slowest.map((row) => row.phases_us));
  longestTail = longestWork(facts.tail.map((row) => row.phases_us));
  slowest.update(facts.slowest);
  tail.update(facts.tail);
});
