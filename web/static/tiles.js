// A row of totals, each with a history of minutes.
import { h } from "./dom.js";
import { remember, spark } from "./history.js";

const made = new Map();

export function tiles(timeMs, wanted) {
  const holder = document.getElementById("tiles");
  for (const { label, value, unit, of, series } of wanted) {
    let tile = made.get(label);
    if (!tile) {
      tile = { value: h("div", { class: "value" }), canvas: series ? h("canvas", { "aria-hidden": "true" }) : null };
      holder.append(h("div", { class: "tile" }, h("div", { class: "label" }, label), tile.value, tile.canvas));
      made.set(label, tile);
    }
    const [amount, inferred] = split(value);
    tile.value.replaceChildren(amount, h("small", null, unit ?? inferred));
    if (tile.canvas) spark(tile.canvas, remember(series, timeMs, of), timeMs);
  }
}

function split(text) {
  const at = text.indexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
