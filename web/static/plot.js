// Charts of series over time: axes of time and value, lines with gaps, marked events, and a cursor that all share.
import { h, svg } from "./dom.js";
import { DASH } from "./format.js";

const LEFT = 58, RIGHT = 8, TOP = 8, BOTTOM = 20, HEIGHT = 150;
const STEPS = [1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((minutes) => minutes * 60e3);
const HOUR_MS = 3600e3, DAY_MS = 86400e3;
const OTHERS = "others";
// Least distance of the ends of a selection, in pixels; less is a click.
const LEAST_DRAG = 6;

const hours = (ms) => new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = (ms) => new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
export const moment = (ms) => `${day(ms)} ${hours(ms)}`;

// Charts below each other over one range; `choose(ms)` is called with a clicked point, `zoom(from, to)` with a selection.
export class Plots {
  constructor(holder, { choose, zoom }) {
    this.holder = holder;
    this.choose = choose;
    this.zoom = zoom;
    this.plots = [];
    this.range = null;
    this.events = [];
    this.at = null;
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  // series: [{name, values}], one value a point, null where unknown; `show` formats a value; `top` is the end of the
  // axis of values, which begins at 0, or with `log` at a power of ten; `units` are the steps of the axis, else decimal.
  add(title, { note, show, top, log, units }) {
    const plot = { show, top, log, units, series: [], legend: h("div", { class: "legend plot-legend" }), frame: h("div", { class: "plot-frame" }) };
    plot.figure = h("figure", { class: "plot", hidden: true }, h("figcaption", null, title, h("span", { class: "plot-note" }, note ?? "")), plot.legend, plot.frame);
    plot.frame.addEventListener("pointermove", (event) => this.move(plot, event));
    plot.frame.addEventListener("pointerleave", () => this.cursor(null));
    plot.frame.addEventListener("pointerdown", (event) => { plot.pressed = event.offsetX; });
    plot.frame.addEventListener("pointerup", (event) => this.release(plot, event));
    this.holder.append(plot.figure);
    this.plots.push(plot);
    return plot;
  }

  update(range, events) {
    // Another point would be under the cursor.
    if (this.range?.from_ms !== range.from_ms || this.range.step_ms !== range.step_ms) this.at = null;
    this.range = range;
    this.events = events;
    this.draw();
  }

  draw() {
    if (!this.range) return;
    for (const plot of this.plots) {
      plot.figure.hidden = plot.series.length === 0;
      if (!plot.figure.hidden) this.drawOne(plot);
    }
    this.cursor(this.at);
  }

  drawOne(plot) {
    const width = Math.max(200, plot.frame.clientWidth || this.holder.clientWidth);
    const scale = new Scale(this.range, width, plot);
    plot.scale = scale;
    plot.line = svg("line", { class: "plot-cursor", y1: TOP, y2: HEIGHT - BOTTOM, hidden: true });
    const picture = svg("svg", { class: "plot-picture", width, height: HEIGHT, role: "img", "aria-label": `${plot.figure.firstChild.textContent}: ${plot.series.map((each) => each.name).join(", ")}` },
      scale.values().map((value) => [
        svg("line", { class: "plot-grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(value), y2: scale.y(value) }),
        svg("text", { x: LEFT - 6, y: scale.y(value) + 4, "text-anchor": "end" }, plot.show(value)),
      ]).flat(),
      scale.times().map(({ ms, text }) => svg("text", { x: scale.x(ms), y: HEIGHT - 5, "text-anchor": "middle" }, text)),
      this.range.unreadable_hours_ms.map((ms) => [scale.x(Math.max(ms, scale.from)), scale.x(Math.min(ms + HOUR_MS, scale.to))])
        .map(([x, end]) => svg("rect", { class: "plot-unreadable", x, y: TOP, width: Math.max(0, end - x), height: HEIGHT - TOP - BOTTOM })),
      this.events.map((event) => svg("line", { class: `plot-event ${event.level}`, x1: scale.x(event.time_ms), x2: scale.x(event.time_ms), y1: TOP, y2: HEIGHT - BOTTOM })),
      plot.series.map((each, index) => svg("path", { class: `plot-line ${colour(each.name, index)}`, d: scale.path(each.values) })),
      plot.line);
    plot.frame.replaceChildren(picture);
    plot.numbers = plot.series.map(() => h("b"));
    plot.legend.replaceChildren(...plot.series.map((each, index) => h("span", { class: colour(each.name, index) }, `${each.name} `, plot.numbers[index])));
  }

  move(plot, event) {
    const { from_ms: from, step_ms: step, points } = this.range;
    const point = Math.floor((plot.scale.time(event.offsetX) - from) / step);
    this.cursor(point >= 0 && point < points ? point : null);
  }

  release(plot, event) {
    const begin = plot.pressed;
    plot.pressed = null;
    if (begin === null || begin === undefined) return;
    const [first, last] = [begin, event.offsetX].sort((a, b) => a - b).map((x) => plot.scale.time(x));
    if (Math.abs(event.offsetX - begin) >= LEAST_DRAG) this.zoom(first, last);
    else if (this.at !== null) this.choose(this.range.from_ms + this.at * this.range.step_ms);
  }

  // Moves the cursor of all charts to a point and shows the values there; without one the latest values.
  cursor(point) {
    this.at = point;
    for (const plot of this.plots) {
      if (plot.figure.hidden || !plot.scale) continue;
      plot.line.toggleAttribute("hidden", point === null);
      if (point !== null) {
        const x = plot.scale.x(this.range.from_ms + (point + 0.5) * this.range.step_ms);
        plot.line.setAttribute("x1", x);
        plot.line.setAttribute("x2", x);
      }
      plot.series.forEach((each, index) => {
        const value = point === null ? latest(each.values) : each.values[point];
        plot.numbers[index].textContent = value === null || value === undefined ? DASH : plot.show(value);
      });
    }
    this.holder.dispatchEvent(new CustomEvent("cursor", { detail: point }));
  }
}

function latest(values) {
  return values.findLast((value) => value !== null);
}

function colour(name, index) {
  return name === OTHERS ? "line-others" : `line-${index}`;
}

class Scale {
  constructor({ from_ms: from, step_ms: step, points }, width, plot) {
    this.from = from;
    this.step = step;
    this.to = from + step * points;
    this.width = width;
    this.log = plot.log;
    const known = plot.series.flatMap((each) => each.values.filter((value) => value !== null));
    const highest = plot.top ?? Math.max(0, ...known);
    this.lowest = this.log ? 10 ** Math.floor(Math.log10(Math.max(1, Math.min(...known)))) : 0;
    this.unit = plot.units?.find((each) => each >= highest / 4) ?? nice((highest || 1) / 3);
    if (this.log) this.highest = Math.max(this.lowest * 10, 10 ** Math.ceil(Math.log10(highest || 1)));
    else this.highest = plot.top ?? Math.max(this.unit, Math.ceil(highest / this.unit) * this.unit);
  }

  x(ms) { return LEFT + (ms - this.from) / (this.to - this.from) * (this.width - LEFT - RIGHT); }

  y(value) {
    const share = this.log ? Math.log(Math.max(value, this.lowest) / this.lowest) / Math.log(this.highest / this.lowest) : value / this.highest;
    return HEIGHT - BOTTOM - Math.min(share, 1) * (HEIGHT - TOP - BOTTOM);
  }

  time(x) { return this.from + (x - LEFT) / (this.width - LEFT - RIGHT) * (this.to - this.from); }

  values() {
    const found = [];
    for (let value = this.lowest; value <= this.highest * 1.0001; value = this.log ? value * 10 : value + this.unit) found.push(value);
    return found;
  }

  // Times of day in the browser's time zone; midnight is a date.
  times() {
    const room = Math.max(2, Math.floor((this.width - LEFT) / 66));
    const step = STEPS.find((each) => (this.to - this.from) / each <= room) ?? STEPS.at(-1);
    const found = [];
    const offset = (ms) => new Date(ms).getTimezoneOffset() * 60e3;
    for (let local = Math.ceil((this.from - offset(this.from)) / step) * step; ; local += step) {
      const ms = local + offset(local + offset(this.from));
      if (ms > this.to) return found;
      if (this.x(ms) > LEFT + 14 && this.x(ms) < this.width - 18) found.push({ ms, text: local % DAY_MS ? hours(ms) : day(ms) });
    }
  }

  // A line through the middles of points; a single point between gaps is a short line.
  path(values) {
    let path = "", open = false;
    values.forEach((value, point) => {
      if (value === null) { open = false; return; }
      const x = this.x(this.from + (point + 0.5) * this.step).toFixed(1), y = this.y(value).toFixed(1);
      path += open ? `L${x} ${y}` : `M${x} ${y}h0.01`;
      open = true;
    });
    return path;
  }
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= value * 0.999);
}
