// Loads the fleet and keeps it up to date; says since when it cannot. Addresses are relative: the page may be served
// under any path.

const SILENCE = 35; // seconds without a byte; a heartbeat comes every 15: the connection is dead
const FIRST_RETRY = 1; // seconds
const LAST_RETRY = 30;

export class Feed {
  /** `changed()` is called after each change of the fleet or of the connection. */
  constructor(fleet, changed) {
    this.fleet = fleet;
    this.changed = changed;
    this.live = false;
    this.heard = null; // our clock, ms
    this.problem = null; // a sentence, while not live
    this.retryAt = null; // our clock, ms
  }

  async run() {
    let loaded = false;
    let failures = 0;
    for (;;) {
      try {
        if (!loaded) await this.#load();
        loaded = true;
        loaded = await this.#follow(() => (failures = 0));
      } catch (error) {
        failures += 1;
        const wait = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
        this.live = false;
        this.fleet.lostAt = this.heard && this.heard / 1000 + this.fleet.ahead;
        this.problem = String(error.message ?? error);
        this.retryAt = Date.now() + wait * 1000;
        this.changed();
        await this.#pause(wait);
      }
    }
  }

  /** Wait; a network that comes back, or a page that is looked at again, ends the wait. */
  #pause(seconds) {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        window.removeEventListener("online", done);
        document.removeEventListener("visibilitychange", seen);
        resolve();
      };
      const seen = () => document.hidden || done();
      const timer = setTimeout(done, seconds * 1000);
      window.addEventListener("online", done);
      document.addEventListener("visibilitychange", seen);
    });
  }

  async #load() {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(new Error("The driver does not answer.")), SILENCE * 1000);
    const get = async (what) => {
      const answer = await fetch(`api/v1/${what}`, { signal: abort.signal, cache: "no-store" });
      if (!answer.ok) throw new Error(await sentence(answer));
      return answer.json();
    };
    try {
      const answers = await Promise.all(["status", "executors", "events", "timeline"].map(get));
      this.fleet.load(...answers);
      this.#alive();
    } catch (error) {
      throw readable(error, abort.signal);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Take changes until the stream ends, which raises, or the server has us load anew: false. */
  async #follow(begun) {
    const abort = new AbortController();
    let timer;
    const silent = () => abort.abort(new Error(`Nothing came from the driver for ${SILENCE} seconds.`));
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(silent, SILENCE * 1000);
    };
    try {
      alive();
      const answer = await fetch(`api/v1/stream?since=${this.fleet.seq}`, {
        signal: abort.signal,
        cache: "no-store",
        headers: { Accept: "text/event-stream" },
      });
      if (!answer.ok) throw new Error(await sentence(answer));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new Error("The driver closed the connection.");
        alive();
        begun();
        this.#alive();
        const parts = (rest + value.replaceAll("\r", "")).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const { event, data } = parse(part);
          if (event === "reset") return false;
          if (event === "change") this.fleet.apply(JSON.parse(data));
          if (event === "status") this.fleet.setStatus(JSON.parse(data));
          this.changed();
        }
      }
    } catch (error) {
      throw readable(error, abort.signal);
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  #alive() {
    this.heard = Date.now();
    if (this.live) return;
    this.live = true;
    this.fleet.lostAt = this.problem = this.retryAt = null;
    this.changed();
  }
}

/** Read one event of a stream (text/event-stream); a comment has no event. */
function parse(part) {
  let event = null;
  const data = [];
  for (const line of part.split("\n")) {
    const [, field, value] = line.match(/^([a-z]+): ?(.*)$/) ?? [];
    if (field === "event") event = value;
    if (field === "data") data.push(value);
  }
  return { event, data: data.join("\n") };
}

/** Return what the driver says of a request that it refuses. */
export async function sentence(answer) {
  const body = await answer.json().catch(() => ({}));
  return typeof body.error === "string" ? body.error : `The driver answered ${answer.status}.`;
}

function readable(error, signal) {
  if (signal.aborted && signal.reason instanceof Error) return signal.reason;
  return error instanceof TypeError ? new Error("The driver cannot be reached.") : error;
}
