// The top line, the banners and the profiles: what an operator asks first.

import { el, keyed, mark, put } from "./dom.js";
import { clock, inShort, lossClass, plural, wholeAge } from "./words.js";

const $ = (id) => document.getElementById(id);
const STALE_SOURCE = 150; // seconds without a word from a source until that is a warning; a quiet watch has a bookmark a minute

/** One sentence with a severity; `since` in the driver's time. */
const banner = (key, level, title, text = "", since = null, act = null) => ({ key, level, title, text, since, act });

/** Whether a profile is blocked because another driver writes, which is as it should be. */
const standsBy = (status, profile) => !status.may_write && profile.blocked_by === "lease";

/** Return what needs attention, the worst first. Pure. */
export function banners(status, stuck, ended, now) {
  const found = [];
  if (status.failed) found.push(banner("failed", "bad", "The fleet has failed", status.failed));
  const sources = Object.entries(status.sources);
  const broken = sources.filter(([, source]) => source.error);
  if (broken.length) {
    const all = broken.length === sources.length;
    const heard = Math.min(...sources.map(([, source]) => source.since_heard ?? Infinity));
    found.push(
      banner(
        "outage",
        all ? "bad" : "warn",
        all ? "The Kubernetes API does not answer" : `The ${broken[0][0]} does not get through; the other source does`,
        [...Map.groupBy(broken, ([, source]) => source.error)].map(([error, of]) => `${of.map(([name]) => name).join(" and ")}: ${error}`).join(" · "),
        Number.isFinite(heard) && all ? status.time - heard : null,
      ),
    );
  }
  for (const [name, profile] of Object.entries(status.profiles)) {
    if (standsBy(status, profile)) continue;
    if (profile.blocked) {
      const title = `No executor of profile ${name} can be created`;
      const by = profile.blocked_by ? `${profile.blocked_by}: ` : "";
      found.push(banner(`blocked ${name}`, "bad", title, by + profile.blocked, profile.blocked_since));
    } else if (profile.backoff_until > now) {
      const title = `Profile ${name} waits before it creates more`;
      const last = ended.find((row) => row.profile === name && row.why);
      const why = last ? ` The last one: ${inShort(last.why)}` : "";
      const text = `${plural(profile.start_failures, "executor")} ended too soon; the next try is in ${wholeAge(profile.backoff_until - now)}.${why}`;
      found.push(banner(`backoff ${name}`, "warn", title, text));
    }
  }
  if (stuck.length) {
    const reasons = [...new Set(stuck.map((row) => row.why).filter(Boolean))];
    const more = reasons.length > 1 ? ` · and ${plural(reasons.length - 1, "other reason")}` : "";
    const since = Math.min(...stuck.map((row) => row.since));
    const title = `${plural(stuck.length, "executor")} ${stuck.length === 1 ? "does" : "do"} not start`;
    found.push(banner("stuck", "bad", title, (reasons[0] ?? "") + more, since, "stuck"));
  }
  if (status.held.length) {
    const [first] = status.held;
    const title = `${plural(status.held.length, "deleted pod")} cannot go: finalizers hold ${status.held.length === 1 ? "it" : "them"}`;
    const text = `${first.pod}: ${first.finalizers.join(", ")}${status.held.length > 1 ? " · …" : ""}`;
    found.push(banner("held", "warn", title, text, first.since));
  }
  if (status.on_hold) {
    found.push(banner("hold", "warn", "The fleet is on hold", "All executors retire and none is created, until it is resumed."));
  }
  if (status.stopping) found.push(banner("stopping", "note", "The driver is stopping", ""));
  if (!status.may_write && !status.failed) {
    const cause = Object.values(status.profiles).find((profile) => standsBy(status, profile))?.blocked;
    found.push(
      banner("standby", "note", "Standby: this driver watches, and creates and deletes nothing", cause ?? "Another driver holds the lease."),
    );
  }
  if (!status.started && !status.failed && !broken.length) {
    found.push(banner("starting", "note", "Starting", "The pods have not been listed yet."));
  }
  const worst = ["bad", "warn", "note"];
  return found.sort((a, b) => worst.indexOf(a.level) - worst.indexOf(b.level));
}

export class Overview {
  /** `show(state)` shows the executors of a state. */
  constructor(fleet, feed, show) {
    this.fleet = fleet;
    this.feed = feed;
    this.show = show;
  }

  render() {
    const { status } = this.fleet;
    this.#connection();
    if (!status) return;
    const now = this.fleet.now();
    put($("app-id"), status.app_id);
    put($("namespace"), status.namespace ? `in ${status.namespace}` : "");
    this.#facts(status, now);
    const stuck = [...this.fleet.executors.values()].filter((row) => row.state === "stuck");
    const found = banners(status, stuck, this.fleet.ended, now);
    this.#banners(found, now);
    this.#profiles(status, stuck, now);
    const profiles = Object.values(status.profiles);
    const sum = (field) => profiles.reduce((total, profile) => total + profile[field], 0);
    const alarm = !this.feed.live || found.some((each) => each.level === "bad") ? "▲ " : "";
    const title = `${alarm}${status.app_id} ${sum("running")}/${sum("target")} · executor-pods`;
    if (document.title !== title) document.title = title;
  }

