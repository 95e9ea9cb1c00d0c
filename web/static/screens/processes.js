import { h, meter } from "../dom.js";
import { bytes, number, percent } from "../format.js";
import { remember, spark } from "../history.js";
import { follow } from "../live.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

let now = 0;
const canvases = new Map();
const name = (row) => (row.role === "processor" || row.role === "handler" ? `${row.role} ${row.index}` : row.role);

const processes = new Table("processes", {
  caption: "Processes",
  key: name, stacks: true,
  empty: "",
  columns: [
    { name: "name", title: "Process", class: "tight", value: name, show: name },
    { name: "pid", title: "pid", number: true, value: (row) => row.pid, show: (row) => String(row.pid) },
    { name: "state", title: "State", class: "tight", value: (row) => row.state, show: (row) => h("span", { class: row.serves ? "good" : "bad" }, row.state === "running" && !row.serves ? "starting" : row.state) },
    { name: "cpu", title: "CPU", class: "tight", value: (row) => row.cpu, show: (row) => meter(row.cpu, percent(row.cpu), [0.8, 0.95]) },
    { name: "history", title: "last 5 min", value: (row) => row.cpu, show: history },
    { name: "pss", title: "memory (PSS)", number: true, value: (row) => row.pss_bytes, show: (row) => bytes(row.pss_bytes) },
    { name: "threads", title: "threads", number: true, wide: true, value: (row) => row.threads, show: (row) => number(row.threads) },
    { name: "fds", title: "descriptors", number: true, wide: true, value: (row) => row.descriptors, show: (row) => number(row.descriptors) },
    { name: "restarts", title: "restarts", number: true, class: (row) => (row.restarts ? "warn" : ""), value: (row) => row.restarts, show: (row) => number(row.restarts) },
    { name: "error", title: "End of the previous process", value: (row) => row.last_error, show: ended },
  ],
});

function history(row) {
  const key = name(row);
  if (!canvases.has(key)) canvases.set(key, h("canvas", { class: "spark", width: 160, height: 22, "aria-hidden": "true" }));
  return canvases.get(key);
}

function ended(row) {
  const how = row.exit_status < 0 ? `killed by signal ${-row.exit_status}` : row.exit_status > 0 ? `exit code ${row.exit_status}` : "";
  return [how, row.last_error].filter(Boolean).join(": ");
}

follow((facts) => {
  now = facts.time_ms;
  processes.update(facts.processes);
  for (const row of facts.processes) spark(history(row), remember(`cpu ${name(row)}`, now, row.cpu), now);
  const sum = (key) => facts.processes.reduce((all, row) => (row[key] === null ? all : (all ?? 0) + row[key]), null);
  tiles(facts.time_ms, [
    { label: "Processes", value: number(facts.processes.length), unit: "" },
    { label: "CPU of all", value: percent(sum("cpu")), unit: "% of a core", of: sum("cpu"), series: "cpu" },
    { label: "Memory of all (PSS)", value: bytes(sum("pss_bytes")), of: sum("pss_bytes"), series: "pss" },
    { label: "Restarts", value: number(sum("restarts")), unit: "" },
  ]);
});
