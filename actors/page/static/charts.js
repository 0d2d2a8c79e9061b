// Executors by state, starts and losses a minute, start latency: of the time that the timeline shows.

import { el, keyed, put } from "./dom.js";
import { age, clock, lossClass, STATES } from "./words.js";

const POINTS = 240; // of the chart of states
const REDRAW = 1; // seconds
const MOVING = 0.12; // seconds between two drawings while somebody moves in time
const WHOLE = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5].map((zeros) => n * 10 ** zeros)).sort((a, b) => a - b);
const LOSSES = ["by-app", "by-cluster", "in-order"];
const LOSS_WORDS = ["by the application", "by the cluster", "in order"];
const LEAST_HEIGHT = 104; // px
/** From the bottom of the stack to its top. */
const STACK = ["running", "pending", "requested", "stuck", "terminating"];

/** Return how many executors were in each state at each of `points` moments. Pure. */
export function countStates(lanes, from, to, now, points) {
  const step = (to - from) / (points - 1);
  const times = Array.from({ length: points }, (_, at) => from + at * step);
  const counts = STATES.map(() => new Float64Array(points + 1));
  const index = (at) => Math.min(points, Math.max(0, Math.ceil((at - from) / step)));
  for (const lane of lanes) {
    for (let part = 0; part < lane.states.length; part += 1) {
      const begin = index(lane.starts[part]);
      const end = index(lane.starts[part + 1] ?? lane.end ?? to + step);
      if (end <= begin) continue;
      counts[lane.states[part]][begin] += 1;
      counts[lane.states[part]][end] -= 1;
    }
  }
  const future = times.findIndex((at) => at > now);
  const shown = future < 0 ? points : Math.max(1, future);
  for (const list of counts) for (let at = 1; at < points; at += 1) list[at] += list[at - 1];
  return { times: times.slice(0, shown), counts: counts.map((list) => Array.from(list.subarray(0, shown))) };
}

/** Return starts, losses by class, and the start latencies, in bins of whole minutes. Pure. */
export function countEvents(lanes, from, to) {
  const width = Math.max(60, Math.ceil((to - from) / 90 / 60) * 60); // seconds
  const first = Math.floor(from / width) * width;
  const length = Math.max(1, Math.ceil((to - first) / width));
  const bins = Array.from({ length }, (_, at) => first + at * width + width / 2);
  const starts = new Float64Array(length);
  const losses = LOSSES.map(() => new Float64Array(length));
  const latencies = bins.map(() => []);
  const running = STATES.indexOf("running");
  const perMinute = 60 / width;
  for (const lane of lanes) {
    const part = lane.states.indexOf(running);
    const started = part < 0 ? null : lane.starts[part];
    if (started !== null && started >= first && started < to) {
      const bin = Math.floor((started - first) / width);
      starts[bin] += perMinute;
      if (part > 0) latencies[bin].push(started - lane.starts[0]);
    }
    if (lane.end !== null && lane.end >= first && lane.end < to) {
      losses[LOSSES.indexOf(lossClass(lane.loss))][Math.floor((lane.end - first) / width)] += perMinute;
    }
  }
  for (const list of latencies) list.sort((a, b) => a - b);
  const share = (q) => latencies.map((list) => quantile(list, q));
  const all = latencies.flat().sort((a, b) => a - b);
  const sum = (list) => Math.round(list.reduce((total, n) => total + n, 0) / perMinute);
  return {
    bins,
    width,
    starts: Array.from(starts),
    losses: losses.map((list) => Array.from(list)),
    median: share(0.5),
    high: share(0.95),
    all: { starts: sum(starts), losses: losses.map(sum), median: quantile(all, 0.5), high: quantile(all, 0.95) },
  };
}

/** Return a scale on which a fleet's start does not hide what came after: a bar far above the others is cut. */
function reach(up, down) {
  const high = up.filter((n) => n > 0).sort((a, b) => a - b);
  const low = Math.min(0, ...down) * 1.06;
  const most = high.at(-1) ?? 0;
  const usual = Math.max((quantile(high, 0.9) ?? 0) * 2, -low, 2);
  return [low, most > usual * 1.5 ? usual : Math.max(2, most * 1.06)];
}

const quantile = (sorted, q) => (sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] : null);

