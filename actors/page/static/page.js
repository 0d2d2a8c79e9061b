// Puts the page together: one feed, one fleet, views that draw once in an animation frame.

import { Charts } from "./charts.js";
import { showDetails } from "./details.js";
import { Feed } from "./feed.js";
import { Fleet } from "./fleet.js";
import { Overview } from "./overview.js";
import { Rows } from "./rows.js";
import { Timeline } from "./timeline.js";

const fleet = new Fleet();
const feed = new Feed(fleet, draw);
document.getElementById("app").hidden = false;

const open = (id) => showDetails(fleet, id);
const rows = new Rows(fleet, open);
const overview = new Overview(fleet, feed, (state) => rows.show(state));
const timeline = new Timeline(fleet, { open, moved: () => draw(true) });
const charts = new Charts(fleet, timeline);

let due = false;
let byHand = false;
let paused = false;

/** Draw in the next animation frame; what comes before is drawn with it. */
function draw(asked = false) {
  byHand ||= asked;
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    overview.render();
    if (!paused || byHand) {
      timeline.render();
      charts.render();
      rows.render();
    }
    byHand = false;
  });
}

const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Go on" : "Pause";
  document.body.classList.toggle("paused", paused);
  draw(true);
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  timeline.colours();
  charts.make();
  draw(true);
});

setInterval(() => draw(), 1000); // ages
feed.run();
