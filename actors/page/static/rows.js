// The tabs below: living executors, the last ended ones, the last events; sorted, filtered, kept in the address.

import { el, mark, put } from "./dom.js";
import { hasWords, Table } from "./table.js";
import { clock, GLYPHS, inShort, iso, lossClass, STATES, wholeAge } from "./words.js";

const $ = (id) => document.getElementById(id);
const ORDER = ["stuck", "terminating", "pending", "requested", "running"]; // what needs a look is first

function stateCell(td, row) {
  const badge = (td.firstChild ?? td.appendChild(el("span", {}, el("i", { "aria-hidden": "true" }), el("span"))));
  mark(badge, "class", `state ${row.state}`);
  put(badge.firstChild, GLYPHS[row.state] ?? "");
  put(badge.lastChild, row.retiring ? `${row.state}, retiring` : row.state);
}

function lossCell(td, row) {
  const badge = td.firstChild ?? td.appendChild(el("span"));
  mark(badge, "class", `loss ${lossClass(row.loss)}`);
  put(badge, row.loss ?? "ended");
}

function timeCell(td, at, text) {
  put(td, text);
  mark(td, "title", at == null ? null : iso(at));
}

/** A column whose value is its text. */
const plain = (key, title, more = {}) => ({ key, title, value: (row) => row[key], text: (row) => row[key] ?? "", ...more });

/** Words start with whose they are, which is what its row says. */
const WHOSE = /^executor \d+ (?:\(pod [^)]*\) )?/;

function longText(td, text) {
  put(td, inShort(text.replace(WHOSE, "")));
  mark(td, "title", text || null);
}

/** Fill a cell that may be cut. */
const titled = (key) => (td, row) => {
  put(td, row[key]);
  mark(td, "title", row[key] || null);
};

const ID = plain("id", "ID", { kind: "n", class: "c-id" });
const PROFILE = plain("profile", "Profile", { class: "c-profile" });
const POD = plain("pod", "Pod", { class: "c-pod", fill: titled("pod") });
const NODE = plain("node", "Node", { class: "c-node", fill: titled("node") });
const IP = plain("ip", "IP", { class: "c-ip" });
const RESTARTS = plain("restarts", "Restarts", { kind: "n", class: "c-restarts", width: 80 });
const why = (title) => plain("why", title, { class: "c-why", width: "rest", fill: (td, row) => longText(td, row.why ?? "") });
const REGISTERED = { key: "registered", title: "Registered", class: "c-registered", width: 90, value: (row) => (row.registered ? 0 : 1), text: (row) => (row.registered ? "yes" : "no") };
const STATE = { key: "state", title: "State", class: "c-state", width: 138, value: (row) => ORDER.indexOf(row.state), text: (row) => row.state, fill: stateCell };
const FOR = {
  key: "since",
  title: "For",
  kind: "n",
  class: "c-for",
  width: 84,
  value: (row) => -row.since,
  text: (row, now) => wholeAge(now - row.since),
  fill: (td, row, now) => timeCell(td, row.since, wholeAge(now - row.since)),
};
const LOSS = plain("loss", "Loss", { class: "c-loss", width: 165, fill: lossCell });
const ENDED = {
  key: "ended_at",
  title: "Ended",
  kind: "n",
  class: "c-for",
  width: 84,
  value: (row) => row.ended_at,
  text: (row, now) => `${wholeAge(now - row.ended_at)} ago`,
  fill: (td, row, now) => timeCell(td, row.ended_at, `${wholeAge(now - row.ended_at)} ago`),
};
const RAN = {
  key: "ran",
  title: "Ran for",
  kind: "n",
  class: "c-ran",
  width: 80,
  value: (row) => (row.running_at == null ? null : row.ended_at - row.running_at),
  text: (row) => (row.running_at == null ? "never" : wholeAge(row.ended_at - row.running_at)),
};
const EXIT = { key: "exit_code", title: "Exit", kind: "n", class: "c-exit", width: 60, value: (row) => row.exit_code, text: (row) => (row.exit_code == null || row.exit_code === -1 ? "–" : row.exit_code) };
const AGAINST = { key: "caused_by_app", title: "Against app", class: "c-against", width: 100, value: (row) => (row.caused_by_app ? 0 : 1), text: (row) => (row.caused_by_app ? "yes" : "no") };
const TIME = { key: "time", title: "Time", class: "c-time", width: 150, value: (row) => row.seq, text: (row, now) => clock(row.time, now) };

