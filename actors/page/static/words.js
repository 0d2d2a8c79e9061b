// How times, counts and states read. Pure.

export const STATES = ["requested", "pending", "running", "stuck", "terminating"];

/** A sign beside the colour, so that nobody needs to tell colours apart. */
export const GLYPHS = { requested: "○", pending: "◔", running: "●", stuck: "▲", terminating: "◐", ended: "■" };

const LOSSES = {
  "by-app": ["EXITED", "OOM_KILLED", "STORAGE_EXCEEDED", "HUNG"],
  "by-cluster": ["EVICTED", "PREEMPTED", "NODE_LOST", "DELETED", "NEVER_STARTED", "MISSING", "DISCONNECTED"],
  "in-order": ["FINISHED", "KILLED_BY_DRIVER", "RELEASED"],
};
const CLASSES = new Map(Object.entries(LOSSES).flatMap(([name, kinds]) => kinds.map((kind) => [kind, name])));

/** Return the class of a loss kind: caused by the application, by the infrastructure, or in order. */
export const lossClass = (kind) => CLASSES.get(kind) ?? "by-cluster";

/** Return a duration in at most two units, as kubectl prints ages: 42s, 4m10s, 3h5m, 2d4h. */
export function age(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return "";
  if (seconds >= 0 && seconds < 9.95 && seconds % 1 !== 0) return `${seconds.toFixed(1)}s`;
  return wholeAge(seconds);
}

/** Return a duration that ticks: never a part of a second. */
export function wholeAge(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return "";
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 && m < 10 ? `${m}m${s % 60}s` : `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  const d = Math.floor(h / 24);
  return h % 24 && d < 10 ? `${d}d${h % 24}h` : `${d}d`;
}

const two = (n) => String(n).padStart(2, "0");

/** Return the time of day, with the date if it was another day than `now`. */
export function clock(seconds, now) {
  if (seconds == null) return "";
  const at = new Date(seconds * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (now != null && at.toDateString() === new Date(now * 1000).toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** Return when it was for a program or a ticket: ISO 8601, UTC. */
export const iso = (seconds) => (seconds == null ? "" : new Date(seconds * 1000).toISOString());

/** Return the facts of an end, and the lines that the container said last; the driver writes a line break as \\n. */
export function parted(why) {
  const [facts, ...said] = why.split("; termination message: ");
  return { facts, lines: said.join("; termination message: ").split("\\n").filter((line) => line.trim()) };
}

/** Return a reason whose end may be cut: the last line that the container said is first. */
export function inShort(why) {
  const { facts, lines } = parted(why);
  return lines.length ? `${lines.at(-1).trim()}; ${facts}` : why;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

const collator = new Intl.Collator("en", { numeric: true });
export const byText = (a, b) => collator.compare(a, b);
