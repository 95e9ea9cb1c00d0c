// Tables of single requests, and the search for them in the request log.
import { h } from "./dom.js";
import { bytes, clock, micros, number } from "./format.js";
import { bar, scaleOf } from "./phases.js";
import { Table } from "./table.js";

const PHASES = ["requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs"];

// A table whose bars have one scale.
export class RequestTable extends Table {
  constructor(holder, options) {
    const columns = [
      { name: "time", title: "Time", class: "mono tight", value: (row) => row.time_us, show: (row) => clock(row.time_us, 3) },
      { name: "api", title: "API", class: "tight", value: (row) => row.api, show: (row) => h("span", null, row.api, h("span", { class: "faint" }, ` v${row.version}`)) },
      { name: "client", title: "Client", class: "name", value: (row) => row.client_id, show: (row) => h("span", { title: [row.software, row.address, row.user && `user ${row.user}`, row.connection].filter(Boolean).join(" · ") }, row.client_id ?? "(not named)") },
      { name: "topic", title: "Topic", medium: true, value: (row) => row.topic, show: topic },
      { name: "records", title: "records", number: true, medium: true, value: (row) => row.records, show: (row) => number(row.records) },
      { name: "in", title: "in", number: true, wide: true, value: (row) => row.request_bytes, show: (row) => bytes(row.request_bytes) },
      { name: "out", title: "out", number: true, wide: true, value: (row) => row.response_bytes, show: (row) => bytes(row.response_bytes) },
      { name: "error", title: "Error", value: (row) => row.error, show: (row) => (row.error ? h("span", { class: "bad" }, row.error) : "") },
      { name: "total", title: "total", number: true, value: (row) => row.total_us, show: (row) => micros(row.total_us) },
      { name: "phases", title: "Time by phase", value: (row) => row.phases_us[0], help: "Sorts by time in the queue", show: (row) => bar(row.phases_us, this.scale) },
    ];
    super(holder, { key: (row) => row.id, stacks: true, columns, ...options });
    this.scale = 0;
  }

  update(rows) {
    this.scale = scaleOf(rows.map((row) => row.phases_us));
    this.entitle("phases", `Time by phase, up to ${micros(this.scale)}`);
    super.update(rows);
  }
}

function topic(row) {
  if (row.topic === null) return "";
  const more = row.partitions > 1 ? ` +${row.partitions - 1}` : "";
  return h("span", null, row.topic, h("span", { class: "faint" }, ` ${row.partition}${more}`));
}

// Returns {rows, notes, command}.
export async function search(wanted) {
  const response = await fetch(`requests.json?${new URLSearchParams(wanted)}`);
  if (!response.ok) throw new Error((await response.text()).trim());
  const found = await response.json();
  return { ...found, rows: found.rows.map(recorded) };
}

// A row of the log in the form of the recent requests.
function recorded(row, id) {
  return {
    id, time_us: Date.parse(row.time) * 1000, api: row.requestApiKeyName, version: row.requestApiVersion,
    client_id: row.clientId, software: [row.softwareName, row.softwareVersion].filter(Boolean).join(" "), address: row.address,
    connection: row.connection, user: row.principal?.replace(/^User:/, ""), topic: row.topic, partition: row.partition, partitions: row.partitionCount,
    records: row.records, request_bytes: row.requestBytes, response_bytes: row.responseBytes,
    error: row.errorCode ? row.errorName : null, total_us: row.totalTimeUs, phases_us: PHASES.map((name) => row[name]),
  };
}
