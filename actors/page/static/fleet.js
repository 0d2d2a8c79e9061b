// What the driver said so far: the one copy that all views read.

import { STATES } from "./words.js";

const KEEP_ENDED = 200; // rows with all their words, as the driver keeps them
const KEEP_EVENTS = 500;
const KEEP_LANES = 10_000; // of ended executors

export class Fleet {
  constructor() {
    this.status = null;
    this.executors = new Map(); // id -> row
    this.ended = []; // rows, the last to end first
    this.events = []; // the newest first
    this.lanes = new Map(); // id -> {id, profile, node, states: [], starts: [], end, loss}
    this.endedLanes = []; // ids, the first to end first
    this.seq = 0;
    this.changes = 0; // of rows, lanes and events: who drew this number has nothing to draw
    this.ahead = 0; // the driver's clock less ours, in seconds
    this.lostAt = null; // by the driver's clock, while the connection to it is lost
  }

  /** The driver's present, in seconds since the epoch. */
  now() {
    return Date.now() / 1000 + this.ahead;
  }

  /** Until when anything is known: the present, unless the connection to the driver is lost. */
  until() {
    return this.lostAt ?? this.now();
  }

  load(status, executors, events, timeline) {
    this.ahead = -Infinity;
    this.setStatus(status);
    this.executors = new Map(executors.executors.map((row) => [row.id, row]));
    this.ended = executors.ended.toSorted((a, b) => b.ended_at - a.ended_at).slice(0, KEEP_ENDED);
    this.events = events.events.toSorted((a, b) => b.seq - a.seq).slice(0, KEEP_EVENTS);
    this.lanes = new Map();
    for (const [id, profile, node, all, end, loss] of timeline.lanes.toSorted(([a], [b]) => a - b)) {
      const spans = all.filter(([state]) => STATES.includes(timeline.states[state])); // not "ended"
      this.lanes.set(id, {
        id,
        profile: timeline.profiles[profile] ?? "",
        node: timeline.nodes[node] ?? "",
        states: spans.map(([state]) => STATES.indexOf(timeline.states[state])),
        starts: spans.map(([, start]) => start),
        end,
        loss,
      });
    }
    const ended = [...this.lanes.values()].filter((lane) => lane.end !== null);
    this.endedLanes = ended.sort((a, b) => a.end - b.end).map((lane) => lane.id);
    // The four answers are of slightly different moments. Changes are whole rows, so to take some again does no harm.
    this.seq = Math.min(executors.seq, events.seq, timeline.seq);
    this.changes += 1;
  }

  setStatus(status) {
    this.status = status;
    this.ahead = Math.max(this.ahead, status.time - Date.now() / 1000); // what was on its way for long says too little
  }

  apply(change) {
    for (const row of change.executors ?? []) {
      this.executors.set(row.id, row);
      this.#lengthen(row);
    }
    const ended = change.ended ?? [];
    for (const row of ended) {
      this.executors.delete(row.id);
      this.#lengthen(row);
    }
    if (ended.length) {
      const ids = new Set(ended.map((row) => row.id));
      const others = this.ended.filter((row) => !ids.has(row.id));
      this.ended = [...ended, ...others].sort((a, b) => b.ended_at - a.ended_at).slice(0, KEEP_ENDED);
    }
    const newest = this.events[0]?.seq ?? -1;
    const events = (change.events ?? []).filter((event) => event.seq > newest);
    if (events.length) {
      this.events = [...events.sort((a, b) => b.seq - a.seq), ...this.events].slice(0, KEEP_EVENTS);
    }
    this.seq = Math.max(this.seq, change.seq);
    this.changes += 1;
  }

  /** Carry the executor's lane on to what its row says. */
  #lengthen(row) {
    let lane = this.lanes.get(row.id);
    if (!lane) {
      lane = { id: row.id, profile: row.profile, node: "", states: [], starts: [], end: null, loss: null };
      this.lanes.set(row.id, lane);
      if (row.requested_at != null) this.#begin(lane, "requested", row.requested_at);
    }
    if (lane.end !== null) return; // an older answer, once more
    lane.node = row.node || lane.node;
    if (row.running_at != null && !lane.states.includes(STATES.indexOf("running"))) {
      this.#begin(lane, "running", row.running_at);
    }
    if (row.state !== "ended") this.#begin(lane, row.state, row.since);
    else {
      lane.end = row.ended_at;
      lane.loss = row.loss;
      this.endedLanes.push(lane.id);
      if (this.endedLanes.length > KEEP_LANES) this.lanes.delete(this.endedLanes.shift());
    }
  }

  #begin(lane, name, since) {
    const state = STATES.indexOf(name);
    const last = lane.states.length - 1;
    if (state < 0 || lane.states[last] === state) return;
    lane.states.push(state);
    lane.starts.push(last < 0 ? since : Math.max(since, lane.starts[last]));
  }
}
