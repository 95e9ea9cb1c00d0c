import { addressOf, onOpened, opened, toggle } from "../address.js";
import { h, plain, put } from "../dom.js";
import { bytes, number, setting, short, span } from "../format.js";
import { follow, redraw } from "../live.js";
import { recordsOf } from "../records.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

const panel = document.getElementById("topic-panel");
let shownName = null;
const internal = document.getElementById("internal");
const filter = document.getElementById("filter");

const topics = new Table("topics", {
  caption: "Topics",
  key: (row) => row.name,
  sort: "in", descending: true,
  empty: "No topics. Create one with: rotunda topic create NAME",
  columns: [
    { name: "name", title: "Topic", value: (row) => row.name, show: (row) => h("button", { class: "link", type: "button", "aria-expanded": String(row.name === opened()), onclick: () => toggle(row.name) }, row.name) },
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
    { name: "state", title: "State", class: "tight", medium: true, value: (row) => String(row.is_open), show: (row) => (row.is_open ? "open" : h("span", { class: "warn" }, "not open")) },
  ],
});

const readers = new Table("readers", {
  caption: "Groups that read it",
  key: (row) => row.group,
  sort: "lag", descending: true,
  empty: "No group has committed offsets of this topic.",
  columns: [
    { name: "group", title: "Group", value: (row) => row.group, show: (row) => h("a", { href: `groups${addressOf(row.group)}` }, row.group) },
    { name: "state", title: "State", class: "tight", value: (row) => row.state, show: (row) => row.state },
    { name: "members", title: "members", number: true, medium: true, value: (row) => row.members, show: (row) => number(row.members) },
    { name: "lag", title: "lag, records", number: true, value: (row) => row.lag, show: (row) => number(row.lag) },
    { name: "age", title: "lag, time", number: true, value: (row) => row.lag_s, show: (row) => span(row.lag_s) },
  ],
});

const settings = new Table("settings", {
  caption: "Settings",
  key: (row) => row.name,
  empty: "Loading…",
  columns: [
    { name: "name", title: "Setting", class: "mono", value: (row) => row.name, show: (row) => h("span", { title: row.doc }, row.name) },
    { name: "value", title: "Value", value: (row) => row.value, show: (row) => setting(row.name, row.value) },
    { name: "origin", title: "From", class: (row) => (row.is_default ? "faint" : ""), value: (row) => row.origin, show: (row) => row.origin },
  ],
});

async function loadSettings(name) {
  settings.update([]);
  try {
    const response = await fetch(`topics/${encodeURIComponent(name)}/settings.json`);
    const found = response.ok ? await response.json() : [];
    // Those of the topic first.
    if (shownName === name) settings.update([...found.filter((row) => !row.is_default), ...found.filter((row) => row.is_default)]);
  } catch { /* No response, which the page shows already. */ }
}

function showTopic(facts) {
  const name = opened();
  const shown = facts.topics.find((topic) => topic.name === name);
  const isNew = name !== shownName;
  panel.hidden = !name;
  shownName = name;
  document.title = `${name ? `${plain(name)} · ` : ""}Topics · Rotunda`;
  if (!name) return;
  put("topic-title", name);
  document.getElementById("topic-parts").hidden = !shown;
  put("topic-missing", shown ? "" : `There is no topic ${name}.`);
  if (!shown) return;
  partitions.update(shown.partitions);
  readers.update(facts.readers[name] ?? []);
  recordsOf(name, shown.partitions.length, facts.shows_records);
  if (isNew) {
    loadSettings(name);
    panel.scrollIntoView({ block: "start" });
  }
}

onOpened(redraw);
internal.addEventListener("change", redraw);
filter.addEventListener("input", redraw);

follow((facts) => {
  const wanted = filter.value.trim().toLowerCase();
  topics.selected = opened();
  topics.update(facts.topics.filter((topic) => (internal.checked || !topic.internal) && topic.name.toLowerCase().includes(wanted)));
  showTopic(facts);
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
