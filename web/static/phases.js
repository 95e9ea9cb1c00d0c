// The phases of a request as one stacked bar.
import { h, svg } from "./dom.js";
import { micros } from "./format.js";

export const PHASES = ["queue", "handler", "waiting", "response queue", "send"];

// Their names in metrics and the request log.
export const ORDER = ["queue", "local", "remote", "response_queue", "send"];

const WAITING = ORDER.indexOf("remote");

// The time of the widest bar. Waits of a fetch for data, or of a member for its group, are not slow requests, so a few
// long ones must not flatten the others.
export function longestWork(all) {
  return Math.max(...all.map((phases) => phases.reduce((sum, each) => sum + each, 0) - phases[WAITING]), 0);
}

export function bar(phases, longest) {
  const total = phases.reduce((sum, each) => sum + each, 0);
  const width = longest > 0 ? Math.min(1, Math.max(total / longest, 0.004)) : 0;
  const picture = svg("svg", { class: "phases", viewBox: "0 0 1000 12", preserveAspectRatio: "none", role: "img", "aria-label": text(phases) });
  picture.append(svg("title", null, text(phases)));
  let x = 0;
  phases.forEach((each, index) => {
    const part = total > 0 ? each / total * width * 1000 : 0;
    if (part > 0) picture.append(svg("rect", { class: `phase-${index}`, x, y: 0, width: part, height: 12 }));
    x += part;
  });
  return picture;
}

export function text(phases) {
  return phases.map((each, index) => `${PHASES[index]} ${micros(each)}`).join(", ");
}

export function legend() {
  return h("div", { class: "legend" }, PHASES.map((name, index) => h("span", { class: `phase-${index}` }, name)));
}
