// The picture of the broker: requests move from left to right, responses back through the same rings.
import { svg } from "./dom.js";
import { bytes, counted, number, percent, short } from "./format.js";
import { LANE, layout } from "./layout.js";

const PADDING = 28;
const LABEL = 58, FIGURES = 96;
const LONGEST_NAMES = 16;

// Any value above 0 is visible.
const LEAST_FILL = 3;

export function draw(holder, facts) {
  const places = layout(facts, holder.clientWidth - PADDING);
  const picture = svg("svg", { viewBox: `0 0 ${places.width} ${places.height}`, width: places.width, height: places.height, role: "img", "aria-label": summary(facts) });
  for (const { x, y, text } of places.titles) picture.append(svg("text", { class: "column", x, y }, text));
  if (!places.isStacked) wires(picture, places, facts);
  acceptor(picture, places.acceptor, facts);
  places.processors.forEach((place, index) => processor(picture, place, facts.processors[index], facts));
  places.targets.forEach((place) => target(picture, place, facts));
  places.lanes.forEach((place) => lane(picture, place, facts));
  log(picture, places.log, facts);
  background(picture, places.background, facts);
  holder.replaceChildren(picture);
}

function wires(picture, places, facts) {
  const start = { x: places.acceptor.x + places.acceptor.width, y: places.acceptor.y + places.acceptor.height / 2 };
  const flowing = (rate) => (rate > 0 ? "wire live" : "wire");
  places.processors.forEach((box) => {
    picture.append(wire(start, { x: box.x, y: box.y + box.height / 2 }, flowing(facts.acceptor.accepted_per_s)));
  });
  for (const each of places.lanes) {
    const box = places.processors[each.processor];
    const from = { x: box.x + box.width, y: box.y + box.height / 2 };
    picture.append(wire(from, { x: each.x, y: each.y + LANE / 2 }, flowing(each.place.facts.requests_per_s)));
    picture.append(wire({ x: each.x + each.width, y: each.y + LANE / 2 }, { x: each.place.x, y: each.y + LANE / 2 }, flowing(each.place.facts.requests_per_s)));
  }
  places.targets.filter((place) => !place.isController).forEach((place) => {
    const y = place.y + place.height / 2;
    picture.append(wire({ x: place.x + place.width, y }, { x: places.log.x, y }, flowing(place.facts.bytes_per_s)));
  });
}

