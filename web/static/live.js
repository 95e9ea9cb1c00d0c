// The event stream of a screen: paused by its button, closed while the tab is hidden, grey without events.
import { plain } from "./dom.js";
import { clock } from "./format.js";
import { remember } from "./history.js";

// Kept on every screen, so that the overview has no gaps.
const SERIES = [["requests", "requests_per_s"], ["records", "records_per_s"], ["in", "bytes_in_per_s"], ["out", "bytes_out_per_s"], ["errors", "errors_per_s"], ["connections", "connections"], ["log", "log_bytes"], ["lag-s", "longest_lag_s"]];

const STALE_MS = 4000;

const state = { source: null, paused: false, latest: null, opened: 0, arrived: 0, draw: null, lost: false };

export function follow(draw) {
  state.draw = draw;
  const pause = document.getElementById("pause");
  pause.addEventListener("click", () => {
    state.paused = !state.paused;
    pause.setAttribute("aria-pressed", String(state.paused));
    pause.textContent = state.paused ? "Resume" : "Pause";
    decide();
  });
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.addEventListener("visibilitychange", decide);
  window.addEventListener("pagehide", close);
  document.addEventListener("click", copy);
  setInterval(showAge, 500);
  decide();
}

// Draws the latest facts again, after a change of a display option.
export function redraw() {
  if (state.latest) state.draw(state.latest);
}

function decide() {
  if (state.paused || document.hidden) close();
  else if (!state.source) open();
  showAge();
}

function open() {
  state.opened = Date.now();
  state.source = new EventSource(`events/${document.body.dataset.screen}`);
  state.source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  state.source.addEventListener("error", () => {
    state.lost = true;
    showAge();
    // Retry after a rejection; the browser itself retries only after a broken connection.
    if (state.source?.readyState === EventSource.CLOSED) {
      close();
      poll();
    }
  });
}

// Shows the facts once if there are too many streams, and retries the stream later.
async function poll() {
  try {
    const response = await fetch(`view/${document.body.dataset.screen}`);
    if (response.ok && !state.paused && !document.hidden) take(await response.json());
  } catch { /* No response either: shown already. */ }
  setTimeout(decide, state.lost ? 1000 : 2000);
}

function take(facts) {
  state.latest = facts;
  state.arrived = Date.now();
  state.lost = false;
  for (const [name, key] of SERIES) remember(name, facts.time_ms, facts.totals[key]);
  showBanner(facts.remarks);
  state.draw(facts);
  showAge();
}

function showBanner(remarks) {
  const banner = document.getElementById("banner");
  const text = plain(remarks.join(" "));
  if (banner.textContent !== text) banner.textContent = text;
  banner.hidden = !text;
}

function close() {
  state.source?.close();
  state.source = null;
}

function showState(text, level) {
  const pill = document.getElementById("state");
  if (pill.textContent !== text) pill.textContent = text;
  pill.dataset.level = level;
}

function readiness(facts) {
  return facts.ready ? "Ready" : `Not ready: ${facts.reasons.join("; ")}`;
}

function showAge() {
  const age = Date.now() - state.arrived;
  const stale = state.arrived > 0 && age > STALE_MS;
  document.body.classList.toggle("stale", stale);
  // An old state is not valid any more. After a pause wait for a response first.
  const asked = Date.now() - Math.max(state.arrived, state.opened) <= STALE_MS && !state.lost;
  if (stale && state.paused) showState("Paused", "none");
  else if (stale) showState(asked ? "Asking" : "No response", asked ? "none" : "bad");
  else if (state.latest) showState(plain(readiness(state.latest)), state.latest.ready ? "good" : "bad");
  else if (state.lost) showState("No response", "bad");
  const text = document.getElementById("age");
  if (!state.arrived) text.textContent = state.lost ? "no connection" : "";
  else if (state.paused) text.textContent = `as of ${clock(state.latest.time_ms * 1000)}`;
  else if (stale) text.textContent = `${Math.round(age / 1000)} s old`;
  else text.textContent = `${clock(state.latest.time_ms * 1000)}`;
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* kept for this page only */ }
  redraw();
}

function copy(event) {
  if (!event.target.matches?.(".copy")) return;
  const button = event.target;
  navigator.clipboard?.writeText(button.parentElement.querySelector("code").textContent).then(() => {
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
