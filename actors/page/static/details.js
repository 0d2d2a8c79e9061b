// All that is known of one executor.

import { buttonsOf } from "./actions.js";
import { el } from "./dom.js";
import { age, clock, GLYPHS, iso, lossClass, parted, STATES, wholeAge } from "./words.js";

/** A name of Kubernetes: nothing else belongs into a command that somebody may copy. */
const NAME = /^[a-z0-9][a-z0-9.-]*$/;

const dialog = document.getElementById("details");
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

/** Show an executor. */
export function showDetails(fleet, id) {
  const now = fleet.now();
  const row = fleet.executors.get(id) ?? fleet.ended.find((each) => each.id === id);
  const lane = fleet.lanes.get(id);
  if (!row && !lane) return;
  const facts = row ? ofRow(row, now) : ofLane(lane, now);
  const state = row?.state ?? (lane.end === null ? STATES[lane.states.at(-1)] : "ended");
  const loss = row?.loss ?? lane?.loss;
  const badge = loss ? el("span", { class: `loss ${lossClass(loss)}` }, loss) : el("span", { class: `state ${state}` }, el("i", { "aria-hidden": "true" }, GLYPHS[state] ?? ""), state);
  const list = el("dl");
  for (const [name, value] of facts) {
    if (value != null && value !== "") list.append(el("dt", {}, name), el("dd", {}, String(value)));
  }
  const parts = [el("h2", { id: "details-title" }, `Executor ${id} `, badge), list];
  const { lines } = parted(row?.why ?? "");
  if (lines.length) parts.push(el("h3", {}, "Last words"), el("pre", { tabindex: 0 }, lines.join("\n")));
  if (lane?.states.length) parts.push(el("h3", {}, "Its life"), life(lane, now));
  const { namespace, actions } = fleet.status;
  const lives = row && row.state !== "ended"; // the pod of an ended one is gone, or about to be
  if (lives && NAME.test(row.pod) && NAME.test(namespace)) {
    const lines = [`kubectl -n ${namespace} describe pod ${row.pod}`];
    if (row.running_at != null) lines.push(`kubectl -n ${namespace} logs ${row.pod}${row.restarts ? " --previous" : ""}`);
    parts.push(el("h3", {}, "Ask the cluster"), el("pre", { tabindex: 0 }, lines.join("\n")));
  }
  if (lives && actions) parts.push(el("h3", {}, "End it"), buttonsOf(id, () => dialog.close()));
  const close = el("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close");
  dialog.replaceChildren(close, ...parts);
  if (!dialog.open) dialog.showModal();
}

const yes = (value) => (value == null ? null : value ? "yes" : "no");
const when = (at, now) => (at == null ? null : `${clock(at, now)} (${wholeAge(now - at)} ago) · ${iso(at)}`);

function ofRow(row, now) {
  return [
    ["Why", row.why && parted(row.why).facts],
    ["Exit code", row.exit_code === -1 ? "none is known" : row.exit_code],
    ["Counts against the application", yes(row.caused_by_app)],
    ["Profile", row.profile],
    ["Pod", row.pod],
    ["Node", row.node],
    ["IP", row.ip],
    ["Registered", row.state === "ended" ? null : yes(row.registered)],
    ["Retiring", row.retiring ? "yes" : null],
    ["Restarts", row.restarts],
    ["Requested", when(row.requested_at, now)],
    ["Running since", row.state === "ended" ? null : when(row.running_at, now)],
    ["Ended", when(row.ended_at, now)],
    ...Object.entries(row.notes ?? {}),
  ];
}

const ofLane = (lane, now) => [
  ["Profile", lane.profile],
  ["Node", lane.node],
  ["Requested", when(lane.starts[0], now)],
  ["Ended", when(lane.end, now)],
];

function life(lane, now) {
  const list = el("ol", { class: "life" });
  for (const [at, state] of lane.states.entries()) {
    const end = lane.starts[at + 1] ?? lane.end ?? now;
    const name = STATES[state];
    list.append(
      el("li", { class: name }, el("i", { "aria-hidden": "true" }, GLYPHS[name]), el("span", {}, name), el("span", { class: "n" }, age(end - lane.starts[at])), el("span", { class: "muted" }, `from ${clock(lane.starts[at], now)}`)),
    );
  }
  if (lane.end !== null) {
    list.append(el("li", { class: lossClass(lane.loss) }, el("i", { "aria-hidden": "true" }, GLYPHS.ended), el("span", {}, lane.loss ?? "ended"), el("span"), el("span", { class: "muted" }, `at ${clock(lane.end, now)}`)));
  }
  return list;
}
