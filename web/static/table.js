// A table, sorted by the buttons in its headers. Rows are kept by key, so that focus and selection survive an update.
import { h, plain } from "./dom.js";

const MOST_ROWS = 500;

export class Table {
  // columns: {name, title, value(row) to sort by, show(row) -> text or element, number, class, help,
  // wide, medium: not on small screens, not on those of telephones}; stacks: on telephones the cells of a row wrap
  constructor(holder, { caption, columns, sort, descending = false, key, empty, select, stacks = false }) {
    this.columns = columns;
    this.key = key;
    this.empty = empty;
    this.select = select;
    this.sorted = columns.find((column) => column.name === sort) ?? null;
    this.descending = descending;
    this.rows = [];
    this.shown = new Map();
    this.selected = null;
    this.count = h("span", { class: "count" });
    this.heading = h("span", { class: "column-title" });
    this.searched = "";
    this.headers = columns.map((column) => h("th", { scope: "col", class: width(column).join(" ") || null, title: column.help },
      h("button", { type: "button", onclick: () => this.sortBy(column) }, column.title)));
    this.body = h("tbody");
    this.note = h("div", { class: "empty" });
    this.table = h("table", { class: stacks ? "stacks" : null }, h("caption", null, caption, this.count, this.heading), h("thead", null, h("tr", null, this.headers)), this.body);
    (typeof holder === "string" ? document.getElementById(holder) : holder).append(this.table, this.note);
    this.mark();
  }

  sortBy(column) {
    this.descending = this.sorted === column ? !this.descending : Boolean(column.number);
    this.sorted = column;
    this.mark();
    this.draw();
  }

  mark() {
    this.columns.forEach((column, index) => {
      if (column === this.sorted) this.headers[index].setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else this.headers[index].removeAttribute("aria-sort");
    });
  }

  // On telephones a stacked table has no headers: the title is in the caption.
  entitle(name, title) {
    this.heading.textContent = title;
    this.headers[this.columns.findIndex((column) => column.name === name)].firstChild.textContent = title;
  }

  update(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const ordered = this.sorted ? [...this.rows].sort((a, b) => this.compare(a, b)) : this.rows;
    const visible = ordered.slice(0, MOST_ROWS);
    const kept = new Map();
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    visible.forEach((row, index) => {
      let key = String(this.key(row));
      // Equal keys are separate rows.
      while (kept.has(key)) key += "+";
      const element = this.row(key, row);
      kept.set(key, element);
      if (this.body.children[index] !== element) this.body.insertBefore(element, this.body.children[index] ?? null);
    });
    while (this.body.children.length > visible.length) this.body.lastChild.remove();
    this.shown = kept;
    // Moving a row loses the focus.
    if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    this.count.textContent = this.rows.length || this.searched ? this.rows.length.toLocaleString("en-US") + this.searched : "";
    this.table.tHead.hidden = this.rows.length === 0;
    this.note.textContent = this.rows.length === 0 ? this.empty : ordered.length > MOST_ROWS ? `${ordered.length - MOST_ROWS} more are not shown.` : "";
    this.note.className = this.rows.length === 0 ? "empty" : "more";
    this.note.hidden = !this.note.textContent;
  }

  row(key, row) {
    const known = this.shown.get(key);
    const element = known ?? h("tr");
    this.columns.forEach((column, index) => {
      const shown = column.show(row);
      const old = element.children[index];
      if (old && typeof shown === "string" && old.childNodes.length <= 1 && !old.firstElementChild) {
        const text = plain(shown);
        if (old.textContent !== text) old.textContent = text;
        old.className = classes(column, row);
        return;
      }
      // A focused cell is not replaced; only the state of its button is updated.
      if (old?.contains(document.activeElement)) {
        const open = shown.getAttribute?.("aria-expanded");
        if (open) old.firstElementChild.setAttribute("aria-expanded", open);
        return;
      }
      const cell = h("td", { class: classes(column, row), "data-title": column.title }, shown);
      if (old) old.replaceWith(cell);
      else element.append(cell);
    });
    element.classList.toggle("selected", this.selected === key);
    return element;
  }

  compare(a, b) {
    const one = this.sorted.value(a), other = this.sorted.value(b);
    if (one === other) return 0;
    // Unknown values are last in both orders.
    if (one === null || one === undefined) return 1;
    if (other === null || other === undefined) return -1;
    const order = typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
    return this.descending ? -order : order;
  }
}

function classes(column, row) {
  const more = typeof column.class === "function" ? column.class(row) : column.class;
  return [...width(column), more ?? ""].filter(Boolean).join(" ");
}

function width(column) {
  return ["number", "wide", "medium"].filter((name) => column[name]);
}
