import { h } from "../dom.js";
import { setting } from "../format.js";
import { follow, redraw } from "../live.js";
import { Table } from "../table.js";

const changed = document.getElementById("changed");
const filter = document.getElementById("filter");

const settings = new Table("settings", {
  caption: "Settings",
  key: (row) => row.name,
  sort: "name",
  empty: "No matching setting.",
  columns: [
    { name: "name", title: "Setting", class: "mono", value: (row) => row.name, show: (row) => row.name },
    { name: "value", title: "Value", class: "mono", value: (row) => row.value, show: (row) => (row.is_default ? setting(row.name, row.value) : h("b", null, setting(row.name, row.value))) },
    { name: "origin", title: "From", class: (row) => (row.is_default ? "faint" : ""), value: (row) => row.origin, show: (row) => row.origin },
    { name: "dynamic", title: "While running", class: "tight", medium: true, value: (row) => String(row.dynamic), show: (row) => (row.dynamic ? "can change" : "") },
    { name: "doc", title: "What it does", medium: true, value: (row) => row.doc, show: (row) => h("span", { class: "faint" }, row.doc) },
  ],
});

changed.addEventListener("change", redraw);
filter.addEventListener("input", redraw);

follow((facts) => {
  const wanted = filter.value.trim().toLowerCase();
  settings.update(facts.settings.filter((row) => (!changed.checked || !row.is_default) && `${row.name} ${row.value} ${row.doc}`.toLowerCase().includes(wanted)));
});