const note = (name) => ({ key: `note ${name}`, title: name, class: "c-note", value: (row) => row.notes?.[name], text: (row) => row.notes?.[name] ?? "" });

const TABS = {
  executors: {
    title: "Executors",
    label: "Living executors",
    rows: (fleet) => fleet.executors.values(),
    columns: (notes) => [ID, PROFILE, STATE, FOR, REGISTERED, POD, NODE, IP, RESTARTS, ...notes, why("Why")],
    sort: { by: "state", down: false },
    choices: STATES,
    choose: "state",
    all: "All states",
  },
  ended: {
    title: "Ended",
    label: "The last ended executors",
    rows: (fleet) => fleet.ended,
    columns: (notes) => [ID, PROFILE, LOSS, ENDED, RAN, EXIT, AGAINST, why("Last words"), POD, NODE, IP, RESTARTS, ...notes],
    sort: { by: "ended_at", down: true },
    choose: "loss",
    all: "All losses",
  },
  events: {
    title: "Events",
    label: "The last events",
    rows: (fleet) => fleet.events,
    columns: () => [TIME, plain("event", "Event", { class: "c-event" }), plain("id", "Executor", { kind: "n", class: "c-id" }), PROFILE, plain("text", "Text", { class: "c-why", width: "rest", fill: (td, row) => longText(td, row.text ?? "") })],
    sort: { by: "time", down: true },
    choose: "event",
    all: "All events",
  },
};

export class Rows {
  constructor(fleet, open) {
    this.fleet = fleet;
    this.tab = "executors";
    this.words = [];
    this.profile = "";
    this.choice = "";
    this.tabs = {};
    for (const [name, spec] of Object.entries(TABS)) this.#tab(name, spec, open);
    $("tabs").addEventListener("keydown", (event) => this.#arrows(event));
    $("words").addEventListener("input", (event) => this.#filter({ words: event.target.value }));
    $("of-profile").addEventListener("change", (event) => this.#filter({ profile: event.target.value }));
    $("of-state").addEventListener("change", (event) => this.#filter({ choice: event.target.value }));
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest("input, dialog")) return;
      event.preventDefault();
      $("words").focus();
    });
    this.#fromAddress();
  }

  #tab(name, spec, open) {
    const count = el("b");
    const button = el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => this.#choose(name) }, spec.title, " ", count);
    const panel = el("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` });
    $("tabs").append(button);
    $("tables").append(panel);
    const table = new Table(panel, {
      label: spec.label,
      columns: spec.columns([]),
      key: name === "events" ? (row) => row.seq : (row) => row.id,
      sort: { ...spec.sort },
      open: (row) => row.id != null && open(row.id),
    });
    table.onsort = () => this.#toAddress();
    this.tabs[name] = { button, panel, table, count, spec };
  }

  /** Show the living executors of a state. */
  show(state) {
    this.#choose("executors");
    $("words").value = "";
    $("of-profile").value = "";
    this.#filter({ words: "", profile: "", choice: state });
    this.tabs.executors.panel.scrollIntoView({ block: "center" });
  }

  #choose(name) {
    if (this.tab !== name) this.choice = "";
    this.tab = name;
    this.drawn = null;
    this.render();
    this.#toAddress();
  }

