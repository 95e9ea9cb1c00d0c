// A report's chart and tables as elements. The job that wrote them does not know this page.
import { h, plain } from "./dom.js";
import { DASH, bytes, micros, percent } from "./format.js";
import { Table } from "./table.js";

// Terms of jobs, and the terms of this page.
const TITLES = { requestApiKeyName: "API", requestApiKey: "API key", requestApiVersion: "version", clientId: "client", errorName: "error", p999Us: "p99.9" };
// The name of a column determines its unit.
const KINDS = [
  [/Us$/, micros],
  [/Ms$/, (value) => micros(value * 1e3)],
  [/(^s|S)hare$|Ratio$/, percent],
  [/(^b|B)ytes($|In|Out|Per)/, bytes],
];
const MOST_ON_A_LINE = 32;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)$/;

export function title(name) {
  if (TITLES[name]) return TITLES[name];
  // The numbers include their unit.
  const words = name.replace(/(Us|Ms)$/, "").replace(/PerS$/, " /s");
  return words.replace(/([a-z\d])([A-Z])/g, (_, before, after) => `${before} ${after.toLowerCase()}`);
}

export function amount(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  return size >= 100 ? Math.round(value).toLocaleString("en-US") : size >= 10 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}

export function cell(name, value) {
  if (value === null) return DASH;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return (KINDS.find(([end]) => end.test(name))?.[1] ?? amount)(value);
  // In the browser's time zone, like all times of the page; Sweden's format is that of ISO.
  return TIME.test(value) ? new Date(value).toLocaleString("sv-SE") : value;
}

// Returns an element with a table in it, in the order that the job gave its rows.
export function table({ name, columns, rows }) {
  const holder = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${name}` });
  const isNumber = columns.map((_, place) => rows.some((row) => typeof row[place] === "number") && rows.every((row) => row[place] === null || typeof row[place] === "number"));
  const made = new Table(holder, {
    caption: title(name), key: (row) => row.key, empty: "No rows.",
    columns: columns.map((column, place) => ({
      name: column, title: title(column), help: column, number: isNumber[place], class: isNumber[place] ? "" : width(column, rows, place),
      value: (row) => row.cells[place], show: (row) => cell(column, row.cells[place]),
    })),
  });
  made.update(rows.map((cells, key) => ({ key, cells })));
  return holder;
}

// Names are not wrapped, sentences are.
function width(column, rows, place) {
  return rows.every((row) => String(cell(column, row[place])).length <= MOST_ON_A_LINE) ? "tight" : "long";
}

// Returns a chart as an element of this page, so that it follows the theme and shows its hints.
export function chart(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.localName !== "svg") return null;
  const drawn = document.importNode(root, true);
  const texts = document.createTreeWalker(drawn, NodeFilter.SHOW_TEXT);
  // Lines of a hint stay lines.
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.split("\n").map(plain).join("\n");
  return drawn;
}