function wire(from, to, kind) {
  const middle = (from.x + to.x) / 2;
  return svg("path", { class: kind, d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
}

function process(facts, role, index = 0) {
  return facts.processes.find((each) => each.role === role && each.index === index);
}

function box(picture, place, facts, role, index, title, lines, idle) {
  const found = process(facts, role, index);
  const down = found && !found.serves;
  const hangs = facts.verdict.level === "stuck" && facts.verdict.where.includes(`${role}-${index}`);
  const busy = !down && !hangs && facts.verdict.where.includes(`${role}-${index}`);
  picture.append(svg("rect", { class: `box${down || hangs ? " down" : busy ? " busy" : ""}`, x: place.x + 0.5, y: place.y + 0.5, width: place.width - 1, height: place.height - 1, rx: 5 }));
  const left = place.x + 12;
  let y = place.y + (place.height < 70 ? 18 : 21);
  picture.append(svg("text", { class: "name", x: left, y }, title));
  if (down) picture.append(svg("text", { class: "alert", x: place.x + place.width - 12, y, "text-anchor": "end" }, "down"));
  else if (found?.restarts) picture.append(svg("text", { class: "soft", x: place.x + place.width - 12, y, "text-anchor": "end" }, `↻ ${found.restarts}`));
  if (idle !== undefined) {
    y += 9;
    const room = place.width - 24;
    const busyShare = idle === null ? 0 : 1 - idle;
    picture.append(svg("rect", { class: "track", x: left, y, width: room, height: 6, rx: 1.5 }));
    picture.append(svg("rect", { class: level(busyShare, 0.8, 0.9, false), x: left, y, width: room * busyShare, height: 6, rx: 1.5 }));
    y += 5;
  }
  for (const line of lines) {
    y += place.height < 70 ? 15 : 17;
    picture.append(svg("text", { class: line.class ?? "soft", x: left, y }, line.text ?? line, line.help ? svg("title", null, line.help) : null));
  }
}

function level(share, warn, bad, red = true) {
  return share >= bad ? `fill ${red ? "bad" : "warn"}` : share >= warn ? "fill warn" : "fill";
}

function acceptor(picture, place, facts) {
  const a = facts.acceptor;
  const lines = [`${short(a.accepted_per_s)} new/s`, `${number(facts.totals.connections)} open`];
  if (a.blocked > 0.01) lines.push(`blocked ${percent(a.blocked)}`);
  else lines.push(named(facts.listeners));
  box(picture, place, facts, "acceptor", 0, "Acceptor", place.brief ? [lines.map((line) => line.text ?? line).join(" · ")] : lines);
}

function named(listeners) {
  const names = listeners.join(", ");
  return names.length > LONGEST_NAMES ? { text: counted(listeners.length, "listener"), help: names } : names;
}

// The arena, and other memory kept for clients, if any.
function memory(p, facts) {
  const arena = `arena ${percent(p.arena_bytes ? p.arena_used_bytes / p.arena_bytes : null)}`;
  const kept = p.requests_kept_bytes + p.answers_unwritten_bytes;
  if (!kept) return { text: `${arena} of ${bytes(p.arena_bytes)}`, help: facts.texts.arena_used_bytes };
  const asked = `${bytes(p.requests_kept_bytes)}: ${facts.texts.requests_kept_bytes}`;
  return { text: `${arena} · keeps ${bytes(kept)}`, help: `${asked} ${bytes(p.answers_unwritten_bytes)}: ${facts.texts.answers_unwritten_bytes}` };
}

function processor(picture, place, p, facts) {
  const muted = Object.entries(p.mutes_per_s).sort((a, b) => b[1] - a[1])[0];
  const lines = [
    { text: `${short(p.requests_per_s)} requests/s`, class: "" },
    `in ${bytes(p.bytes_in_per_s)}/s · out ${bytes(p.bytes_out_per_s)}/s`,
    `${counted(p.connections, "connection")} · idle ${percent(p.idle)}`,
    memory(p, facts),
  ];
  if (muted) lines.push({ text: `muted by ${muted[0].replace("_", " ")}: ${short(muted[1])}/s`, help: facts.texts.mutes });
  if (place.width < 170) {
    lines.splice(1, 2, `in ${bytes(p.bytes_in_per_s)}/s`, `out ${bytes(p.bytes_out_per_s)}/s`, `idle ${percent(p.idle)}`);
  }
  const room = Math.max(1, Math.floor((place.height - 36) / 17));
  box(picture, place, facts, "processor", p.index, `Processor ${p.index}`, lines.slice(0, room), p.idle);
}

function target(picture, place, facts) {
  const t = place.facts;
  if (place.isController) {
    const lines = [`${short(t.requests_per_s)} requests/s`, `idle ${percent(t.idle)}`];
    box(picture, place, facts, "controller", 0, "Controller", place.width < 190 ? lines : [lines.join(" · ")], t.idle);
    return;
  }
  const lines = [
    { text: `${short(t.requests_per_s)} requests/s · idle ${percent(t.idle)}`, class: "" },
    `${short(t.records_per_s)} records/s · ${bytes(t.bytes_per_s)}/s`,
    { text: `${short(t.commits_per_s)} writes/s · ${short(t.parked_per_s)} parked/s`, help: `${facts.texts.commits} ${facts.texts.fetches_parked}` },
  ];
  if (place.width < 190) lines.splice(0, 3, { text: `${short(t.requests_per_s)} requests/s`, class: "" }, `${short(t.records_per_s)} records/s`, `idle ${percent(t.idle)}`);
  box(picture, place, facts, "handler", t.index, `Handler ${t.index}`, lines, t.idle);
}

function lane(picture, place, facts) {
  const of = (kind) => facts.rings.find((ring) => ring.kind === kind && ring.processor === place.processor && ring.target === place.place.number);
  const request = of("request"), response = of("response");
  const label = `p${place.processor} ⇄ ${place.place.isController ? "c" : `h${place.place.number}`}`;
  const x = place.x + LABEL, room = Math.max(20, place.width - LABEL - FIGURES);
  picture.append(svg("text", { class: "soft", x: place.x + 4, y: place.y + 21, "font-size": 11 }, label));
  const held = facts.verdict.level === "stuck" && facts.verdict.where.includes(place.place.isController ? "controller-0" : `handler-${place.place.number}`);
  [[request, place.y + 6], [response, place.y + 19]].forEach(([ring, y], index) => {
    if (!ring) return;
    const size = ring.fill > 0 ? Math.max(room * ring.fill, LEAST_FILL) : 0;
    const stuck = held && ring === request && ring.frames > 0;
    picture.append(svg("rect", { class: "track", x, y, width: room, height: 9, rx: 2 },
      svg("title", null, `${index ? "responses" : "requests"}: ${bytes(ring.used_bytes)} of ${bytes(ring.capacity_bytes)}`)));
    // A request ring fills from its reader's end, and so does a response ring.
    picture.append(svg("rect", { class: stuck ? "fill bad" : level(ring.fill, 0.1, 0.5), x: index ? x : x + room - size, y, width: size, height: 9, rx: 2 }));
    picture.append(svg("text", { class: stuck || ring.fill >= 0.1 ? "alert" : "soft", x: x + room + 8, y: y + 8.5, "font-size": 11 }, `${index ? "←" : "→"} ${number(ring.frames)} · ${percent(ring.fill)}`));
  });
}

function log(picture, place, facts) {
  const t = facts.totals;
  const b = facts.broker;
  const free = b.disk_bytes ? b.disk_free_bytes / b.disk_bytes : null;
  picture.append(svg("rect", { class: "box", x: place.x + 0.5, y: place.y + 0.5, width: place.width - 1, height: place.height - 1, rx: 5 }));
  const lines = [["name", "Log"], ["", bytes(t.log_bytes)], ["soft", counted(t.topics, "topic")], ["soft", counted(t.partitions, "partition")],
    [free !== null && free < 0.1 ? "alert" : "soft", `disk ${percent(free)} free`]];
  if (place.brief) {
    const [[, title], ...facts_] = lines;
    const [kind, disk] = facts_.pop();
    picture.append(svg("text", { class: "name", x: 12, y: place.y + 18 }, title));
    picture.append(svg("text", { class: kind, x: place.x + place.width - 12, y: place.y + 18, "text-anchor": "end" }, disk));
    picture.append(svg("text", { class: "soft", x: 12, y: place.y + 33 }, facts_.map(([, text]) => text).join(" · ")));
    return;
  }
  lines.forEach(([kind, text], index) => picture.append(svg("text", { class: kind, x: place.x + 12, y: place.y + 21 + index * 17 }, text)));
}

function background(picture, places, facts) {
  const restarts = facts.processes.reduce((sum, each) => sum + each.restarts, 0);
  const ring = Math.max(0, ...facts.rings.filter((each) => each.kind === "recorder").map((each) => each.fill));
  const cleaner = facts.background.cleaner ?? {}, recorder = facts.background.recorder ?? {};
  const found = [
    ["recorder", "Recorder", `${short(recorder.rows_written)} rows in files`, `ring ${percent(ring)}`],
    ["cleaner", "Cleaner", `reads ${bytes(cleaner.bytes_read_per_s ?? 0)}/s`, `to compact ${number(cleaner.max_dirty_percent)} %`],
    ["supervisor", "Supervisor", counted(restarts, "restart"), `pid ${facts.broker.pid}`],
    ["web", "This page", `${number(process(facts, "web")?.pss_bytes / 1e6)} MB`, `cpu ${percent(process(facts, "web")?.cpu)}`],
  ];
  found.forEach(([role, title, ...lines], index) => {
    box(picture, places[index], facts, role, 0, title, [places[index].width < 180 ? lines[0] : lines.join(" · ")]);
  });
}

function summary(facts) {
  const parts = facts.processors.map((p) => `processor ${p.index}: ${number(p.requests_per_s)} requests/s, idle ${percent(p.idle)}`);
  parts.push(...facts.handlers.map((t) => `handler ${t.index}: ${number(t.requests_per_s)} requests/s, idle ${percent(t.idle)}`));
  return `${facts.verdict.text} ${parts.join("; ")}.`;
}