  #filter({ words, profile, choice }) {
    if (words !== undefined) this.words = words.toLowerCase().split(/\s+/).filter(Boolean);
    this.profile = profile ?? this.profile;
    this.choice = choice ?? this.choice;
    this.tabs[this.tab].table.box.scrollTop = 0;
    this.drawn = null;
    this.render();
    this.#toAddress();
    put($("said"), $("count").textContent); // once, not with each change of the fleet
  }

  #arrows(event) {
    const names = Object.keys(TABS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const name = names[(names.indexOf(this.tab) + step + names.length) % names.length];
    this.#choose(name);
    this.tabs[name].button.focus();
  }

  render() {
    if (!this.fleet.status) return;
    const now = this.fleet.now();
    const columns = this.fleet.status.columns ?? [];
    const { table, spec, panel } = this.tabs[this.tab];
    const drawn = [this.fleet.changes, this.tab, this.words.join(" "), this.profile, this.choice, columns.join("\n")].join("\0");
    if (drawn === this.drawn) {
      table.draw(now); // ages
      return;
    }
    this.drawn = drawn;
    const all = [...spec.rows(this.fleet)];
    for (const [name, tab] of Object.entries(this.tabs)) {
      const shown = name === this.tab;
      mark(tab.button, "aria-selected", shown);
      mark(tab.button, "tabindex", shown ? 0 : -1);
      put(tab.count, (name === "executors" ? this.fleet.executors.size : this.fleet[name].length).toLocaleString("en"));
      tab.panel.hidden = !shown;
    }
    if (columns.join("\n") !== (panel.columns ?? "")) {
      panel.columns = columns.join("\n");
      table.setColumns(spec.columns(columns.map(note)));
    }
    this.#choices(spec, all);
    const { choose } = spec;
    const rows = all.filter(
      (row) => (!this.profile || row.profile === this.profile) && (!this.choice || row[choose] === this.choice) && hasWords(row, this.words),
    );
    table.now = now;
    table.arrange(rows);
    const part = rows.length === all.length ? "" : ` of ${all.length.toLocaleString("en")}`;
    put($("count"), rows.length || all.length ? `${rows.length.toLocaleString("en")}${part} shown` : `${spec.title === "Events" ? "No event" : "No executor"} yet`);
  }

  #choices(spec, all) {
    options($("of-profile"), "All profiles", new Map(Object.keys(this.fleet.status.profiles).map((name) => [name, null])), this.profile);
    const counts = new Map((spec.choices ?? []).map((name) => [name, 0]));
    for (const row of all) counts.set(row[spec.choose], (counts.get(row[spec.choose]) ?? 0) + 1);
    if (this.choice && !counts.has(this.choice)) counts.set(this.choice, 0);
    options($("of-state"), spec.all, counts, this.choice);
  }

  // ── the address ────────────────────────────────────────────────────────────────────────────────────────────────

  #toAddress() {
    const { sort } = this.tabs[this.tab].table;
    const said = new URLSearchParams();
    if (this.tab !== "executors") said.set("tab", this.tab);
    if (this.words.length) said.set("words", this.words.join(" "));
    if (this.profile) said.set("profile", this.profile);
    if (this.choice) said.set("only", this.choice);
    const { by, down } = TABS[this.tab].sort;
    if (sort.by !== by || sort.down !== down) said.set("sort", (sort.down ? "-" : "") + sort.by);
    history.replaceState(null, "", `#${said}`);
  }

  #fromAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    if (Object.hasOwn(TABS, said.get("tab") ?? "")) this.tab = said.get("tab");
    $("words").value = said.get("words") ?? "";
    this.words = $("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    this.profile = said.get("profile") ?? "";
    this.choice = said.get("only") ?? "";
    const sort = said.get("sort");
    if (sort) this.tabs[this.tab].table.sort = { by: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  }
}

/** Make the choices of a select: null, or how many there are of each. */
function options(select, all, counts, chosen) {
  const wanted = [["", all], ...[...counts].map(([name, n]) => [String(name), n === null ? String(name) : `${name} (${n.toLocaleString("en")})`])];
  const [...old] = select.options;
  for (const [at, [value, text]] of wanted.entries()) {
    const option = old[at] ?? select.appendChild(el("option"));
    mark(option, "value", value);
    put(option, text);
  }
  for (const option of old.slice(wanted.length)) option.remove();
  if (select.value !== chosen) select.value = chosen;
}
