import { h } from "../dom.js";
import { bytes, counted, number, short, span } from "../format.js";
import { follow, redraw } from "../live.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

let now = 0;
const UNNAMED = "(not named)";
const MOST_TOPICS = 3;
const MOST_VALUES = 5;
const CHOSEN = /queue\.time\.avg|producer\.request\.latency\.avg|throttle\.time\.avg|producer\.record\.error\.total|fetch\.latency\.avg|poll\.idle\.ratio|records\.lag\.max|rebalance\.latency\.avg/;
const filter = document.getElementById("filter");
filter.addEventListener("input", redraw);

const software = new Table("software", {
  caption: "Software",
  key: (row) => row.name, stacks: true,
  sort: "connections", descending: true,
  empty: "No clients are connected.",
  columns: [
    { name: "name", title: "Client library", value: (row) => row.name, show: (row) => row.name },
    { name: "connections", title: "connections", number: true, value: (row) => row.connections, show: (row) => number(row.connections) },
    { name: "rate", title: "requests/s", number: true, value: (row) => row.rate, show: (row) => short(row.rate) },
    { name: "old", title: "deprecated versions", value: (row) => row.old.length, show: (row) => (row.old.length ? row.old.map(tag) : h("span", { class: "faint" }, "none seen")) },
  ],
});

const quotas = new Table("quotas", {
  caption: "Quotas in use",
  key: (row) => [row.quota, row.user, row.client_id].join("\n"), stacks: true,
  sort: "still", descending: true,
  empty: "No quota has been used.",
  columns: [
    { name: "whose", title: "Client", class: "name", value: whose, show: whose },
    { name: "quota", title: "Quota", class: "mono", value: (row) => row.quota, show: (row) => row.quota },
    { name: "limit", title: "limit /s", number: true, value: (row) => row.limit, show: (row) => short(row.limit) },
    { name: "use", title: "used /s", number: true, value: (row) => row.per_s, show: (row) => short(row.per_s) },
    { name: "times", title: "throttled", number: true, help: "Number of throttled responses", value: (row) => row.times_throttled, show: (row) => number(row.times_throttled) },
    { name: "for", title: "together", number: true, medium: true, help: "Total throttle time", value: (row) => row.throttle_ms, show: (row) => span(row.throttle_ms / 1000) },
    { name: "still", title: "Now", class: "tight", value: (row) => row.throttled_ms, show: throttled },
  ],
});

const pushed = new Table("metrics", {
  caption: "Metrics that clients push",
  key: (row) => row.instance, stacks: true,
  sort: "pushed", descending: true,
  empty: "No client has pushed metrics.",
  columns: [
    { name: "client", title: "Client id", class: "name", value: (row) => row.client_id, show: (row) => row.client_id || UNNAMED },
    { name: "software", title: "Software", medium: true, value: name, show: name },
    { name: "user", title: "User", wide: true, value: (row) => row.user, show: (row) => row.user },
    { name: "address", title: "Address", class: "mono tight", medium: true, value: (row) => row.address, show: (row) => row.address },
    { name: "pushed", title: "last push", number: true, value: (row) => row.pushed_ms, show: (row) => `${span((now - row.pushed_ms) / 1000)} ago` },
    { name: "count", title: "metrics", number: true, value: (row) => row.metrics.length, show: (row) => number(row.metrics.length) },
    { name: "values", title: "Latest values", help: "The chosen ones; point at them for all", value: (row) => row.metrics.length, show: values },
  ],
});

const clients = new Table("clients", {
  caption: "Connections",
  key: (row) => row.connection, stacks: true,
  sort: "rate", descending: true,
  empty: "No matching client is connected.",
  columns: [
    { name: "client", title: "Client id", class: "name", value: (row) => row.client_id, show: (row) => row.client_id || UNNAMED },
    { name: "software", title: "Software", medium: true, value: name, show: name },
    { name: "address", title: "Address", class: "mono tight", medium: true, value: (row) => row.address, show: (row) => row.address },
    { name: "listener", title: "Listener", wide: true, class: "tight", value: (row) => row.listener, show: (row) => row.listener },
    { name: "rate", title: "requests/s", number: true, value: (row) => row.requests_per_s, show: (row) => short(row.requests_per_s) },
    { name: "in", title: "in /s", number: true, medium: true, value: (row) => row.bytes_in_per_s, show: (row) => bytes(row.bytes_in_per_s) },
    { name: "out", title: "out /s", number: true, medium: true, value: (row) => row.bytes_out_per_s, show: (row) => bytes(row.bytes_out_per_s) },
    { name: "errors", title: "errors", number: true, wide: true, class: (row) => (row.errors ? "warn" : ""), value: (row) => row.errors, show: (row) => number(row.errors) },
    { name: "state", title: "Now", class: "tight", value: (row) => row.in_flight, show: state },
    { name: "does", title: "What it does", help: "API and version; amber: a deprecated version", value: (row) => row.calls[0]?.api ?? "", show: (row) => row.calls.slice(0, 6).map(tag) },
    { name: "topics", title: "Topics", value: (row) => row.topics.join(), show: topics },
    { name: "since", title: "for", number: true, wide: true, value: (row) => -row.opened_ms, show: (row) => span((now - row.opened_ms) / 1000) },
  ],
});

