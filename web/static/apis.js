// Requests by API: rate, duration, and the mean by phase.
import { micros, short } from "./format.js";
import { ORDER, PHASES, bar, scaleOf } from "./phases.js";
import { Table } from "./table.js";

const means = (api) => ORDER.map((phase) => api.mean_us[phase] ?? 0);

// Returns a function that draws the facts of APIs; `phases` have columns of their own.
export function apiTable(caption, phases) {
  let scale = 0;
  const table = new Table("apis", {
    caption,
    key: (row) => row.key,
    sort: "rate", descending: true, stacks: true,
    empty: "No request was finished in the last seconds.",
    columns: [
      { name: "api", title: "API", class: "tight", value: (row) => row.name, show: (row) => row.name },
      { name: "rate", title: "per second", number: true, value: (row) => row.requests_per_s, show: (row) => short(row.requests_per_s) },
      { name: "p50", title: "median", number: true, medium: true, value: (row) => row.p50_us.total, show: (row) => micros(row.p50_us.total) },
      { name: "p99", title: "99 %", number: true, value: (row) => row.p99_us.total, show: (row) => micros(row.p99_us.total) },
      ...phases.map((phase) => ({ name: phase, title: `${PHASES[ORDER.indexOf(phase)]}, 99 %`, number: true, medium: phase === "queue", wide: phase !== "queue", value: (row) => row.p99_us[phase], show: (row) => micros(row.p99_us[phase]) })),
      { name: "mean", title: "mean by phase", value: (row) => row.mean_us.total, show: (row) => bar(means(row), scale) },
    ],
  });
  return (apis) => {
    scale = scaleOf(apis.map(means));
    table.entitle("mean", `mean by phase, up to ${micros(scale)}`);
    table.update(apis);
  };
}
