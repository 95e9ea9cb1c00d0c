import { h } from "../dom.js";
import { bytes, number, short } from "../format.js";
import { follow, redraw } from "../live.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

let selected = null;
const panel = document.getElementById("partitions-panel");
const internal = document.getElementById("internal");
const filter = document.getElementById("filter");

const topics = new Table("topics", {
  caption: "Topics",
  key: (row) => row.name,
  sort: "in", descending: true,
  empty: "No topics. Create one with: rotunda topic create NAME",
  columns: [
    { name: "name", title: "Topic", value: (row) => row.name, show: (row) => h("button", { class: "link", type: "button", "aria-expanded": String(row.name === selected), onclick: () => choose(row.name) }, row.name) },
    { name: "partitions", title: "partitions", number: true, medium: true, value: (row) => row.partitions.length, show: (row) => number(row.partitions.length) },
    { name: "records", title: "records", number: true, value: (row) => row.records, show: (row) => number(row.records) },
    { name: "size", title: "on disk", number: true, value: (row) => row.size_bytes, show: (row) => bytes(row.size_bytes) },
    { name: "rate", title: "records in /s", number: true, medium: true, value: (row) => row.records_per_s, show: (row) => short(row.records_per_s) },
    { name: "in", title: "bytes in /s", number: true, value: (row) => row.bytes_in_per_s, show: (row) => bytes(row.bytes_in_per_s) },
    { name: "out", title: "bytes out /s", number: true, medium: true, value: (row) => row.bytes_out_per_s, show: (row) => bytes(row.bytes_out_per_s) },
    { name: "owners", title: "Handlers", class: "tight", medium: true, value: (row) => row.owners.join(), show: (row) => row.owners.join(", ") },
  ],
});

const partitions = new Table("partitions", {
  caption: "Partitions",
  key: (row) => row.number,
  sort: "number",
  empty: "",
  columns: [
    { name: "number", title: "partition", number: true, value: (row) => row.number, show: (row) => number(row.number) },
    { name: "owner", title: "handler", number: true, medium: true, value: (row) => row.owner, show: (row) => number(row.owner) },
    { name: "start", title: "start offset", number: true, value: (row) => row.start_offset, show: (row) => number(row.start_offset) },
    { name: "stable", title: "stable offset", number: true, medium: true, value: (row) => row.stable_offset, show: (row) => number(row.stable_offset) },
    { name: "end", title: "end offset", number: true, value: (row) => row.end_offset, show: (row) => number(row.end_offset) },
    { name: "size", title: "on disk", number: true, value: (row) => row.size_bytes, show: (row) => bytes(row.size_bytes) },
    { name: "state", title: "State", class: "tight", value: (row) => String(row.is_open), show: (row) => (row.is_open ? "open" : h("span", { class: "warn" }, "not open")) },
  ],
});

function choose(name) {
  selected = selected === name ? null : name;
  topics.selected = selected;
  redraw();
}

internal.addEventListener("change", redraw);
filter.addEventListener("input", redraw);

follow((facts) => {
  const wanted = filter.value.trim().toLowerCase();
  topics.update(facts.topics.filter((topic) => (internal.checked || !topic.internal) && topic.name.toLowerCase().includes(wanted)));
  const shown = facts.topics.find((topic) => topic.name === selected);
  panel.hidden = !shown;
  if (shown) {
    partitions.table.caption.firstChild.textContent = `Partitions of ${shown.name}`;
    partitions.update(shown.partitions);
  }
  const sum = (key) => facts.topics.reduce((all, topic) => (topic[key] === null ? all : (all ?? 0) + topic[key]), null);
  tiles(facts.time_ms, [
    { label: "Topics", value: number(facts.totals.topics), unit: "" },
    { label: "Partitions", value: number(facts.totals.partitions), unit: "" },
    { label: "On disk", value: bytes(facts.totals.log_bytes), of: facts.totals.log_bytes, series: "log" },
    { label: "Records in", value: short(sum("records_per_s")), unit: "/s", of: sum("records_per_s"), series: "topic-records" },
    { label: "Bytes in", value: `${bytes(sum("bytes_in_per_s"))}/s`, of: sum("bytes_in_per_s"), series: "topic-in" },
    { label: "Bytes out", value: `${bytes(sum("bytes_out_per_s"))}/s`, of: sum("bytes_out_per_s"), series: "topic-out" },
  ]);
});
