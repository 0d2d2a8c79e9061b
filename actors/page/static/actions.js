// What may be done by whoever has the driver's token. It is kept until the page is closed, and sent in a header only.

import { el, put } from "./dom.js";
import { sentence } from "./feed.js";

const dialog = document.getElementById("action");
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
let token = "";

/** Ask whether to act, for the token and for what else the action needs; each of `fields` is a label and an input. */
function offer(title, action, fields, bodyOf) {
  const key = el("input", { type: "password", autocomplete: "off", required: true, value: token });
  const said = el("p", { role: "alert", class: "refused" });
  const go = el("button", { type: "submit" }, title);
  const label = ([name, input]) => el("label", {}, el("span", {}, name), input);
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await send(action, bodyOf(), key.value);
      token = key.value;
      dialog.close();
    } catch (error) {
      put(said, error instanceof TypeError ? "The driver cannot be reached." : error.message);
    }
    go.disabled = false;
  };
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const parts = [...fields, ["Token of the driver", key]].map(label);
  dialog.replaceChildren(el("form", { onsubmit: submit }, el("h2", { id: "action-title" }, title), ...parts, said, el("p", { class: "acts" }, go, " ", cancel)));
  dialog.showModal();
}

async function send(action, body, key) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const answer = await fetch(`api/v1/${action}`, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
  if (!answer.ok) throw new Error(await sentence(answer));
}

const button = (text, onclick) => el("button", { type: "button", onclick }, text);

/** Return the buttons for one executor. `before` is called before an action is offered. */
export function buttonsOf(id, before) {
  const act = (title, action) =>
    button(`${title}…`, () => {
      before();
      offer(`${title} executor ${id}`, action, [], () => ({ ids: [id] }));
    });
  return el("p", { class: "acts" }, act("Kill", "kill"), " ", act("Retire", "retire"));
}

/** Show the buttons for the whole fleet in `parent`, if the driver takes actions. */
export function showFleetButtons(parent, fleet) {
  const scale = button("Scale…", () => {
    const targets = Object.entries(fleet.status.profiles).map(([name, { target }]) => [name, el("input", { type: "number", min: 0, required: true, value: target })]);
    offer("Scale the fleet", "scale", targets, () => ({ targets: Object.fromEntries(targets.map(([name, input]) => [name, input.valueAsNumber])) }));
  });
  const hold = button("", () => {
    const goOn = fleet.status.on_hold;
    offer(goOn ? "Resume the fleet" : "Hold the fleet: retire all executors", goOn ? "resume" : "hold", [], () => ({}));
  });
  parent.replaceChildren(scale, " ", hold);
  return () => {
    parent.hidden = !fleet.status?.actions;
    put(hold, fleet.status?.on_hold ? "Resume…" : "Hold…");
  };
}