function whose(row) {
  const named = [row.user && `user ${row.user}`, row.client_id].filter(Boolean).join(", ");
  return named || "all clients together";
}

function throttled(row) {
  return row.throttled_ms ? h("span", { class: "warn" }, `throttled, ${span(row.throttled_ms / 1000)} more`) : h("span", { class: "faint" }, "within it");
}

function values(row) {
  const told = (each) => {
    const whose = Object.values(each.attributes).join(" ");
    return `${each.name.replace("org.apache.kafka.", "")}${whose ? ` (${whose})` : ""} ${short(each.value)}`;
  };
  const chosen = row.metrics.filter((each) => CHOSEN.test(each.name));
  const shown = (chosen.length ? chosen : row.metrics).slice(0, MOST_VALUES);
  return h("span", { title: row.metrics.map(told).join("\n") }, shown.map((each) => h("span", { class: "tag" }, told(each))));
}

function name(row) {
  return row.software ? `${row.software} ${row.version}` : "unknown";
}

function tag(call) {
  const old = call.deprecated;
  return h("span", { class: old ? "tag old" : "tag", title: old ? "deprecated: later brokers do not serve this version" : null }, h("b", null, call.api), ` v${call.version}`, old ? " deprecated" : "");
}

function topics(row) {
  const more = row.topics.length - MOST_TOPICS;
  const named = row.topics.slice(0, MOST_TOPICS).join(", ");
  return more > 0 ? h("span", { title: row.topics.join(", ") }, named, h("span", { class: "faint" }, ` +${more}`)) : named;
}

function said(row) {
  return [row.client_id || UNNAMED, name(row), row.address, row.listener, row.connection, ...row.topics, ...row.calls.map((call) => call.api)].join("\n").toLowerCase();
}

function state(row) {
  if (row.muted.length) return h("span", { class: "warn" }, `muted: ${row.muted.join(", ").replaceAll("_", " ")}`);
  if (row.in_flight) return `${row.in_flight} in flight`;
  const quiet = (now - row.active_ms) / 1000;
  return h("span", { class: "faint" }, quiet < 2 ? "idle" : `idle ${span(quiet)}`);
}

follow((facts) => {
  now = facts.time_ms;
  const found = new Map();
  for (const client of facts.clients) {
    const row = found.get(name(client)) ?? { name: name(client), connections: 0, rate: null, old: [] };
    row.connections += 1;
    if (client.requests_per_s !== null) row.rate = (row.rate ?? 0) + client.requests_per_s;
    for (const call of client.calls) {
      if (call.deprecated && !row.old.some((each) => each.api === call.api && each.version === call.version)) row.old.push(call);
    }
    found.set(row.name, row);
  }
  software.update([...found.values()]);
  document.getElementById("quotas-panel").hidden = !facts.quotas.length;
  quotas.update(facts.quotas);
  document.getElementById("metrics-panel").hidden = !facts.instances.length;
  pushed.update(facts.instances);
  const wanted = filter.value.trim().toLowerCase();
  clients.update(facts.clients.filter((client) => said(client).includes(wanted)));
  const old = facts.clients.filter((client) => client.calls.some((call) => call.deprecated)).length;
  tiles(facts.time_ms, [
    { label: "Connections", value: number(facts.connections), unit: facts.left_out ? `${facts.left_out} not listed` : "", of: facts.connections, series: "connections" },
    { label: "Addresses", value: number(new Set(facts.clients.map((client) => client.address)).size), unit: "" },
    { label: "Client ids", value: number(new Set(facts.clients.map((client) => client.client_id)).size), unit: "" },
    { label: "Muted now", value: number(facts.clients.filter((client) => client.muted.length).length), unit: facts.quotas_left_out ? `${counted(facts.quotas_left_out, "quota")} not listed` : "" },
    { label: "Deprecated versions", value: number(old), unit: "" },
  ]);
});
