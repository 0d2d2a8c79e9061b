// Puts the page together: one feed, one fleet, views that draw once in an animation frame.

import { showFleetButtons } from "./actions.js";
import { Charts } from "./charts.js";
import { showDetails } from "./details.js";
import { Feed } from "./feed.js";
import { Fleet } from "./fleet.js";
import { Overview } from "./overview.js";
import { Rows } from "./rows.js";
import { Timeline } from "./timeline.js";

const fleet = new Fleet();
const feed = new Feed(fleet, () => draw());
document.getElementById("app").hidden = false;

const open = (id) => showDetails(fleet, id);
const rows = new Rows(fleet, open);
const overview = new Overview(fleet, feed, (state) => rows.show(state));
const timeline = new Timeline(fleet, { open, moved: () => draw({ timeline: true }) });
const charts = new Charts(fleet, timeline);
const renderButtons = showFleetButtons(document.getElementById("acts"), fleet);

let due = null; // what the next animation frame draws
let paused = false;

/** Draw all, or, as somebody moves in time, only the timeline, in the next animation frame, with what comes before. */
function draw(only = { all: true }) {
  if (due === null) requestAnimationFrame(frame);
  due = { ...due, ...only };
}

function frame() {
  const { all, timeline: moved } = due;
  due = null;
  if (all) {
    overview.render();
    renderButtons();
  }
  if (moved || !paused) {
    timeline.render();
    charts.render();
  }
  if (all && !paused) rows.render();
}

const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Go on" : "Pause";
  document.body.classList.toggle("paused", paused);
  draw();
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  timeline.colours();
  charts.make();
  draw({ all: true, timeline: true });
});

setInterval(() => draw(), 1000); // ages
feed.run();
