// The timeline: one lane an executor. What of it is in sight, how people move about in it, and the same in words.

import { el, keyed, mark, put } from "./dom.js";
import { AXIS, Painter, placeOf, sharesPixels, timeAt } from "./lanes.js";
import { byText, clock, plural, STATES, wholeAge } from "./words.js";

const FIT_AT_MOST = 22; // px, the height of a lane that "fit" gives a small fleet
const THICKEST = 30;
const SHORTEST = 5; // seconds in sight
const LONGEST = 30 * 86_400;
const RANGES = [["5m", 300], ["15m", 900], ["1h", 3600], ["6h", 21_600], ["all", null]];

export class Timeline {
  constructor(fleet, { open, moved }) {
    this.fleet = fleet;
    this.open = open;
    this.moved = moved;
    this.box = document.getElementById("lanes");
    this.painter = new Painter(this.box.querySelector("canvas"));
    this.spacer = this.box.querySelector(".spacer");
    this.tip = document.getElementById("tip");
    this.span = undefined; // seconds; null: all that is known; undefined: not chosen yet
    this.to = null; // null: follow the present
    this.lane = null; // px; null: all lanes fit
    this.group = "profile";
    this.chosen = null; // id
    this.hover = null;
    this.pointers = new Map();
    this.said = { at: 0 };
    this.#tools();
    this.#listen();
  }

  /** Draw in the colours of the page, which differ in the dark. */
  colours() {
    this.painter.colours();
    this.drawn = null;
  }

  /** From when to when is in sight. */
  sight() {
    const now = this.fleet.now();
    if (this.span === undefined) this.span = now - this.#earliest() < 3600 ? null : 3600;
    const span = this.span ?? Math.max(60, (now - this.#earliest()) * 1.02);
    const to = this.to ?? now + span * 0.01;
    return { from: to - span, to, now, until: this.fleet.until() };
  }

  #earliest() {
    if (this.known?.changes !== this.fleet.changes) {
      let first = Infinity;
      for (const lane of this.fleet.lanes.values()) if (lane.starts[0] < first) first = lane.starts[0];
      this.known = { changes: this.fleet.changes, first };
    }
    return this.known.first === Infinity ? this.fleet.now() - 60 : this.known.first;
  }

  // ── what is where ──────────────────────────────────────────────────────────────────────────────────────────────

  #layout() {
    const { from, to, now, until } = this.sight();
    const groups = new Map();
    for (const lane of this.fleet.lanes.values()) {
      if ((lane.end !== null && lane.end < from) || !(lane.starts[0] <= to)) continue;
      const name = lane[this.group];
      const lanes = groups.get(name);
      if (lanes) lanes.push(lane);
      else groups.set(name, [lane]);
    }
    const width = this.box.clientWidth;
    const count = [...groups.values()].reduce((sum, lanes) => sum + lanes.length, 0);
    const atMost = Math.max(200, Math.min(460, window.innerHeight * 0.55));
    const gap = Math.min(8, (atMost * 0.2) / Math.max(1, groups.size));
    const wanted = AXIS + 6 + count * (this.lane ?? FIT_AT_MOST) + groups.size * gap;
    const height = Math.round(Math.min(atMost, Math.max(window.innerWidth > 1100 ? 364 : 120, wanted)));
    const room = height - AXIS - 6 - groups.size * gap;
    const lane = this.lane ?? Math.min(FIT_AT_MOST, room / Math.max(1, count));
    const gutter = width < 560 ? 0 : Math.min(190, Math.round(width * 0.18));
    let y = 3;
    const sorted = [...groups].sort(([a], [b]) => (a === "") - (b === "") || byText(a, b));
    const placed = sorted.map(([name, lanes]) => {
      const top = y;
      y += lanes.length * lane + gap;
      return { name: name || (this.group === "node" ? "no node yet" : "—"), lanes: inOrder(lanes), top };
    });
    return { from, to, now, until, width, height, gutter, lane, gap, groups: placed, count, content: AXIS + y + 3 };
  }

