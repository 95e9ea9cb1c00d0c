import { apiTable } from "../apis.js";
import { h, plain, put } from "../dom.js";
import { bytes, number, short, span } from "../format.js";
import { follow } from "../live.js";
import { legend } from "../phases.js";
import { draw as drawPipeline } from "../pipeline.js";
import { tiles } from "../tiles.js";

put("legend", legend());

const drawApis = apiTable("Requests by API", ["queue"]);

follow((facts) => {
  const verdict = document.getElementById("verdict");
  if (verdict.textContent !== facts.verdict.text) verdict.textContent = facts.verdict.text;
  verdict.dataset.level = facts.verdict.level;
  diagnosis(facts);
  drawPipeline(document.getElementById("pipeline"), facts);
  const t = facts.totals;
  tiles(facts.time_ms, [
    { label: "Requests", value: short(t.requests_per_s), unit: "/s", of: t.requests_per_s, series: "requests" },
    { label: "Records in", value: short(t.records_per_s), unit: "/s", of: t.records_per_s, series: "records" },
    { label: "Received", value: `${bytes(t.bytes_in_per_s)}/s`, of: t.bytes_in_per_s, series: "in" },
    { label: "Sent", value: `${bytes(t.bytes_out_per_s)}/s`, of: t.bytes_out_per_s, series: "out" },
    { label: "Errors", value: short(t.errors_per_s), unit: "/s", of: t.errors_per_s, series: "errors" },
    { label: "Connections", value: number(t.connections), unit: "", of: t.connections, series: "connections" },
    { label: "Longest consumer lag", value: span(t.longest_lag_s) + (t.longest_lag_group ? `, ${t.longest_lag_group}` : ""), of: t.longest_lag_s, series: "lag-s" },
  ]);
  drawApis(facts.apis);
});

// The result of the last diagnosis, with its age.
const age = h("span", { class: "faint" });
const finding = h("a", { href: "reports#diagnose" });
put("diagnosis", h("b", null, "Diagnosis"), finding, age);

function diagnosis({ diagnosis: found, time_ms: now }) {
  document.getElementById("diagnosis").hidden = !found;
  if (!found) return;
  const text = plain(found.headline);
  if (finding.textContent !== text) finding.textContent = text;
  age.textContent = `${span(Math.max(0, (now - found.ended_ms) / 1000))} ago`;
}
