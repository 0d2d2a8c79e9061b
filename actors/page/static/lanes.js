// Draws lanes on a canvas: only what is in sight, and where a lane is thinner than a pixel, a pixel shows the most severe
// state of its lanes.

import { clock, lossClass, STATES } from "./words.js";

export const AXIS = 22; // px, the height of the time axis
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** The share of a lane's height that a state fills, so that states differ by more than colour. */
const FILLS = { requested: 0.3, pending: 0.55, running: 1, stuck: 1, terminating: 0.55 };
/** Drawn in this order where lanes share a pixel: the last one is seen. */
const SEVERITY = ["running", "requested", "terminating", "pending", "in-order", "by-cluster", "by-app", "stuck"];
const LOSSES = ["by-app", "by-cluster", "in-order"];

/** Where a time is, in pixels from the left. */
const xOf = (at, { from, to, width, gutter }) =>
  gutter + ((at - from) / (to - from)) * (width - gutter);

/** The time that is so many pixels from the left. */
export const timeAt = (x, { from, to, width, gutter }) =>
  from + ((x - gutter) / (width - gutter)) * (to - from);

/** Where an executor's lane begins, in pixels from the first one; null: it is not shown. */
export function placeOf(id, layout) {
  for (const group of layout.groups) {
    const at = group.lanes.findIndex((lane) => lane.id === id);
    if (at >= 0) return group.top + at * layout.lane;
  }
  return null;
}

/** Whether lanes are so thin that some share a pixel. */
export const sharesPixels = (layout) => layout.lane * pixelRatio() < 2;

