// Creates elements. Text is always set as text, so that a name cannot become markup. Invisible characters, such as a
// change of the writing direction, are shown by their number, so that a name cannot garble its surroundings.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

export function plain(text) {
  return text.replace(UNSEEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

// Returns a text node of several lines.
export function lines(text) {
  return document.createTextNode(text.split("\n").map(plain).join("\n"));
}

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : plain(String(value)));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(typeof child === "string" ? plain(child) : child);
  }
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function put(id, ...children) {
  const shown = children.flat().filter((child) => child !== null && child !== undefined);
  document.getElementById(id).replaceChildren(...shown.map((child) => (typeof child === "string" ? plain(child) : child)));
}

export function meter(share, label, levels = [0.7, 0.9]) {
  const bar = h("i", { class: share >= levels[1] ? "bad" : share >= levels[0] ? "warn" : null });
  bar.style.width = `${Math.min(1, Math.max(0, share ?? 0)) * 100}%`;
  return h("span", null, h("span", { class: "meter", "aria-hidden": "true" }, bar), label);
}

