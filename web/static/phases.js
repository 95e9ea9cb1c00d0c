// The phases of a request as one stacked bar.
import { h, svg } from "./dom.js";
import { micros } from "./format.js";

export const PHASES = ["queue", "handler", "waiting", "response queue", "send"];

// Their names in metrics and the request log.
export const ORDER = ["queue", "local", "remote", "response_queue", "send"];

const WAITING = ORDER.indexOf("remote");

// The part of the scale that is left for a wait in the widest bar.
const ROOM_FOR_WAITS = 0.15;
const CUT_WIDTH = 14;

// The time of a full bar, one for all bars of a table. Waits of a fetch for data, or of a member for its group, are not
// slow requests, so a few long ones must not flatten the others: longer waits are cut.
export function scaleOf(all) {
  const work = Math.max(...all.map((phases) => sum(phases) - phases[WAITING]), 0);
  return work / (1 - ROOM_FOR_WAITS);
}

function sum(phases) {
  return phases.reduce((all, each) => all + each, 0);
}

export function bar(phases, scale) {
  const rest = scale - (sum(phases) - phases[WAITING]);
  const isCut = phases[WAITING] > rest;
  const picture = svg("svg", { class: "phases", viewBox: "0 0 1000 12", preserveAspectRatio: "none", role: "img", "aria-label": text(phases) });
  picture.append(svg("title", null, text(phases)));
  let x = 0;
  phases.forEach((each, index) => {
    const part = scale > 0 ? (index === WAITING ? Math.min(each, rest) : each) / scale * 1000 : 0;
    if (part > 0) picture.append(svg("rect", { class: `phase-${index}`, x, y: 0, width: part, height: 12 }));
    x += part;
    if (isCut && index === WAITING) picture.append(svg("path", { class: "cut", d: `M${x - part / 2 - CUT_WIDTH} 12L${x - part / 2} 0h${CUT_WIDTH}L${x - part / 2} 12Z` }));
  });
  return picture;
}

export function text(phases) {
  return `${phases.map((each, index) => `${PHASES[index]} ${micros(each)}`).join(", ")}; ${micros(sum(phases))} in all`;
}

export function legend() {
  return h("div", { class: "legend" }, PHASES.map((name, index) => h("span", { class: `phase-${index}` }, name)), h("span", { class: "cut" }, "a longer wait, cut"));
}
