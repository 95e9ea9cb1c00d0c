import { addressOf, onOpened, opened, toggle } from "../address.js";
import { h, plain, put, svg } from "../dom.js";
import { clock, number, span } from "../format.js";
import { follow, redraw } from "../live.js";
import { Table } from "../table.js";
import { tiles } from "../tiles.js";

let now = 0;
const panel = document.getElementById("members-panel");
const assigned = (member) => (member.partitions === null ? "not readable" : Object.entries(member.partitions).map(([topic, all]) => `${topic}: ${all.join(", ")}`).join("; "));

const groups = new Table("groups", {
  caption: "Groups",
  key: (row) => row.id,
  sort: "lag", descending: true,
  empty: "No group.",
  columns: [
    { name: "id", title: "Group", value: (row) => row.id, show: (row) => h("button", { class: "link", type: "button", "aria-expanded": String(row.id === opened()), onclick: () => toggle(row.id) }, row.id) },
    { name: "kind", title: "Type", class: "tight", medium: true, value: (row) => row.kind, show: (row) => row.kind },
    { name: "state", title: "State", class: "tight", value: (row) => row.state, show: (row) => h("span", { class: /stable/i.test(row.state) ? null : "warn" }, row.state) },
    { name: "members", title: "members", number: true, medium: true, value: (row) => row.members.length, show: (row) => number(row.members.length) },
    { name: "lag", title: "lag, records", number: true, value: (row) => row.lag, show: (row) => number(row.lag) },
    { name: "age", title: "lag, time", number: true, value: (row) => row.lag_s, show: (row) => seconds(row.lag_s) },
    { name: "generation", title: "generation", number: true, medium: true, value: (row) => row.generation, show: (row) => number(row.generation) },
    { name: "protocol", title: "Assignor", class: "tight", medium: true, value: (row) => row.protocol, show: (row) => row.protocol ?? "" },
    { name: "handler", title: "handler", number: true, medium: true, value: (row) => row.handler, show: (row) => number(row.handler) },
  ],
});

const members = new Table("members", {
  caption: "Members", stacks: true,
  key: (row) => row.id,
  sort: "client", empty: "No member.",
  columns: [
    { name: "client", title: "Client id", value: (row) => row.client_id, show: (row) => row.client_id },
    { name: "id", title: "Member", class: "mono", medium: true, value: (row) => row.id, show: (row) => row.instance_id ?? row.id },
    { name: "host", title: "Address", class: "mono tight", value: (row) => row.host, show: (row) => row.host },
    { name: "heartbeat", title: "last heartbeat", number: true, value: (row) => row.silent_s, show: heartbeat },
    { name: "session", title: "session ends in", number: true, medium: true, value: (row) => row.session_left_s, show: (row) => seconds(row.session_left_s) },
    { name: "partitions", title: "Partitions", value: assigned, show: assigned },
  ],
});

const offsets = new Table("offsets", {
  caption: "Offsets", stacks: true,
  key: (row) => `${row.topic}/${row.partition}`,
  sort: "lag", descending: true, empty: "No committed offsets.",
  columns: [
    { name: "topic", title: "Topic", value: (row) => row.topic, show: (row) => h("a", { href: `topics${addressOf(row.topic)}` }, row.topic) },
    { name: "partition", title: "partition", number: true, value: (row) => row.partition, show: (row) => number(row.partition) },
    { name: "offset", title: "committed", number: true, medium: true, value: (row) => row.offset, show: (row) => number(row.offset) },
    { name: "end", title: "end", number: true, medium: true, value: (row) => row.end_offset, show: (row) => number(row.end_offset) },
    { name: "lag", title: "lag, records", number: true, value: (row) => row.lag, show: (row) => number(row.lag) },
    { name: "age", title: "lag, time", number: true, value: (row) => row.lag_s, show: (row) => seconds(row.lag_s) },
    { name: "committed", title: "last commit", number: true, medium: true, value: (row) => row.committed_ms, show: (row) => (row.committed_ms ? `${span((now - row.committed_ms) / 1000)} ago` : "–") },
  ],
});