  #connection() {
    const { live, heard, problem, retryAt } = this.feed;
    const node = $("connection");
    mark(node, "class", live ? "live" : "lost");
    put(node, live ? "live" : heard ? `stale since ${clock(this.fleet.until(), this.fleet.now())}` : "loading");
    mark(document.body, "class", live || !heard ? null : "stale");
    mark(node, "title", problem && retryAt ? `${problem} Next try in ${wholeAge((retryAt - Date.now()) / 1000)}.` : null);
  }

  #facts(status, now) {
    const facts = [
      status.may_write
        ? { key: "role", level: "good", text: status.lease_held ? "writes, holds the lease" : "writes, no lease" }
        : { key: "role", level: "note", text: "standby, writes nothing" },
    ];
    for (const [name, source] of Object.entries(status.sources)) {
      const silent = source.since_heard == null ? null : source.since_heard + Math.max(0, now - status.time);
      const level = source.error ? "bad" : silent == null ? "idle" : !source.synced || silent > STALE_SOURCE ? "warn" : "good";
      const heard = silent == null ? "nothing heard yet" : `heard ${wholeAge(silent)} ago`;
      const listed =
        source.since_full_sync == null
          ? "not listed yet"
          : `listed ${wholeAge(source.since_full_sync + Math.max(0, now - status.time))} ago`;
      facts.push({ key: `source ${name}`, level, text: `${name}: ${heard}`, more: `, ${listed}` });
    }
    keyed(
      $("facts"),
      facts,
      (fact) => fact.key,
      () => el("li", {}, el("span"), el("span", { class: "more" })),
      (node, fact) => {
        mark(node, "class", fact.level);
        put(node.firstChild, fact.text);
        put(node.lastChild, fact.more);
      },
    );
  }

  #banners(found, now) {
    const { live, heard, problem, retryAt } = this.feed;
    const all = [...found];
    if (!live && problem) {
      const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
      const since = this.fleet.lostAt;
      const title = heard ? "The connection to the driver is lost: what you see is old" : "The driver cannot be reached";
      all.unshift({ ...banner("stale", "bad", title, problem, since), retry: `next try in ${wait}s` });
    }
    keyed(
      $("banners"),
      all,
      (each) => each.key,
      (each) => {
        const node = el("div", { class: `banner ${each.level}` });
        node.parts = [el("strong"), el("span", { class: "text" }), el("span", { class: "since", "aria-live": "off" })];
        node.append(...node.parts);
        if (each.act) node.append(el("button", { type: "button", onclick: () => this.show(each.act) }, "Show them"));
        return node;
      },
      (node, each) => {
        mark(node, "class", `banner ${each.level}`);
        const [title, text, since] = node.parts;
        put(title, each.title);
        put(text, each.text);
        const ages = each.since == null ? [] : [`for ${wholeAge(now - each.since)}, since ${clock(each.since, now)}`];
        put(since, [...ages, ...(each.retry ? [each.retry] : [])].join(" · "));
      },
    );
  }

  #profiles(status, stuck, now) {
    keyed(
      $("profiles").tBodies[0],
      Object.entries(status.profiles),
      ([name]) => name,
      ([name]) => profileRow(name),
      (node, [name, profile]) => fill(node, profile, stuck.filter((row) => row.profile === name).length, now),
    );
  }
}

const COUNTS = ["target", "requested", "pending", "running", "registered", "retiring", "terminating"];
const LABELS = ["wanted", "requested", "pending", "running", "registered", "retiring", "terminating"];
const PARTS = ["running", "pending", "stuck", "requested", "missing"];

function profileRow(name) {
  const cell = (kind, ...children) => el("td", { role: "cell", class: kind }, ...children);
  const row = el("tr", { role: "row" });
  const parts = PARTS.map((part) => el("i", { class: `part ${part}` }));
  const share = el("span", { class: "share" });
  const counts = COUNTS.map((field, at) => cell(`n of-${field}`, el("b"), el("small", {}, LABELS[at])));
  const failures = cell("failures");
  const losses = cell("losses");
  row.append(
    el("th", { role: "rowheader", scope: "row" }, name),
    cell("bar", el("span", { class: "fleet-bar", "aria-hidden": "true" }, ...parts), share),
    ...counts,
    failures,
    losses,
  );
  row.parts = { parts, share, counts, failures, losses };
  return row;
}

function fill(row, profile, stuck, now) {
  const { parts, share, counts, failures, losses } = row.parts;
  const missing = Math.max(0, profile.target - profile.running - profile.pending - profile.requested);
  const waiting = Math.min(stuck, profile.pending); // the two are of slightly different moments
  const shares = { ...profile, missing, stuck: waiting, pending: profile.pending - waiting };
  for (const [at, part] of PARTS.entries()) parts[at].style.flexGrow = shares[part];
  put(share, `${profile.running.toLocaleString("en")} of ${profile.target.toLocaleString("en")}`);
  mark(row, "class", profile.blocked && profile.blocked_by !== "lease" ? "blocked" : profile.running < profile.target ? "short" : null);
  for (const [at, field] of COUNTS.entries()) {
    put(counts[at].firstChild, profile[field].toLocaleString("en"));
    counts[at].classList.toggle("none", profile[field] === 0);
  }
  const waits = profile.backoff_until > now ? `, next try in ${wholeAge(profile.backoff_until - now)}` : "";
  const memory = profile.more_memory ? ` · ${plural(profile.more_memory, "executor")} with more memory` : "";
  put(failures, (profile.start_failures ? plural(profile.start_failures, "failure") + waits : waits.slice(2) || "none") + memory);
  failures.classList.toggle("none", !profile.start_failures && !waits && !memory);
  const kinds = Object.entries(profile.losses).filter(([, n]) => n > 0);
  losses.classList.toggle("none", !kinds.length);
  keyed(
    losses,
    kinds.length ? kinds.sort(([, a], [, b]) => b - a) : [["none", 0]],
    ([kind]) => kind,
    ([kind, n]) => el("span", { class: n ? `loss ${lossClass(kind)}` : "" }),
    (node, [kind, n]) => put(node, n ? `${kind} ${n.toLocaleString("en")}` : "none"),
  );
}