const pixelRatio = () => window.devicePixelRatio || 1;

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.layer = document.createElement("canvas"); // of pixels
    this.colours();
  }

  /** Read the colours of the page: they differ in the dark. */
  colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.ink = Object.fromEntries(
      ["panel", "line", "line-strong", "text", "muted", "accent", "band", ...STATES, ...LOSSES].map((name) => [name, read(name)]),
    );
    this.words = new Map(SEVERITY.map((name) => [name, pixel(this.ink[name])]));
  }

  /** Draw a layout, scrolled so far down, with the lane of one executor marked. */
  paint(layout, scroll, chosen) {
    this.scroll = scroll;
    const scale = pixelRatio();
    const [width, height] = [Math.round(layout.width * scale), Math.round(layout.height * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      Object.assign(this.canvas, { width, height });
      this.canvas.style.width = `${layout.width}px`;
      this.canvas.style.height = `${layout.height}px`;
    }
    const c = this.context;
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = this.ink.panel;
    c.fillRect(0, 0, layout.width, layout.height);
    const ticks = ticksOf(layout);
    c.fillStyle = this.ink.line;
    for (const tick of ticks) c.fillRect(Math.round(tick.x), AXIS, 1, layout.height);
    if (sharesPixels(layout)) this.#pixels(layout, scale);
    else this.#lanes(layout);
    this.#names(layout);
    this.#choice(layout, chosen);
    this.#axis(layout, ticks);
  }

  #lanes(layout) {
    const { lane, from, to, until, gutter, width, height } = layout;
    const c = this.context;
    const boxes = new Map(SEVERITY.map((name) => [name, []]));
    const words = [];
    const thick = Math.max(0.75, lane - (lane > 5 ? 2 : lane > 2.5 ? 1 : 0));
    for (const group of layout.groups) {
      const start = AXIS + group.top - this.scroll;
      const first = Math.max(0, Math.floor((AXIS - start) / lane));
      const last = Math.min(group.lanes.length, Math.ceil((height - start) / lane));
      for (let at = first; at < last; at += 1) {
        const each = group.lanes[at];
        const y = start + at * lane;
        for (let part = 0; part < each.states.length; part += 1) {
          const begin = Math.max(each.starts[part], from);
          const end = Math.min(each.starts[part + 1] ?? each.end ?? until, to);
          if (end < from || begin > to) continue;
          const x = xOf(begin, layout);
          const name = STATES[each.states[part]];
          const fill = lane > 3 ? FILLS[name] : 1;
          boxes.get(name).push(x, y + (thick * (1 - fill)) / 2, Math.max(1, xOf(end, layout) - x), thick * fill);
        }
        if (each.end !== null && each.end >= from && each.end <= to) {
          const x = xOf(each.end, layout);
          const kind = lossClass(each.loss);
          boxes.get(kind).push(x - 1, y, lane > 5 ? 3 : 4, thick);
          if (lane >= 11 && each.loss) words.push([each.loss, x + 4, y + thick / 2, kind, xOf(each.starts[0], layout)]);
        }
      }
    }
    c.save();
    c.beginPath();
    c.rect(gutter, AXIS, width - gutter, height);
    c.clip();
    for (const [name, list] of boxes) {
      c.fillStyle = this.ink[name];
      for (let at = 0; at < list.length; at += 4) c.fillRect(list[at], list[at + 1], list[at + 2], list[at + 3]);
    }
    if (lane > 5) this.#stripes(boxes.get("stuck"));
    c.font = `500 ${Math.min(11, lane - 1)}px system-ui, sans-serif`;
    c.textBaseline = "middle";
    c.textAlign = "left";
    for (const [word, x, y, kind, begin] of words) {
      const length = c.measureText(word).width;
      const within = x + length > width - 2; // no room behind its end: on the lane
      if (within && x - length - 10 < begin) continue;
      c.fillStyle = this.ink[within ? "panel" : kind];
      c.fillText(word, within ? x - length - 9 : x, y + 0.5);
    }
    c.restore();
  }

  /** Stripes over what is stuck. */
  #stripes(list) {
    const c = this.context;
    c.save();
    c.strokeStyle = this.ink.panel;
    c.lineWidth = 1.5;
    for (let at = 0; at < list.length; at += 4) {
      const [x, y, width, height] = list.slice(at, at + 4);
      c.save();
      c.beginPath();
      c.rect(x, y, width, height);
      c.clip();
      c.beginPath();
      for (let step = x - (x % 8) - 16; step < x + width; step += 8) {
        c.moveTo(step, y + height);
        c.lineTo(step + height, y);
      }
      c.stroke();
      c.restore();
    }
    c.restore();
  }

  /** Lanes thinner than a pixel: per row of pixels, count where each state begins and ends, and show the most severe. */
  #pixels(layout, scale) {
    const { from, to, until, lane, gutter } = layout;
    const left = Math.round(gutter * scale);
    const top = Math.round(AXIS * scale);
    const columns = this.canvas.width - left;
    const rows = this.canvas.height - top;
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const perSecond = columns / (to - from);
    const size = columns + 1;
    const counts = SEVERITY.map(() => new Int32Array(size));
    const first = new Int32Array(SEVERITY.length).fill(size); // where counts begin and end to differ from 0
    const last = new Int32Array(SEVERITY.length).fill(-1);
    const rank = STATES.map((name) => SEVERITY.indexOf(name));
    const flush = (row) => {
      if (row >= 0 && row < rows) {
        for (let kind = 0; kind < SEVERITY.length; kind += 1) {
          if (last[kind] < 0) continue;
          const steps = counts[kind];
          const word = this.words.get(SEVERITY[kind]);
          let open = 0;
          const at = row * columns;
          for (let x = first[kind]; x < last[kind]; x += 1) {
            open += steps[x];
            if (open > 0) pixels[at + x] = word;
          }
        }
      }
      for (let kind = 0; kind < SEVERITY.length; kind += 1) {
        if (last[kind] < 0) continue;
        counts[kind].fill(0, first[kind], last[kind] + 1);
        first[kind] = size;
        last[kind] = -1;
      }
    };
    const add = (kind, begin, end, least) => {
      const x = Math.max(0, Math.floor((begin - from) * perSecond));
      const past = Math.min(columns, Math.max(x + least, Math.ceil((end - from) * perSecond)));
      if (end < from || x >= columns) return;
      counts[kind][x] += 1;
      counts[kind][past] -= 1;
      if (x < first[kind]) first[kind] = x;
      if (past > last[kind]) last[kind] = past;
    };
    let current = -1;
    for (const group of layout.groups) {
      for (let at = 0; at < group.lanes.length; at += 1) {
        const row = Math.floor((group.top + at * lane - this.scroll) * scale);
        if (row < 0) continue;
        if (row >= rows) break;
        if (row !== current) {
          flush(current);
          current = row;
        }
        const each = group.lanes[at];
        for (let part = 0; part < each.states.length; part += 1) {
          add(rank[each.states[part]], each.starts[part], each.starts[part + 1] ?? each.end ?? until, 1);
        }
        if (each.end !== null) add(SEVERITY.indexOf(lossClass(each.loss)), each.end, each.end, Math.round(4 * scale));
      }
    }
    flush(current);
    if (this.layer.width !== columns || this.layer.height !== rows) Object.assign(this.layer, { width: columns, height: rows });
    this.layer.getContext("2d").putImageData(image, 0, 0);
    this.context.drawImage(this.layer, left / scale, top / scale, columns / scale, rows / scale);
  }

  #names(layout) {
    const { groups, gutter, width, height, lane } = layout;
    const c = this.context;
    c.textBaseline = "middle";
    c.textAlign = "left";
    let free = AXIS;
    for (const group of groups) {
      const top = AXIS + group.top - this.scroll;
      const bottom = top + group.lanes.length * lane;
      if (bottom < AXIS || top > height) continue;
      c.fillStyle = this.ink.line;
      if (groups.length < 60) c.fillRect(0, Math.round(bottom + layout.gap / 2), width, 1);
      const y = Math.max(top, free);
      if (y + 12 > Math.max(bottom + layout.gap, top + 12) || y + 12 > height) continue;
      const text = `${this.#cut(group.name, (gutter || width) - 14)} `;
      const count = group.lanes.length.toLocaleString("en");
      c.font = "600 11px system-ui, sans-serif";
      const length = c.measureText(text).width;
      if (gutter === 0) {
        c.font = "11px system-ui, sans-serif";
        c.fillStyle = this.ink.panel;
        c.globalAlpha = 0.85;
        c.fillRect(0, y, length + c.measureText(count).width + 12, 14);
        c.globalAlpha = 1;
      }
      c.save();
      c.beginPath();
      c.rect(0, AXIS, gutter || width, height);
      c.clip();
      c.font = "600 11px system-ui, sans-serif";
      c.fillStyle = this.ink.text;
      c.fillText(text, 8, y + 7);
      c.font = "11px system-ui, sans-serif";
      c.fillStyle = this.ink.muted;
      c.fillText(count, 8 + length, y + 7);
      c.restore();
      free = y + 14;
    }
    if (gutter) {
      c.fillStyle = this.ink.line;
      c.fillRect(gutter - 1, AXIS, 1, height);
    }
  }

  /** Return a name that is no wider than that. */
  #cut(name, width) {
    const c = this.context;
    c.font = "600 11px system-ui, sans-serif";
    if (c.measureText(name).width <= width) return name;
    let end = name.length;
    while (end > 1 && c.measureText(`${name.slice(0, end)}…`).width > width) end -= 1;
    return `${name.slice(0, end)}…`;
  }

  #choice(layout, chosen) {
    const top = chosen === null ? null : placeOf(chosen, layout);
    if (top === null) return;
    const y = AXIS + top - this.scroll;
    this.context.strokeStyle = this.ink.text;
    this.context.lineWidth = 1.5;
    this.context.strokeRect(layout.gutter + 0.75, y - 1, layout.width - layout.gutter - 1.5, Math.max(3, layout.lane));
  }

  #axis(layout, ticks) {
    const c = this.context;
    c.fillStyle = this.ink.band;
    c.fillRect(0, 0, layout.width, AXIS);
    c.fillStyle = this.ink["line-strong"];
    c.fillRect(0, AXIS - 1, layout.width, 1);
    c.fillStyle = this.ink.muted;
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.textAlign = "left";
    for (const tick of ticks) {
      c.fillRect(Math.round(tick.x), AXIS - 6, 1, 6);
      if (tick.x < layout.gutter || tick.x > layout.width - 40) continue;
      const text = clock(tick.at, layout.now);
      c.fillText(tick.step >= 86_400 ? text.slice(0, 10) : tick.step >= 60 ? text.slice(0, -3) : text, tick.x + 4, AXIS / 2);
    }
    const x = xOf(layout.until, layout);
    if (x <= layout.width) {
      c.fillStyle = this.ink.accent;
      c.fillRect(Math.round(x), AXIS - 6, 1, layout.height);
    }
  }
}

function ticksOf(layout) {
  const { from, to, width, gutter } = layout;
  const least = ((to - from) / (width - gutter)) * 84;
  const step = TICKS.find((each) => each >= least) ?? TICKS.at(-1);
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to; at += step) found.push({ at, x: xOf(at, layout), step });
  return found;
}

/** Return a colour (#rrggbb) as a word of image data, on a little-endian machine. */
function pixel(colour) {
  const value = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}
