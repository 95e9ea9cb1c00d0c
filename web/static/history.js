// The last minutes of a few values, kept in this tab over a change of screen.
const KEPT_MS = 5 * 60 * 1000;
const LEAST_MS = 60 * 1000;
const PREFIX = "history:";

const series = new Map();

function load(name) {
  if (!series.has(name)) {
    let points = [];
    try { points = JSON.parse(sessionStorage.getItem(PREFIX + name)) ?? []; } catch { /* nothing kept */ }
    series.set(name, points);
  }
  return series.get(name);
}

export function remember(name, timeMs, value) {
  const points = load(name);
  if (value !== null && value !== undefined && (points.length === 0 || points.at(-1)[0] < timeMs)) points.push([timeMs, value]);
  while (points.length && points[0][0] < timeMs - KEPT_MS) points.shift();
  return points;
}

window.addEventListener("pagehide", () => {
  try {
    for (const [name, points] of series) sessionStorage.setItem(PREFIX + name, JSON.stringify(points));
  } catch { /* full or forbidden: the next screen starts without history */ }
});

// Draws the kept part of a series, at least a minute; the scale begins at 0, and gaps are shown.
export function spark(canvas, points, nowMs) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width) return;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const colour = getComputedStyle(canvas).getPropertyValue("--flow");
  const top = Math.max(...points.map((point) => point[1]), 1e-9);
  const window_ = Math.min(KEPT_MS, Math.max(LEAST_MS, points.length ? nowMs - points[0][0] : 0));
  const x = (time) => width - (nowMs - time) / window_ * width;
  const y = (value) => height - 1.5 - value / top * (height - 4);
  pen.strokeStyle = colour;
  pen.fillStyle = colour;
  pen.lineWidth = 1.25;
  pen.lineJoin = "round";
  for (const run of runs(points)) {
    pen.beginPath();
    run.forEach(([time, value], index) => (index ? pen.lineTo(x(time), y(value)) : pen.moveTo(x(time), y(value))));
    pen.stroke();
    pen.lineTo(x(run.at(-1)[0]), height);
    pen.lineTo(x(run[0][0]), height);
    pen.globalAlpha = 0.12;
    pen.fill();
    pen.globalAlpha = 1;
  }
}

function runs(points) {
  const found = [];
  for (const point of points) {
    const run = found.at(-1);
    if (run && point[0] - run.at(-1)[0] < 5000) run.push(point);
    else found.push([point]);
  }
  return found;
}
