import { apiTable } from "../apis.js";
import { put } from "../dom.js";
import { clock } from "../format.js";
import { follow, redraw } from "../live.js";
import { ORDER, legend } from "../phases.js";
import { RequestTable, search } from "../requests.js";

const MOST_KEPT = 2000;
const NAMES = ["api", "client", "user", "topic", "error"];
const FIELDS = [...NAMES, "slower"];
const NONE = "No request yet, or the request log is off.";
let kept = new Map(), searches = 0;
put("legend", legend());

const drawApis = apiTable("Time by phase and API", ORDER);
const logged = new RequestTable("logged", { caption: "In the request log", sort: "time", descending: true, empty: "No matching request." });
const tail = new RequestTable("tail", { caption: "Latest", sort: "time", descending: true, empty: NONE });
const slowest = new RequestTable("slowest", { caption: "Slowest of the last ten minutes", sort: "total", descending: true, empty: NONE });
slowest.sorted = null;
slowest.mark();

// The filter is in the address, so that it can be linked.
const form = document.getElementById("filters");
const since = document.getElementById("filter-since");
const fields = Object.fromEntries(FIELDS.map((name) => [name, document.getElementById(`filter-${name}`)]));
const isFiltered = () => FIELDS.some((name) => fields[name].value);

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const name of FIELDS) fields[name].value = wanted.get(name) ?? "";
  since.value = [...since.options].some((each) => each.value === wanted.get("since")) ? wanted.get("since") : "1";
  redraw();
  searchLog();
}

function writeAddress() {
  const wanted = new URLSearchParams(FIELDS.filter((name) => fields[name].value).map((name) => [name, fields[name].value]));
  if (wanted.size) wanted.set("since", since.value);
  history.replaceState(null, "", wanted.size ? `#${wanted}` : location.pathname + location.search);
  redraw();
}

async function searchLog() {
  const number = ++searches;
  document.getElementById("logged-panel").hidden = !isFiltered();
  if (!isFiltered()) return;
  put("logged-notes", "Searching…");
  try {
    const found = await search(wantedOf());
    if (number !== searches) return;
    logged.update(found.rows);
    put("logged-notes", found.notes.join(". "));
    put("logged-command", found.command);
  } catch (error) {
    if (number === searches) put("logged-notes", `Cannot search: ${error.message}`);
  }
}

function wantedOf() {
  const names = NAMES.filter((name) => fields[name].value.trim()).map((name) => [name, name === "error" && isAnyError() ? "*" : `*${fields[name].value.trim()}*`]);
  return { since_ms: Math.floor(Date.now() - Number(since.value) * 3600e3), slower_than_ms: Number(fields.slower.value), ...Object.fromEntries(names) };
}

const isAnyError = () => fields.error.value.trim() === "any";
const has = (text, wanted) => (text ?? "").toLowerCase().includes(wanted.trim().toLowerCase());

function matches(row) {
  return has(row.api, fields.api.value) && has(row.client_id, fields.client.value) && has(row.user, fields.user.value) && has(row.topic, fields.topic.value)
    && (isAnyError() ? Boolean(row.error) : has(row.error, fields.error.value))
    && row.total_us >= Number(fields.slower.value) * 1000;
}

form.addEventListener("input", writeAddress);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  searchLog();
});
window.addEventListener("popstate", readAddress);
readAddress();

// Requests of earlier updates are kept, so that a filter finds more than the latest hundred.
function keep(rows) {
  for (const row of rows) kept.set(row.id, row);
  if (kept.size > MOST_KEPT) kept = new Map([...kept].sort(([, a], [, b]) => b.time_us - a.time_us).slice(0, MOST_KEPT));
  return [...kept.values()];
}

follow((facts) => {
  drawApis(facts.apis);
  const all = keep(facts.tail);
  slowest.empty = tail.empty = all.length ? "No matching request." : NONE;
  slowest.update(facts.slowest.filter(matches));
  const filtered = isFiltered() && all.length > 0;
  tail.searched = filtered ? ` of ${all.length.toLocaleString("en-US")} since ${clock(Math.min(...all.map((row) => row.time_us)))}` : "";
  tail.update((filtered ? all : facts.tail).filter(matches));
});
