// Puts the page together: one stream of pictures feeds the map, the tiles and the panels.

import { byId, stillness } from "./dom.js";
import { OverlayMap } from "./map.js";
import { BrokerTable, History, showDetail, startSubscriptions, startTabs } from "./panels.js";
import { PlanPanel } from "./plan.js";
import { keepToken, listen, token } from "./stream.js";
import { Tiles } from "./tiles.js";
import { Trial } from "./trial.js";

const PAUSE_MS = 1000;
const PAUSE_MS_MAX = 10000;
const THEME = "braid-theme";

let picture = null;
let selected = null;
let restart = () => {};

function failed(error) {
  if (error.status === 401) askForToken(error.message);
  return error.message;
}

function choose(name) {
  selected = selected === name ? null : name;
  map.select(selected);
  if (picture) showDetail(picture, selected);
}

const map = new OverlayMap(choose);
const tiles = new Tiles();
const history = new History();
const table = new BrokerTable(choose);
const trial = new Trial(failed, (hops) => map.showWay(hops));
const plans = new PlanPanel(failed, (links) => map.showGoal(links));
startTabs();
startSubscriptions(failed);
byId("tab-brokers").addEventListener("chosen", () => picture && table.show(picture));

function show(next) {
  // Of a network that does not answer any more the last picture stays, and is seen to be an old one.
  const lost = Boolean(next.problem && picture && picture.brokers.length);
  if (lost) next = { ...picture, number: next.number, problem: next.problem, point: next.point, plan: next.plan };
  byId("map").classList.toggle("old", lost);
  byId("map-empty").textContent = next.problem ? "No broker answers." : "Waiting for the first picture of the network…";
  picture = next;
  map.show(next);
  tiles.add(next.point);
  table.show(next);
  trial.brokers(next.brokers.filter((broker) => !broker.problem).map((broker) => broker.id).sort());
  plans.show(next);
  plans.state(next.plan);
  showDetail(next, selected);
  status();
  document.body.dataset.picture = next.number;
}

function status(problem = "") {
  const line = byId("status");
  let state = "good";
  let text;
  if (problem) {
    state = "bad";
    text = problem;
  } else if (!picture) {
    state = "warn";
    text = "connecting";
  } else if (picture.problem) {
    state = "bad";
    text = picture.brokers.length
      ? `no broker answers any more (${picture.problem}); below is what was seen last`
      : `no broker answers (${picture.problem})`;
  } else {
    const silent = picture.brokers.filter((broker) => broker.problem).length;
    const down = picture.links.filter((link) => !link.up).length;
    const links = picture.links.length;
    text = `${picture.brokers.length} brokers, ${links} links, ${picture.soft.length} soft links, ${picture.totals.clients} clients`;
    if (silent || down) {
      state = "bad";
      text = `${silent ? `${silent} of ${picture.brokers.length} brokers silent` : `${picture.brokers.length} brokers`}, ${down} of ${links} links down`;
    } else if (picture.left_out) {
      state = "warn";
      text += `; ${picture.left_out} more brokers are not shown`;
    }
  }
  line.dataset.state = state;
  if (byId("status-text").textContent !== text) byId("status-text").textContent = text;
}

async function watch() {
  let pause = PAUSE_MS;
  for (;;) {
    const stop = new AbortController();
    let again = new Promise((resolve) => {
      restart = () => {
        stop.abort();
        resolve();
      };
    });
    try {
      await listen("/api/stream", (kind, content) => {
        pause = PAUSE_MS;
        if (kind === "hello") {
          tiles.start(content.points);
          history.start(content.changes);
          plans.state(content.plan);
        } else if (kind === "picture") show(content);
        else if (kind === "change") history.add(content);
        else if (kind === "plan") plans.state(content);
      }, stop.signal);
      status("the dashboard has ended the stream; trying again");
    } catch (error) {
      if (!stop.signal.aborted) status(error.status ? error.message : "the dashboard does not answer; trying again");
      if (error.status === 401) {
        askForToken(error.message);
        await again;
        continue;
      }
    }
    await Promise.race([again, new Promise((resolve) => setTimeout(resolve, pause))]);
    pause = Math.min(PAUSE_MS_MAX, 2 * pause);
  }
}

// Who looks.

function askForToken(reason) {
  const dialog = byId("token-dialog");
  if (dialog.open) return;
  if (reason) byId("token-reason").textContent = `${reason}. It stays in this tab.`;
  byId("token").value = "";
  dialog.showModal();
}

byId("sign-in").addEventListener("click", () => askForToken(""));
byId("token-dialog").addEventListener("close", () => {
  const answer = byId("token-dialog").returnValue;
  if (answer === "use") keepToken(byId("token").value.trim());
  if (answer === "forget") keepToken("");
  byId("token").value = "";
  byId("sign-in").textContent = token() ? "Token ✓" : "Token";
  if (answer === "use" || answer === "forget") restart();
});
byId("sign-in").textContent = token() ? "Token ✓" : "Token";

// Light and dark.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const kept = localStorage.getItem(THEME);
if (kept) document.documentElement.dataset.theme = kept;
byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem(THEME, next);
});

stillness.addEventListener("change", () => picture && map.show(picture));
status();
watch();
