// Tables of any length: only the rows in sight are in the document.

import { el, mark, put } from "./dom.js";
import { byText } from "./words.js";

const REST = 240; // px, the least that is left for the column that takes the rest
const NARROW = 560; // px: below, columns are a fifth narrower
const MOST = 320; // px, the width of a column as long as its longest value
const CHARACTER = 7.3; // px
const PADDING = 22;
const ARROW = 12;
const SPARE = 8; // rows above and below what is in sight
const texts = new WeakMap(); // row -> all its words, in lower case

/** Return whether the row has all of the words. */
export function hasWords(row, words) {
  if (!words.length) return true;
  let text = texts.get(row);
  if (text === undefined) {
    text = Object.values(row).map((value) => (value && typeof value === "object" ? Object.values(value).join(" ") : value)).join(" ").toLowerCase();
    texts.set(row, text);
  }
  return words.every((word) => text.includes(word));
}

export class Table {
  /**
   * `columns`: {key, title, value(row), text(row, now), class, kind: "n"|"", fill(td, row), width}, `key(row)` names a
   * row, `sort`: the column and direction at first, `open(row)` is called for a chosen row. A width is in pixels; or
   * that of the longest value, if there is none; or, "rest", all that the others leave.
   */
  constructor(root, { label, columns, key, sort, open }) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.open = open;
    this.rows = [];
    this.nodes = new Map();
    this.current = null; // key of the row that has the focus, or had it last
    this.head = el("tr", { "aria-rowindex": 1 });
    this.above = el("tbody", { class: "gap", "aria-hidden": "true" }, el("tr", {}, el("td")));
    this.below = el("tbody", { class: "gap", "aria-hidden": "true" }, el("tr", {}, el("td")));
    this.body = el("tbody");
    this.table = el("table", { class: "rows", "aria-label": label }, el("thead", {}, this.head), this.above, this.body, this.below);
    this.box = el("div", { class: "scroll rows-box", tabindex: 0, role: "region", "aria-label": label }, this.table);
    root.append(this.box);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => {
      this.#widths();
      this.draw();
    }).observe(this.box);
    this.#heads();
  }

  /** Have other columns (the driver's own may come any time). */
  setColumns(columns) {
    this.columns = columns;
    for (const node of this.nodes.values()) node.remove();
    this.nodes.clear();
    this.#heads();
  }

  #heads() {
    this.head.replaceChildren(
      ...this.columns.map((column) => {
        const again = () => {
          const same = this.sort.by === column.key;
          this.sort = { by: column.key, down: same ? !this.sort.down : column.kind === "n" && column.key !== "id" };
          this.#arrows();
          this.arrange(this.rows);
          this.onsort?.();
        };
        const button = el("button", { type: "button", onclick: again }, column.title, el("i", { "aria-hidden": "true" }));
        return el("th", { scope: "col", class: `${column.class ?? ""} ${column.kind ?? ""}` }, button);
      }),
    );
    this.#arrows();
    this.longest = this.columns.map((column) => column.title.length + 2);
    this.#widths();
  }

  /** Give each column its width. Columns only grow: what is scrolled into sight moves nothing. */
  #widths() {
    const narrow = this.box.clientWidth < NARROW;
    let sum = 0;
    let shown = 0; // a phone shows fewer
    for (const [at, column] of this.columns.entries()) {
      const th = this.head.cells[at];
      const least = column.width === "rest" ? (narrow ? REST / 3 : REST) : (column.width ?? Math.min(MOST, this.longest[at] * CHARACTER + PADDING));
      const width = column.width === "rest" ? "" : `${Math.max(narrow ? least * 0.8 : least, column.title.length * CHARACTER + PADDING + ARROW)}px`;
      if (th.style.width !== width) th.style.width = width;
      if (th.offsetWidth === 0) continue;
      sum += parseFloat(width) || least;
      shown += 1;
    }
    this.table.style.minWidth = `${sum}px`;
    for (const gap of [this.above, this.below]) gap.rows[0].cells[0].colSpan = shown || this.columns.length;
  }

  #measure() {
    for (const [at, column] of this.columns.entries()) {
      if (column.width !== undefined) continue;
      for (const row of this.rows) {
        const { length } = String(column.value(row) ?? "");
        if (length > this.longest[at]) this.longest[at] = length;
      }
    }
    this.#widths();
  }

  #arrows() {
    for (const [at, column] of this.columns.entries()) {
      const th = this.head.cells[at];
      const by = this.sort.by === column.key;
      mark(th, "aria-sort", by ? (this.sort.down ? "descending" : "ascending") : null);
      put(th.querySelector("i"), by ? (this.sort.down ? "↓" : "↑") : "");
    }
  }

  /** Sort and show these rows. */
  arrange(rows) {
    const column = this.columns.find((each) => each.key === this.sort.by) ?? this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    const pairs = rows.map((row) => [column.value(row), row]);
    const words = new Set(pairs.map(([value]) => value).filter((value) => typeof value === "string"));
    const ranks = new Map([...words].sort(byText).map((word, rank) => [word, rank])); // one comparison of words each
    for (const pair of pairs) {
      const [value] = pair;
      if (value == null || value === "") pair[0] = sign * Infinity; // last, either way
      else if (typeof value === "string") pair[0] = ranks.get(value);
    }
    pairs.sort(([a, one], [b, other]) => (a === b ? this.key(one) - this.key(other) : sign * (a < b ? -1 : 1)));
    this.rows = pairs.map(([, row]) => row);
    mark(this.table, "aria-rowcount", rows.length + 1);
    this.#measure();
    this.draw();
  }

  /** Draw what is in sight. */
  draw(now = this.now) {
    this.now = now;
    if (this.box.clientHeight === 0) return; // its tab is not shown
    const height = this.#rowHeight();
    const head = this.head.offsetHeight;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.box.scrollTop + this.box.clientHeight - head) / height) + SPARE);
    this.above.rows[0].cells[0].style.height = `${first * height}px`;
    this.below.rows[0].cells[0].style.height = `${Math.max(0, this.rows.length - last) * height}px`;
    this.above.hidden = first === 0;
    this.below.hidden = last >= this.rows.length;
    const shown = new Map();
    let at = this.body.firstChild;
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      const key = this.key(row);
      const node = this.nodes.get(key) ?? this.#make();
      shown.set(key, node);
      if (node === at) at = at.nextSibling;
      else this.body.insertBefore(node, at);
      this.#fill(node, row, index);
    }
    for (const [key, node] of this.nodes) if (shown.get(key) !== node) node.remove();
    this.nodes = shown;
    const stop = this.nodes.get(this.current) ?? this.body.firstElementChild; // the one row that Tab reaches
    for (const node of this.body.rows) mark(node.querySelector("button"), "tabindex", node === stop ? 0 : -1);
  }

  #rowHeight() {
    return parseFloat(getComputedStyle(this.box).getPropertyValue("--row")) || 28;
  }

  #make() {
    const node = el("tr");
    for (const column of this.columns) {
      const td = el("td", { class: `${column.class ?? ""} ${column.kind ?? ""}` });
      node.append(td);
    }
    const cell = node.cells[0];
    cell.append(el("button", { type: "button", class: "open" }));
    return node;
  }

  #fill(node, row, index) {
    node.row = row;
    mark(node, "aria-rowindex", index + 2);
    for (const [at, column] of this.columns.entries()) {
      const td = node.cells[at];
      if (at === 0) put(td.firstChild, column.text(row, this.now));
      else if (column.fill) column.fill(td, row, this.now);
      else put(td, column.text(row, this.now));
    }
  }

  #click(event) {
    const node = event.target.closest("tr");
    if (!node?.row || String(getSelection()).length) return;
    this.current = this.key(node.row);
    this.open(node.row);
  }

  #key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("thead")) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.#rowHeight()) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !this.rows.length) return;
    event.preventDefault();
    const focused = document.activeElement.closest("tr")?.row;
    if (focused) this.current = this.key(focused);
    const at = this.rows.findIndex((row) => this.key(row) === this.current);
    const to = Math.min(this.rows.length - 1, Math.max(0, focused || Math.abs(step) > 1 ? at + step : at));
    const height = this.#rowHeight();
    const room = this.box.clientHeight - this.head.offsetHeight;
    if (to * height < this.box.scrollTop) this.box.scrollTop = to * height;
    else if ((to + 1) * height > this.box.scrollTop + room) this.box.scrollTop = (to + 1) * height - room;
    this.current = this.key(this.rows[to]);
    this.draw();
    this.nodes.get(this.current)?.querySelector("button").focus({ preventScroll: true });
  }
}