export class Charts {
  constructor(fleet, timeline) {
    this.fleet = fleet;
    this.timeline = timeline;
    this.root = document.getElementById("charts");
    this.at = -Infinity; // when it was drawn last
    this.later = null;
    this.reach = [0, 2]; // of the chart of starts
    this.figures = {
      states: figure(this.root, "Executors by state"),
      events: figure(this.root, "Starts and ends a minute"),
      latency: figure(this.root, "From request to running, seconds"),
    };
    this.make();
    new ResizeObserver(() => this.#resize()).observe(this.root);
  }

  /** Make the plots anew: in the dark their colours differ. */
  make() {
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: ink("muted"), font: "11px system-ui, sans-serif", grid: { stroke: ink("line"), width: 1 }, ticks: { show: false } };
    const x = { ...axis, space: 76, size: 20, gap: 4, values: (_, splits, __, ___, step) => splits.map((at) => clock(at, this.fleet.now()).slice(-8, step < 60 ? undefined : -3)) };
    const y = { ...axis, size: 38, gap: 4, space: 26, incrs: WHOLE, values: (_, splits) => splits.map((n) => (Number.isInteger(n) || n < 10 ? Math.abs(n).toLocaleString("en", { notation: n >= 10_000 ? "compact" : "standard" }) : "")) };
    const step = window.uPlot.paths.stepped({ align: 1 });
    const bars = window.uPlot.paths.bars({ size: [0.8, 40] });
    const area = (name) => ({ label: name, stroke: ink(name), fill: ink(name), width: 0, paths: step, points: { show: false } });
    const bar = (name) => ({ label: name, stroke: ink(name), fill: ink(name), width: 0, paths: bars, points: { show: false } });
    const line = (label, colour, dash) => ({ label, stroke: colour, width: 1.75, dash, spanGaps: true, points: { show: true, size: 5, fill: colour } });
    const span = () => {
      const { from, to } = this.timeline.sight();
      return [from, to];
    };
    const common = (figure, series, least, scale) => ({
      width: 300,
      height: LEAST_HEIGHT,
      padding: [6, 16, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: { x: { time: true, range: span }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(least, (high ?? 0) * 1.06)], ...scale } },
      axes: [x, y],
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.#point(figure, plot.cursor.idx)] },
    });
    this.plots?.forEach((plot) => plot.destroy());
    this.sight = null;
    const { states, events, latency } = this.figures;
    const make = (figure, series, least, scale) => {
      const plot = new window.uPlot(common(figure, series, least, scale), [[], ...series.map(() => [])], figure.plot);
      figure.uplot = plot;
      return plot;
    };
    this.plots = [
      make(states, STACK.toReversed().map(area), 4),
      make(events, [bar("running"), ...LOSSES.toReversed().map(bar)], 2, { range: () => this.reach }),
      make(latency, [line("median", ink("running")), line("95 of 100", ink("by-cluster"), [4, 3])], 1),
    ];
    this.at = -Infinity;
    this.#resize();
  }

  #resize() {
    for (const { plot, uplot } of Object.values(this.figures)) {
      const [width, height] = [plot.clientWidth, Math.min(170, plot.clientHeight)];
      if (width > 0 && (uplot.width !== width || uplot.height !== height)) uplot.setSize({ width, height });
    }
  }

  render() {
    const { from, to, until: now } = this.timeline.sight();
    const sight = `${this.timeline.span} ${this.timeline.to}`;
    const since = performance.now() / 1000 - this.at;
    if (!this.fleet.status || since < (sight === this.sight ? REDRAW : MOVING)) {
      if (sight !== this.sight) this.later ??= setTimeout(() => this.timeline.moved(), MOVING * 1000);
      return;
    }
    clearTimeout(this.later);
    this.later = null;
    this.at = performance.now() / 1000;
    this.sight = sight;
    const lanes = [...this.fleet.lanes.values()];
    this.byState = countStates(lanes, from, to, now, POINTS);
    this.byMinute = countEvents(lanes, from, to);
    const { states, events, latency } = this.figures;
    const stacked = [];
    for (const name of STACK) {
      const list = this.byState.counts[STATES.indexOf(name)];
      const below = stacked.at(-1);
      stacked.push(below ? list.map((n, at) => n + below[at]) : list);
    }
    states.uplot.setData([this.byState.times, ...stacked.toReversed()]);
    const { bins, starts, losses, median, high } = this.byMinute;
    const down = [];
    for (const list of losses) {
      const above = down.at(-1);
      down.push(list.map((n, at) => (above ? above[at] : 0) - n));
    }
    this.reach = reach(starts, down.at(-1));
    const shown = down.map((list, one) => list.map((n, at) => (losses[one][at] ? n : null)));
    events.uplot.setData([bins, starts.map((n) => n || null), ...shown.toReversed()]);
    latency.uplot.setData([bins, median, high]);
    for (const each of Object.values(this.figures)) this.#point(each, each.uplot.cursor.idx);
  }

  /** Say the values at a point of a chart; without one, the last ones or those of all the time shown. */
  #point(figure, index) {
    if (!this.byState) return;
    const { states, events } = this.figures;
    const now = this.fleet.now();
    const count = (n) => (n ?? 0).toLocaleString("en", { maximumFractionDigits: 1 });
    if (figure === states) {
      const { times, counts } = this.byState;
      const at = index ?? times.length - 1;
      keys(figure, index == null && this.timeline.to === null ? "now" : clock(times[at], now), STACK.map((name) => [name, name, count(counts[STATES.indexOf(name)][at])]));
      return;
    }
    const { bins, width, starts, losses, median, high, all } = this.byMinute;
    const at = index == null ? null : { starts: starts[index], losses: losses.map((list) => list[index]), median: median[index], high: high[index] };
    const cut = Math.max(...starts) > this.reach[1];
    const when = at ? `from ${clock(bins[index] - width / 2, now)}` : figure === events ? `of the time shown${cut ? ", highest bars cut" : ""}` : "of the time shown";
    const { starts: started, losses: lost, median: half, high: most } = at ?? all;
    const items =
      figure === events
        ? [["running", "started", count(started)], ...LOSSES.map((name, one) => [name, LOSS_WORDS[one], count(lost[one])])]
        : [["running", "median", age(half) || "–"], ["by-cluster", "95 of 100 below", age(most) || "–"]];
    keys(figure, when, items);
  }
}

function figure(root, title) {
  const plot = el("div", { class: "plot", "aria-hidden": "true" });
  const when = el("span", { class: "when" });
  const legend = el("span", { class: "legend" });
  root.append(el("figure", {}, el("figcaption", {}, el("strong", {}, title), when, legend), plot));
  return { plot, when, legend };
}

function keys(figure, when, items) {
  put(figure.when, when);
  keyed(
    figure.legend,
    items,
    ([name]) => name,
    ([name]) => el("span", { class: `key ${name}` }, el("i", { "aria-hidden": "true" }), el("span"), el("b")),
    (node, [, word, value]) => {
      put(node.children[1], word);
      put(node.children[2], value);
    },
  );
}