const shares = new Table("shares", {
  caption: "Partitions", stacks: true,
  key: (row) => `${row.topic}/${row.partition}`,
  sort: "lag", descending: true, empty: "Nothing read yet.",
  columns: [
    { name: "topic", title: "Topic", value: (row) => row.topic, show: (row) => h("a", { href: `topics${addressOf(row.topic)}` }, row.topic) },
    { name: "partition", title: "partition", number: true, value: (row) => row.partition, show: (row) => number(row.partition) },
    { name: "start", title: "start", number: true, medium: true, value: (row) => row.start_offset, show: (row) => number(row.start_offset) },
    { name: "end", title: "end of window", number: true, medium: true, value: (row) => row.end_offset, show: (row) => number(row.end_offset) },
    { name: "in-flight", title: "in flight", number: true, value: (row) => row.in_flight, show: (row) => number(row.in_flight) },
    { name: "waiting", title: "waiting again", number: true, medium: true, value: (row) => row.waiting, show: (row) => number(row.waiting) },
    { name: "deliveries", title: "most deliveries", number: true, medium: true, value: (row) => row.deliveries, show: (row) => number(row.deliveries) },
    { name: "lock", title: "oldest lock ends in", number: true, medium: true, value: (row) => row.lock_left_s, show: (row) => seconds(row.lock_left_s) },
    { name: "lag", title: "lag, records", number: true, value: (row) => row.lag, show: (row) => number(row.lag) },
    { name: "age", title: "lag, time", number: true, medium: true, value: (row) => row.lag_s, show: (row) => seconds(row.lag_s) },
    { name: "expired", title: "locks run out", number: true, medium: true, value: (row) => row.locks_expired, show: (row) => number(row.locks_expired) },
    { name: "letters", title: "dead letters", number: true, medium: true, value: (row) => row.dead_letters, show: (row) => number(row.dead_letters) },
  ],
});

const events = new Table("events", {
  caption: "Events, newest first", stacks: true,
  key: (row) => `${row.time}/${row.group}/${row.member}/${row.event}/${row.reason}`,
  empty: "No group events since the recorder started.",
  columns: [
    { name: "time", title: "Time", class: "mono tight", value: (row) => row.time, show: (row) => clock(row.time, 3) },
    { name: "group", title: "Group", value: (row) => row.group, show: (row) => row.group },
    { name: "event", title: "Event", class: "tight", value: (row) => row.event, show: (row) => row.event },
    { name: "member", title: "Member", class: "mono", medium: true, value: (row) => row.member, show: (row) => row.member ?? "" },
    { name: "reason", title: "Reason", value: (row) => row.reason, show: (row) => row.reason ?? "" },
  ],
});

function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? `${value.toFixed(1)} s` : span(value);
}

// Silent for more than half of its session.
function heartbeat(row) {
  return h("span", { class: row.silent_s > row.session_left_s ? "warn" : null }, row.silent_s === null ? "–" : `${span(row.silent_s)} ago`);
}

onOpened(redraw);

// A colour and a shape for each kind of event; simultaneous events are stacked.
const KINDS = {
  join: { pattern: /join/, y: -5, path: "M-5 4L0 -5L5 4Z" },
  expire: { pattern: /expire|fence/, y: 5, path: "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z" },
  leave: { pattern: /leave/, y: 5, path: "M-5 -4L0 5L5 -4Z" },
  rebalance: { pattern: /rebalance/, y: 0, path: "M0 -5L5 0L0 5L-5 0Z" },
  other: { pattern: /./, y: 0, path: "M-3 -3H3V3H-3Z" },
};
const kind = (event) => Object.keys(KINDS).find((name) => KINDS[name].pattern.test(event)) ?? "other";
const mark = (name, x, y, ...children) => svg("path", { class: name, d: KINDS[name].path, transform: `translate(${x} ${y})` }, ...children);