  /** Return the lanes under a point. */
  #under(x, y, layout) {
    if (x < layout.gutter || y < AXIS) return [];
    const down = y - AXIS + this.box.scrollTop;
    const group = layout.groups.findLast((each) => each.top <= down);
    if (!group) return [];
    const first = Math.floor((down - group.top) / layout.lane);
    const last = Math.max(first + 1, Math.floor((down + 1 - group.top) / layout.lane));
    return group.lanes.slice(first, last);
  }

  render() {
    if (!this.fleet.status) return;
    const layout = (this.layout = this.#layout());
    const perPixel = (layout.to - layout.from) / layout.width;
    const scale = window.devicePixelRatio || 1;
    const drawn = [
      this.fleet.changes, layout.width, layout.height, layout.lane, this.group, this.span, scale, this.chosen, this.box.scrollTop, this.fleet.lostAt,
      this.to ?? Math.floor(layout.now / Math.max(perPixel, 0.25)),
    ].join();
    this.#buttons();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.box.style.height = `${layout.height}px`;
    this.spacer.style.height = `${Math.max(0, layout.content - layout.height)}px`;
    this.painter.paint(layout, this.box.scrollTop, this.chosen);
    this.#point();
    this.#legend(layout);
    this.#text(layout);
  }

  // ── words ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Say in a line what an executor does, or did. */
  #line(lane, at = null) {
    const { now } = this.layout;
    const part = at === null ? lane.states.length - 1 : lane.starts.findLastIndex((start) => start <= at);
    if (lane.end !== null && (at === null || at >= lane.end)) {
      return `${lane.loss ?? "ended"} at ${clock(lane.end, now)}, after ${wholeAge(lane.end - lane.starts[0])}`;
    }
    if (part < 0) return `requested at ${clock(lane.starts[0], now)}`;
    const end = lane.starts[part + 1] ?? lane.end;
    const name = STATES[lane.states[part]];
    return end == null || end === undefined
      ? `${name} for ${wholeAge(now - lane.starts[part])}, since ${clock(lane.starts[part], now)}`
      : `${name} for ${wholeAge(end - lane.starts[part])}, until ${clock(end, now)}`;
  }

  #point() {
    const { hover, layout } = this;
    const lanes = hover && !this.dragging ? this.#under(hover.x, hover.y, layout) : [];
    this.tip.hidden = !lanes.length;
    if (!lanes.length) return;
    const at = timeAt(hover.x, layout);
    const lines =
      lanes.length === 1
        ? [`executor ${lanes[0].id} · ${lanes[0].profile}`, lanes[0].node, this.#line(lanes[0], at)]
        : [`${plural(lanes.length, "executor")} share this line`, ...tally(lanes), "click to look closer"];
    this.tip.replaceChildren(...[...lines.filter(Boolean), clock(at, layout.now)].map((line) => el("div", {}, line)));
    const right = hover.x > layout.width - 260;
    this.tip.style.left = `${this.box.offsetLeft + hover.x + (right ? -12 : 12)}px`;
    this.tip.style.top = `${this.box.offsetTop + hover.y + 14}px`;
    mark(this.tip, "class", right ? "left" : null);
  }

  #legend(layout) {
    const root = document.getElementById("legend");
    const shared = sharesPixels(layout) && layout.count > 1;
    const items = [
      ...STATES.map((name) => ({ key: name, text: name })),
      { key: "by-app", text: "lost: by the application" },
      { key: "by-cluster", text: "lost: by the cluster" },
      { key: "in-order", text: "ended in order" },
      ...(shared ? [{ key: "shared", text: `a pixel is ${Math.max(2, Math.round(1 / layout.lane)).toLocaleString("en")} executors, and shows the most severe state` }] : []),
    ];
    keyed(
      root,
      items,
      (item) => item.key,
      (item) => el("span", { class: `key ${item.key}` }, el("i", { "aria-hidden": "true" }), el("span")),
      (node, item) => put(node.lastChild, item.text),
    );
  }

  /** The same in words, for who cannot see it. */
  #text(layout) {
    if (!document.getElementById("as-text").open || Date.now() - this.said.at < 1000) return;
    this.said.at = Date.now();
    keyed(
      document.getElementById("spans").tBodies[0],
      layout.groups,
      (group) => group.name,
      (group) => el("tr", {}, el("th", { scope: "row" }, group.name), el("td", { class: "n" }), el("td"), el("td"), el("td")),
      (node, { lanes }) => {
        const [, count, alive, started, ended] = node.cells;
        put(count, lanes.length.toLocaleString("en"));
        put(alive, tally(lanes.filter((lane) => lane.end === null)).join(", ") || "none");
        const running = STATES.indexOf("running");
        const starts = lanes.filter((lane) => lane.starts[lane.states.indexOf(running)] >= layout.from).length;
        put(started, starts.toLocaleString("en"));
        const kinds = Map.groupBy(lanes.filter((lane) => lane.end >= layout.from && lane.end !== null), (lane) => lane.loss ?? "ended");
        put(ended, [...kinds].map(([kind, list]) => `${list.length} ${kind}`).join(", ") || "none");
      },
    );
  }

  // ── moving about ───────────────────────────────────────────────────────────────────────────────────────────────

  #tools() {
    const ranges = document.getElementById("ranges");
    for (const [name, span] of RANGES) {
      const show = () => this.#show(span, null);
      const label = span === null ? "All that is known" : `The last ${name}`;
      const button = el("button", { type: "button", "aria-label": label, onclick: show }, name);
      button.span = span;
      ranges.append(button);
    }
    document.getElementById("follow").addEventListener("click", () => this.#show(this.span, this.to === null ? this.sight().to : null));
    document.getElementById("group-by").addEventListener("change", (event) => {
      this.group = event.target.value;
      this.moved();
    });
    document.getElementById("thinner").addEventListener("click", () => this.#thick(1 / 1.6));
    document.getElementById("thicker").addEventListener("click", () => this.#thick(1.6));
    document.getElementById("fit").addEventListener("click", () => this.#fit());
  }

  #buttons() {
    for (const button of document.getElementById("ranges").children) mark(button, "aria-pressed", button.span === this.span);
    mark(document.getElementById("follow"), "aria-pressed", this.to === null);
    mark(document.getElementById("fit"), "aria-pressed", this.lane === null);
  }

  #show(span, to) {
    this.span = span;
    this.to = to;
    this.moved();
  }

  #fit() {
    this.lane = null;
    this.moved();
  }

  /** Make lanes thicker or thinner; what is at `y` of the box stays there. */
  #thick(factor, y = this.layout.height / 2) {
    const { lane, height, groups, gap, count } = this.layout;
    const fit = Math.min(FIT_AT_MOST, (height - AXIS - 6 - groups.length * gap) / Math.max(1, count));
    const wanted = Math.min(THICKEST, Math.max(lane < 1 && factor > 1 ? 1.5 : 0, lane * factor));
    const down = this.box.scrollTop + y - AXIS;
    this.lane = wanted <= fit ? null : wanted;
    this.layout = this.#layout();
    this.spacer.style.height = `${Math.max(0, this.layout.content - this.layout.height)}px`;
    this.box.scrollTop = (down * this.layout.lane) / lane - (y - AXIS);
    this.moved();
  }

  /** Show a span `factor` as long; the time `anchor` stays where it is. */
  #zoom(factor, anchor) {
    const { from, to, now } = this.sight();
    const span = Math.min(LONGEST, Math.max(SHORTEST, (to - from) * factor));
    const follows = this.to === null && (anchor === undefined || anchor + (to - anchor) * factor >= now);
    const middle = anchor ?? (from + to) / 2;
    this.#show(span, follows ? null : middle + ((to - middle) * span) / (to - from));
  }

  #pan(seconds) {
    const { from, to, now } = this.sight();
    const end = Math.min(to + seconds, now + (to - from) * 0.5);
    this.#show(to - from, this.to === null && seconds >= 0 ? null : end);
  }

  /** Choose the executor so many lanes further, and say it. */
  #choose(step) {
    const layout = this.#layout();
    const lanes = layout.groups.flatMap((group) => group.lanes);
    if (!lanes.length) return;
    const at = lanes.findIndex((lane) => lane.id === this.chosen);
    const next = lanes[at < 0 ? (step > 0 ? 0 : lanes.length - 1) : Math.min(lanes.length - 1, Math.max(0, at + step))];
    this.chosen = next.id;
    const y = placeOf(next.id, layout);
    const room = layout.height - AXIS;
    if (y < this.box.scrollTop) this.box.scrollTop = y;
    else if (y + layout.lane > this.box.scrollTop + room) this.box.scrollTop = y + layout.lane - room;
    this.layout = layout;
    put(document.getElementById("said"), `executor ${next.id}, ${next.profile}${next.node ? `, on ${next.node}` : ""}: ${this.#line(next)}`);
    this.moved();
  }

  #listen() {
    const { box } = this;
    new ResizeObserver(() => this.moved()).observe(box);
    box.addEventListener("scroll", () => this.moved(), { passive: true });
    box.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("pointerdown", (event) => this.#down(event));
    box.addEventListener("pointermove", (event) => this.#move(event));
    box.addEventListener("pointerup", (event) => this.#up(event));
    box.addEventListener("pointercancel", (event) => this.#up(event, true));
    box.addEventListener("pointerleave", () => this.#hover(null));
    box.addEventListener("dblclick", (event) => this.#zoom(0.5, timeAt(event.offsetX, this.layout)));
    document.getElementById("as-text").addEventListener("toggle", () => {
      this.drawn = null;
      this.moved();
    });
  }

  #wheel(event) {
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.#zoom(Math.exp(event.deltaY * unit * 0.002), timeAt(this.#at(event).x, this.layout));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const { from, to } = this.sight();
      this.#pan(((event.deltaX || event.deltaY) * unit * (to - from)) / this.layout.width);
    }
  }

  #key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { from, to } = this.sight();
    const keys = {
      ArrowLeft: () => this.#pan((from - to) / 8),
      ArrowRight: () => this.#pan((to - from) / 8),
      ArrowUp: () => this.#choose(-1),
      ArrowDown: () => this.#choose(1),
      "+": () => this.#zoom(0.5),
      "=": () => this.#zoom(0.5),
      "-": () => this.#zoom(2),
      0: () => this.#fit(),
      PageUp: () => this.#thick(1.6),
      PageDown: () => this.#thick(1 / 1.6),
      Home: () => this.#show(null, null),
      End: () => this.#show(this.span, null),
      Enter: () => this.chosen !== null && this.open(this.chosen),
      Escape: () => this.#unchoose(),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  #unchoose() {
    this.chosen = null;
    this.moved();
  }

  #at(event) {
    const box = this.box.getBoundingClientRect();
    return { x: event.clientX - box.left - this.box.clientLeft, y: event.clientY - box.top - this.box.clientTop };
  }

  #down(event) {
    this.pointers.set(event.pointerId, { ...this.#at(event), from: this.#at(event) });
    this.start = { sight: this.sight(), spread: this.#spread() };
  }

  #spread() {
    const xs = [...this.pointers.values()].map((each) => each.x);
    return xs.length === 2 ? Math.max(20, Math.abs(xs[0] - xs[1])) : null;
  }

  #hover(at) {
    this.hover = at;
    if (this.layout) this.#point();
  }

  #move(event) {
    const at = this.#at(event);
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) {
      this.#hover(at);
      return;
    }
    Object.assign(pointer, at);
    const { sight, spread } = this.start;
    if (spread !== null) {
      this.dragging = true;
      const [one, other] = [...this.pointers.values()];
      const span = Math.max(SHORTEST, ((sight.to - sight.from) * spread) / this.#spread());
      const anchor = timeAt((one.from.x + other.from.x) / 2, { ...this.layout, ...sight });
      this.#show(span, anchor + ((sight.to - anchor) * span) / (sight.to - sight.from));
    } else if (this.dragging || Math.abs(at.x - pointer.from.x) > 4) {
      this.dragging = true;
      if (!this.box.hasPointerCapture(event.pointerId)) this.box.setPointerCapture(event.pointerId);
      const { width, gutter } = this.layout;
      const moved = ((at.x - pointer.from.x) / (width - gutter)) * (sight.to - sight.from);
      this.#show(sight.to - sight.from, Math.min(sight.to - moved, sight.now + (sight.to - sight.from) / 2));
    }
    this.#hover(null);
  }

  #up(event, cancelled = false) {
    const pointer = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    const dragged = this.dragging;
    if (this.pointers.size === 0) this.dragging = false;
    if (!pointer || dragged || cancelled || event.button !== 0) return;
    const { x, y } = this.#at(event);
    const lanes = this.#under(x, y, this.layout);
    if (lanes.length === 1) {
      this.chosen = lanes[0].id;
      this.open(lanes[0].id);
    } else if (lanes.length) this.#thick(8 / this.layout.lane, y);
    this.moved();
  }
}

/** Sort by id, which is the order of requests; they mostly are. */
function inOrder(lanes) {
  for (let at = 1; at < lanes.length; at += 1) if (lanes[at - 1].id > lanes[at].id) return lanes.sort((a, b) => a.id - b.id);
  return lanes;
}

/** Count lanes by state, or by loss: "3 running". */
function tally(lanes) {
  const counts = new Map();
  for (const lane of lanes) {
    const name = lane.end === null ? STATES[lane.states.at(-1)] : (lane.loss ?? "ended");
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a).map(([name, n]) => `${n.toLocaleString("en")} ${name}`);
}

