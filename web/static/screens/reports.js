import { h, put } from "../dom.js";
import { DASH, span } from "../format.js";
import { follow, redraw } from "../live.js";
import { cell, chart, table, title } from "../report.js";
import { Table } from "../table.js";

const FIRST = "diagnose";
const panel = document.getElementById("report-panel");
let now = 0, selected = decodeURIComponent(location.hash.slice(1)) || null, drawn = null;

const age = (brief) => (brief.ended_ms === null ? null : Math.max(0, (now - brief.ended_ms) / 1000));
const moment = (ms, day = true) => new Date(ms).toLocaleString("en-GB", { ...(day ? { day: "numeric", month: "short", year: "numeric" } : {}), hour: "2-digit", minute: "2-digit" });
const range = ({ from_ms: from, to_ms: to }) => (from === null ? DASH : `${moment(from)} – ${moment(to, new Date(from).toDateString() !== new Date(to).toDateString())}`);

const jobs = new Table("jobs", {
  caption: "Jobs",
  key: (row) => row.job,
  empty: "There are no jobs.",
  columns: [
    { name: "job", title: "Job", class: "tight", value: (row) => row.job, show: (row) => h("button", { class: "link", type: "button", "aria-expanded": String(row.job === selected), "aria-controls": "report-panel", onclick: () => choose(row.job) }, row.job) },
    { name: "headline", title: "Latest result", value: (row) => row.headline, show: latest },
    { name: "range", title: "Of", medium: true, value: (row) => row.from_ms, show: range },
    { name: "age", title: "age", number: true, value: age, show: (row) => span(age(row)) },
    { name: "took", title: "took", number: true, medium: true, value: (row) => row.took_s, show: (row) => span(row.took_s) },
  ],
});

function latest(row) {
  if (row.state === "there") return row.headline;
  if (row.state === "none") return h("span", { class: "faint" }, "no result yet");
  return h("span", { class: "bad" }, `cannot be read: ${row.reason}`);
}

function choose(job) {
  selected = job;
  history.replaceState(null, "", `#${job}`);
  redraw();
}

window.addEventListener("hashchange", () => {
  selected = decodeURIComponent(location.hash.slice(1));
  redraw();
});

follow((facts) => {
  now = facts.time_ms;
  const reports = facts.reports;
  if (!reports.some((row) => row.job === selected)) {
    const made = reports.filter((row) => row.state === "there");
    const choices = made.length ? made : reports;
    selected = (choices.find((row) => row.job === FIRST) ?? choices[0])?.job;
  }
  jobs.selected = selected;
  jobs.update(reports);
  const brief = reports.find((row) => row.job === selected);
  panel.hidden = !brief;
  if (brief) show(brief);
});

function show(brief) {
  const key = `${brief.job} ${brief.state} ${brief.stamp}`;
  if (drawn !== key) {
    drawn = key;
    put("report-title", brief.job);
    put("report-question", brief.question);
    put("report-makes", brief.state === "there" ? "Made by" : "Create it with:");
    put("report-command", brief.command);
    put("report-tables");
    put("report-chart");
    document.getElementById("report-chart").hidden = true;
    const headline = document.getElementById("report-headline");
    put("report-headline", latest(brief));
    headline.dataset.level = brief.state === "unreadable" ? "stuck" : brief.state;
    put("report-facts", facts(brief));
    if (brief.state === "there") load(brief, key);
  }
  const text = document.getElementById("report-age");
  if (text) text.textContent = `${span(age(brief))} ago`;
}

function facts(brief) {
  if (brief.state !== "there") return [];
  return [
    fact("Of", range(brief)),
    fact("Made", h("span", null, h("span", { id: "report-age" }), `, took ${span(brief.took_s)}`)),
    fact("Coverage", brief.certainty),
  ];
}

function fact(name, value) {
  return h("div", null, h("dt", null, name), h("dd", null, value));
}

// Large parts are fetched once, when they are shown and have changed.
async function load(brief, key) {
  try {
    const place = `reports/${encodeURIComponent(brief.job)}`;
    const [report, picture] = await Promise.all([ask(`${place}/summary.json`), brief.chart === null ? null : ask(`${place}/chart.svg`)]);
    if (drawn !== key) return;
    const found = report.ok ? await report.json() : null;
    const image = picture?.ok ? chart(await picture.text()) : null;
    const refused = picture && !picture.ok ? await picture.text() : "";
    if (drawn !== key || !found) return;
    document.getElementById("report-facts").append(...Object.entries(found.facts).map(([name, value]) => fact(title(name), cell(name, value))));
    put("report-tables", found.tables.filter((each) => each.columns.length).map((each) => table(each)));
    put("report-chart", picture ? [h("figcaption", null, brief.chart), h("div", { class: "frame", tabindex: "0", role: "region", "aria-label": `Chart: ${brief.chart}` }, image ?? h("p", { class: "faint" }, `The chart is not shown: ${refused.trim() || "not an image"}.`))] : []);
    document.getElementById("report-chart").hidden = !picture;
  } catch {
    // No response, which the page shows already; retried after the next response.
    if (drawn === key) drawn = null;
  }
}

function ask(path) {
  return fetch(path);
}