put("timeline-legend", Object.keys(KINDS).map((name) => h("span", null, svg("svg", { viewBox: "-6 -6 12 12", "aria-hidden": "true" }, mark(name, 0, 0)), name)));

const ROW = 28;

// The last ten minutes on one line for each group, oldest left.
function timeline(found) {
  const all = found.filter((event) => now * 1000 - event.time < 600e6);
  const names = [...new Set(all.map((event) => event.group))].slice(0, 8);
  const holder = document.getElementById("timeline");
  if (!names.length) return put("timeline");
  const width = holder.clientWidth, height = names.length * ROW + 20;
  const narrow = width < 500, left = narrow ? 90 : 150, letters = narrow ? 12 : 22;
  const x = (time) => left + (1 - (now * 1000 - time) / 600e6) * (width - left - 10);
  const picture = svg("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Events of groups in the last ten minutes; the table below has the same" });
  picture.style.height = `${height}px`;
  names.forEach((name, index) => {
    const y = index * ROW + 14;
    picture.append(svg("text", { x: 0, y: y + 4 }, name.length > letters ? `${name.slice(0, letters - 1)}…` : name), svg("line", { x1: left, x2: width - 10, y1: y, y2: y }));
    for (const event of all.filter((each) => each.group === name)) {
      const name = kind(event.event);
      picture.append(mark(name, x(event.time), y + KINDS[name].y, svg("title", null, `${clock(event.time)} ${event.event}${event.reason ? `: ${event.reason}` : ""}`)));
    }
  });
  for (const minutes of narrow ? [10, 5, 0] : [10, 8, 6, 4, 2, 0]) {
    const at = x((now - minutes * 60e3) * 1000);
    picture.append(svg("text", { x: at, y: height - 4, "text-anchor": minutes === 0 ? "end" : minutes === 10 ? "start" : "middle" }, minutes ? `−${minutes} min` : "now"));
  }
  return put("timeline", picture);
}

follow((facts) => {
  now = facts.time_ms;
  const selected = opened();
  groups.selected = selected;
  groups.update(facts.groups);
  const shown = facts.groups.find((group) => group.id === selected);
  panel.hidden = !selected;
  document.title = `${selected ? `${plain(selected)} · ` : ""}Groups · Rotunda`;
  document.getElementById("group-parts").hidden = !shown;
  put("group-missing", selected && !shown ? `There is no group ${selected}.` : "");
  if (shown) {
    members.table.caption.firstChild.textContent = plain(`Members of ${shown.id}`);
    members.update(shown.members);
    const isShare = shown.kind === "share";
    document.getElementById("offsets").hidden = isShare;
    document.getElementById("shares").hidden = !isShare;
    offsets.update(shown.offsets);
    shares.update(shown.share_partitions);
  }
  events.update(facts.events);
  timeline(facts.events);
  const lags = facts.groups.map((group) => group.lag).filter((lag) => lag !== null);
  const ages = facts.groups.map((group) => group.lag_s).filter((age) => age !== null);
  const lag = lags.length ? lags.reduce((sum, each) => sum + each, 0) : null;
  tiles(facts.time_ms, [
    { label: "Groups", value: number(facts.groups.length), unit: facts.left_out ? `${facts.left_out} not listed` : "" },
    { label: "Members", value: number(facts.groups.reduce((sum, group) => sum + group.members.length, 0)), unit: "" },
    { label: "Lag of all groups", value: number(lag), unit: "records", of: lag, series: "lag" },
    { label: "Longest lag", value: ages.length ? seconds(Math.max(...ages)) : "–", of: ages.length ? Math.max(...ages) : null, series: "lag-s" },
    { label: "Open transactions", value: number(facts.transactions.length), unit: "" },
  ]);
});
