// Formats numbers and times. An unknown value is a dash, never 0.
export const DASH = "–";

export function number(value) {
  if (value === null || value === undefined) return DASH;
  if (value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value)) return value.toFixed(1);
  return Math.round(value).toLocaleString("en-US");
}

// A number and a noun, in the plural unless it is one.
export function counted(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function short(value) {
  if (value === null || value === undefined) return DASH;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6]]) {
    if (Math.abs(value) >= size) return `${scaled(value / size)} ${unit}`;
  }
  if (Math.abs(value) >= 1e4) return `${scaled(value / 1e3)} k`;
  return number(value);
}

function scaled(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (Math.abs(value) >= size) return `${scaled(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export function percent(value) {
  if (value === null || value === undefined) return DASH;
  if (value > 0 && value < 0.01) return "<1 %";
  return `${Math.round(value * 100)} %`;
}

export function micros(value) {
  if (value === null || value === undefined) return DASH;
  if (value >= 1e6) return `${scaled(value / 1e6)} s`;
  if (value >= 1e3) return `${scaled(value / 1e3)} ms`;
  return `${Math.round(value)} µs`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
}

const UNITS = [["d", 86400e3], ["h", 3600e3], ["min", 60e3], ["s", 1e3]];
const SIZES = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const MOST = new Set(["2147483647", "9223372036854775807"]);

// A setting's value as people write it, with the raw value where that differs.
export function setting(name, value) {
  const shown = MOST.has(value) || (value === "-1" && /retention\.(ms|bytes)$/.test(name)) ? "unlimited" : amount(name, value);
  return shown === value ? value : `${shown} (${value})`;
}

function amount(name, value) {
  const size = /^\d+$/.test(value) ? Number(value) : 0;
  const units = /\.ms$/.test(name) ? UNITS : /\.bytes(\.per\.second)?$/.test(name) ? SIZES : [];
  const found = units.find(([, each]) => size >= each && Number.isInteger(size / each * 10));
  return found ? `${(size / found[1]).toLocaleString("en-US")} ${found[0]}` : value;
}

export function clock(micros_, digits = 0) {
  const date = new Date(micros_ / 1000);
  const text = date.toLocaleTimeString("en-GB");
  return digits ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}
