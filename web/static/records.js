// The records of a topic: a form, and the records that match it. Nothing of it is kept: not in the address, not in this
// tab.
import { h, lines, put } from "./dom.js";
import { bytes, counted, number } from "./format.js";

const LONGEST_PREVIEW = 200;
const SOURCES = { newest: "the newest", offset: "from an offset", time: "from a time" };

const field = (id) => document.getElementById(`records-${id}`);
const state = { topic: null, reading: null, found: null };

field("from").append(...Object.entries(SOURCES).map(([value, text]) => h("option", { value }, text)));
field("from").addEventListener("change", showFields);
field("form").addEventListener("submit", (event) => {
  event.preventDefault();
  read();
});
field("older").addEventListener("click", () => read({ older: state.found.older }));
field("newer").addEventListener("click", () => read({ newer: state.found.newer }));
showFields();

// Shows the form for a topic with this number of partitions; another topic starts empty.
export function recordsOf(topic, partitions, isOn) {
  field("form").hidden = !isOn;
  field("off").hidden = isOn;
  if (topic === state.topic) return;
  state.topic = topic;
  state.reading?.abort();
  field("form").reset();
  showFields();
  field("partition").replaceChildren(h("option", { value: "" }, "all partitions"), ...Array.from({ length: partitions }, (_, each) => h("option", { value: String(each) }, `partition ${each}`)));
  show(null, "");
}

function showFields() {
  const from = field("from").value;
  for (const name of ["offset", "time"]) {
    field(name).parentElement.hidden = name !== from;
    field(name).required = name === from;
  }
}

async function read(following = {}) {
  state.reading?.abort();
  const reading = state.reading = new AbortController();
  put("records-status", "Reading…");
  try {
    const response = await fetch(`topics/${encodeURIComponent(state.topic)}/records.json?${query(following)}`, { headers: keyHeader(), signal: reading.signal });
    if (state.reading !== reading) return;
    if (response.ok) show(await response.json(), "");
    else show(null, (await response.text()).trim());
  } catch (error) {
    if (error.name !== "AbortError") show(null, `Cannot read records: ${error.message}`);
  }
}

function query(following) {
  const wanted = new URLSearchParams({ count: field("count").value, committed: String(!field("uncommitted").checked), ...following });
  if (field("partition").value) wanted.set("partition", field("partition").value);
  if (!following.older && !following.newer) {
    if (field("from").value === "offset") wanted.set("offset", field("offset").value);
    if (field("from").value === "time") wanted.set("time", String(new Date(field("time").value).getTime()));
  }
  return wanted;
}

// Percent-encoded, as a header has ASCII only; "hex:" begins a binary key.
function keyHeader() {
  const key = field("key").value;
  if (!key) return {};
  if (!key.startsWith("hex:")) return { "record-key": encodeURIComponent(key) };
  const digits = key.slice(4).replace(/[\s:]/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error(`${key} has not two hex digits for each byte`);
  return { "record-key": digits.replace(/../g, "%$&") };
}

function show(found, problem) {
  state.found = found;
  put("records-status", problem || (found ? summary(found) : ""));
  field("status").classList.toggle("bad", Boolean(problem));
  put("records-notes", (found?.notes ?? []).map((note) => h("li", null, note)));
  put("records-list", (found?.records ?? []).map((record, index) => entry(record, index === 0)));
  field("older").hidden = !found?.partitions.some((each) => offsetIn(found.older, each.partition) > each.start);
  field("newer").hidden = !found;
}

function offsetIn(places, partition) {
  const found = places.split(",").map((each) => each.split(":")).find(([number_]) => Number(number_) === partition);
  return found ? Number(found[1]) : 0;
}

function summary(found) {
  const held = found.partitions.reduce((sum, each) => sum + each.end - each.start, 0);
  const examined = found.partitions.reduce((sum, each) => sum + each.high - each.low, 0);
  if (held === 0) return "The topic is empty: no partition has a record.";
  const count = found.records.length;
  const searched = `examined ${number(examined)} of ${counted(held, "offset")}`;
  if (count) return `${counted(count, "record")}, ${searched}.`;
  return `No record${field("key").value ? " with this key" : ""}: ${searched}.`;
}

function entry(record, isOpen) {
  const [key, value] = [record.key, record.value];
  return h("li", null, h("details", { open: isOpen },
    h("summary", null,
      h("span", { class: "mono" }, `${record.partition}:${record.offset}`),
      h("time", null, moment(record)),
      h("b", null, preview(key)), h("span", { class: "preview" }, preview(value))),
    h("dl", { class: "record" },
      term("Key", content(key)), term("Value", content(value)),
      ...record.headers.map((header) => term(header.key || "(empty)", content(header.value), "header")))));
}

function moment(record) {
  if (record.timestamp_ms < 0) return "no timestamp";
  const date = new Date(record.timestamp_ms);
  if (Number.isNaN(date.getTime())) return `${record.timestamp_ms} ms`;
  return `${date.toLocaleString("sv-SE")}.${String(date.getMilliseconds()).padStart(3, "0")}${record.is_log_append_time ? " (set by the broker)" : ""}`;
}

function term(name, value, kind) {
  return h("div", { class: kind }, h("dt", null, name), h("dd", null, value));
}

function preview(shown) {
  if (shown.kind === "null") return "null";
  if (shown.size === 0) return "(empty)";
  return shown.text.replace(/\s+/g, " ").slice(0, LONGEST_PREVIEW);
}

function content(shown) {
  if (shown.kind === "null") return h("i", { class: "faint" }, "null");
  const note = `${shown.kind === "hex" ? "binary, " : shown.kind === "json" ? "JSON, " : ""}${bytes(shown.size)}${shown.is_cut ? ", only the beginning is shown" : ""}`;
  return [h("pre", { class: shown.kind, dir: "ltr" }, lines(shown.text)), h("span", { class: "faint" }, note)];
}
