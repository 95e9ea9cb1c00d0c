// Places of the parts of the picture: side by side if there is room, else one below the other.
const GAP = 12, TOP = 24, TITLE = 26, LOWER = 44;
const MOST = 8;
const LEAST_ACROSS = 760;

export const LANE = 36;

// Everything is {x, y, width, height}; `brief`: there is room for one line of text only.
export function layout(facts, room) {
  return room < LEAST_ACROSS ? stacked(facts, Math.max(room, 280)) : across(facts, room);
}

function sizes(facts) {
  const processors = facts.processors.slice(0, MOST);
  const handlers = facts.handlers.slice(0, MOST);
  const targets = [...handlers, facts.controller].map((each, index) => ({
    facts: each, isController: index === handlers.length, number: index === handlers.length ? facts.handlers.length : index,
  }));
  return { processors, targets };
}

function across(facts, width) {
  const { processors, targets: found } = sizes(facts);
  const wide = width > 1050;
  const columns = wide ? [150, 196, 0, 212, 168] : [112, 152, 0, 172, 128];
  const between = wide ? 44 : 22;
  columns[2] = width - columns[0] - columns[1] - columns[3] - columns[4] - 3 * between - 8;
  const x = [0];
  for (const [index, size] of columns.slice(0, 4).entries()) x.push(x.at(-1) + size + (index === 2 ? 8 : between));
  const room = Math.max(96, processors.length * LANE + 16);
  const targets = [];
  const lanes = [];
  let y = TOP;
  for (const each of found) {
    const height = each.isController ? Math.max(60, processors.length * LANE + 4) : room;
    const place = { ...each, x: x[3], y, width: columns[3], height };
    targets.push(place);
    const inset = (height - processors.length * LANE) / 2;
    for (const { index } of processors) {
      lanes.push({ x: x[2], y: y + inset + index * LANE, width: columns[2], processor: index, place });
    }
    y += height + GAP;
  }
  const main = y - GAP - TOP;
  const each = (main - GAP * (processors.length - 1)) / processors.length;
  const boxes = processors.map((_, index) => ({ x: x[1], y: TOP + index * (each + GAP), width: columns[1], height: Math.min(each, 136), }));
  const used = boxes.length ? boxes.at(-1).y + boxes.at(-1).height - TOP : 0;
  boxes.forEach((box) => { box.y += (main - used) / 2; });
  const handlersEnd = targets.length > 1 ? targets.at(-2).y + targets.at(-2).height : TOP + main;
  const lower = TOP + main + 34;
  const texts = ["accept", "read and write", columns[2] > 330 ? "request channel: requests → and responses ←, waiting and fill" : "request channel", "respond", "store"];
  return {
    width, lanes, targets, processors: boxes, isStacked: false,
    titles: [...texts.map((text, index) => ({ x: x[index], y: 12, text })), { x: 0, y: lower - 10, text: "not on the path of a request" }],
    acceptor: { x: 0, y: TOP + main / 2 - 48, width: columns[0], height: 96 },
    log: { x: x[4], y: TOP, width: columns[4], height: handlersEnd - TOP },
    background: row(4, width, lower),
    height: lower + 48,
  };
}

function stacked(facts, width) {
  const { processors, targets: found } = sizes(facts);
  const half = (width - GAP) / 2;
  const titles = [], boxes = [], targets = [], lanes = [];
  let y = 0;
  const section = (text) => {
    titles.push({ x: 0, y: y + 13, text });
    y += TITLE;
  };
  const pairs = (count, height) => {
    const top = y;
    y += Math.ceil(count / 2) * (height + GAP);
    return (index) => ({ x: (index % 2) * (half + GAP), y: top + Math.floor(index / 2) * (height + GAP), width: half, height });
  };
  section("accept");
  const acceptor = { x: 0, y, width, height: LOWER, brief: true };
  y += LOWER + GAP;
  section("↓ read and write");
  const ofProcessor = pairs(processors.length, 136);
  processors.forEach((_, index) => boxes.push(ofProcessor(index)));
  section("↓ request channel: waiting and fill");
  const top = y;
  y += found.length * processors.length * LANE + GAP;
  section("↓ respond");
  const ofTarget = pairs(found.length, 96);
  found.forEach((each, index) => {
    const place = { ...each, ...ofTarget(index) };
    targets.push(place);
    for (const { index: processor } of processors) lanes.push({ x: 0, y: top + (index * processors.length + processor) * LANE, width, processor, place });
  });
  section("↓ store");
  const log = { x: 0, y, width, height: LOWER, brief: true };
  y += LOWER + GAP;
  section("not on the path of a request");
  const background = [...row(2, width, y), ...row(2, width, y + LOWER + GAP)];
  return { width, lanes, targets, processors: boxes, isStacked: true, titles, acceptor, log, background, height: y + 2 * LOWER + GAP + 2 };
}

function row(count, width, y) {
  const each = (width - (count - 1) * GAP) / count;
  return Array.from({ length: count }, (_, index) => ({ x: index * (each + GAP), y, width: each, height: LOWER }));
}
