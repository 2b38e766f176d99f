// The panels beside the map: history, brokers, subscriptions. `trial.js` and `plan.js` have the other two.

import { byId, bytes, clock, element, number, percent } from "./dom.js";
import { get } from "./stream.js";

const CHANGES_MAX = 300;
const MARKS = { failure: "!", repair: "✓", arrival: "+", departure: "−", move: "⇄", link: "⇄", soft: "~", strategy: "S", operation: "…", plan: "P" };

export function startTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const choose = (tab, focus) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      byId(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    tab.dispatchEvent(new Event("chosen"));
  };
  for (const [place, tab] of tabs.entries()) {
    tab.addEventListener("click", () => choose(tab, false));
    tab.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 };
      if (event.key in steps) {
        event.preventDefault();
        choose(tabs[(steps[event.key] + tabs.length) % tabs.length], true);
      }
    });
  }
}

export class History {
  constructor() {
    this.changes = [];
    byId("history-soft").addEventListener("change", () => this.#draw());
  }

  start(changes) {
    this.changes = changes;
    this.#draw();
  }

  add(change) {
    if (this.changes.some((known) => known.number === change.number)) return;
    this.changes.push(change);
    if (this.changes.length > CHANGES_MAX) this.changes.shift();
    this.#draw();
    if (["failure", "repair", "move", "plan"].includes(change.kind)) byId("announce").textContent = change.text;
  }

  #draw() {
    const soft = byId("history-soft").checked;
    const shown = this.changes.filter((change) => soft || change.kind !== "soft").reverse();
    byId("history").replaceChildren(
      ...shown.map((change) =>
        element(
          "li", { "data-kind": change.kind },
          element("span", { class: "mark", "aria-hidden": "true" }, MARKS[change.kind] || "•"),
          element("span", { class: "what" }, change.text),
          element("time", { datetime: new Date(change.at * 1000).toISOString() }, clock(change.at)),
        ),
      ),
    );
    byId("history-empty").hidden = shown.length > 0;
    byId("history-count").textContent = shown.length ? `${shown.length} changes` : "";
  }
}

export class BrokerTable {
  constructor(choose) {
    this.choose = choose;
  }

  show(picture) {
    if (byId("panel-brokers").hidden) return;
    const links = new Map();
    for (const link of picture.links) for (const end of [link.a, link.b]) links.set(end, (links.get(end) || 0) + 1);
    const soft = new Map();
    for (const link of picture.soft) soft.set(link.from, (soft.get(link.from) || 0) + 1);
    const focused = document.activeElement?.dataset?.row;
    const rows = [...picture.brokers].sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true })).map((broker) => {
      const name = element("button", { type: "button", "data-row": broker.id }, broker.id);
      name.addEventListener("click", () => this.choose(broker.id));
      const cells = broker.problem
        ? [element("td", { colspan: 7 }, "does not answer")]
        : [
            links.get(broker.id) || 0, soft.get(broker.id) || 0, number(broker.received), number(broker.delivered),
            percent(broker.busy), bytes(broker.queue), `${broker.clients}${broker.behind ? ` (${broker.behind} behind)` : ""}`,
          ].map((value) => element("td", {}, String(value)));
      return element("tr", {}, element("td", {}, name), ...cells);
    });
    byId("brokers").replaceChildren(...rows);
    if (focused) rows.map((row) => row.querySelector("button")).find((button) => button.dataset.row === focused)?.focus();
  }
}

// What traces say, of the newest complete period; nothing without `braid pipeline live`.
function measuredRows(measured, name) {
  const broker = measured && measured.brokers[name];
  if (!broker) return [];
  const wanted = broker.deliveries + broker.local_deliveries;
  return [
    [`Within ${number(measured.period_s)} s`, `${number(broker.sent)} arrived, ${number(wanted)} wanted, ${number(broker.dropped)} dropped`],
    ["Yield", broker.yield === null ? "–" : percent(broker.yield)],
    ["Links crossed, mean", broker.mean_hops === null ? "–" : number(broker.mean_hops)],
    ["Delay, mean", broker.mean_delay_us === null ? "–" : `${number(broker.mean_delay_us / 1000)} ms`],
    ["Cost", number(broker.processing_cost)],
    ...measured.links
      .filter((link) => link.source === name)
      .map((link) => [`To ${link.target}${link.link === "soft" ? " (soft)" : ""}`, `${number(link.publications)} publications, ${bytes(link.message_bytes)}, cost ${number(link.communication_cost)}`]),
  ];
}

export function showDetail(picture, name) {
  const detail = byId("detail");
  const broker = name === null ? null : picture.brokers.find((each) => each.id === name);
  detail.hidden = !broker;
  if (!broker) return;
  const links = picture.links.filter((link) => link.a === name || link.b === name);
  const soft = picture.soft.filter((link) => link.from === name).map((link) => link.to);
  const rows = broker.problem
    ? [["Problem", broker.problem], ["Address", broker.address]]
    : [
        ["Neighbours", links.map((link) => `${link.a === name ? link.b : link.a}${link.up ? "" : " (down)"}`).join(", ") || "none"],
        ["Soft links to", soft.join(", ") || "none"],
        ...(broker.gateway ? [["Gateway", "to a network of peers"]] : []),
        ["Strategy", `${broker.strategy}, sees ${broker.delta} link${broker.delta === 1 ? "" : "s"} far`],
        ["Messages in / out", `${number(broker.received)} / ${number(broker.forwarded)} a second`],
        ["Delivered", `${number(broker.delivered)} a second`],
        ["Busy", percent(broker.busy)],
        ["Queued", bytes(broker.queue)],
        ["Clients", `${broker.clients}${broker.behind ? `, ${broker.behind} behind` : ""}`],
        ["Subscriptions known", number(broker.subscriptions)],
        ["Latency to here", picture.latencies[name] === undefined ? "–" : `${number(picture.latencies[name])} ms`],
        ...(broker.withheld.length ? [["Gives no credit", broker.withheld.join(", ")]] : []),
        ...(broker.operation ? [["Operation", `${broker.operation.kind}: ${broker.operation.path.join(", ")} (${broker.operation.stage})`]] : []),
        ...measuredRows(picture.measured, name),
        ["Address", broker.address],
      ];
  detail.replaceChildren(
    element("h3", {}, broker.id, element("span", { class: "muted" }, broker.problem ? "does not answer" : broker.ready ? "ready" : "not ready")),
    element("dl", {}, ...rows.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, String(value))))),
  );
}

// Subscriptions.

function branch(node) {
  const owners = node.owners.map((owner) => `${owner.client} at ${owner.broker}${owner.durable ? " (durable)" : ""}`).join(", ");
  const more = node.count > node.owners.length ? ` and ${node.count - node.owners.length} more` : "";
  const item = element(
    "li", {},
    element("div", { class: "entry" }, element("code", {}, node.filter), element("span", { class: "count", title: `${node.count} subscriptions` }, String(node.count))),
    element("div", { class: "owners" }, owners + more),
  );
  if (node.below.length) item.append(element("ul", { "aria-label": `covered by ${node.filter}` }, ...node.below.map(branch)));
  return item;
}

export function startSubscriptions(failed) {
  const load = async () => {
    const note = byId("subscriptions-note");
    note.textContent = "asking the brokers…";
    try {
      const found = await get(`/api/subscriptions?search=${encodeURIComponent(byId("search").value)}`);
      const cut = found.shown < found.found ? `, ${found.shown} are shown` : "";
      note.textContent = found.found ? `${found.found} subscriptions${cut}. A filter stands below one that covers it.` : "No subscription fits.";
      byId("subscriptions").replaceChildren(element("ul", { "aria-label": "Filters, the widest first" }, ...found.trees.map(branch)));
    } catch (error) {
      note.textContent = failed(error);
    }
  };
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  byId("tab-subscriptions").addEventListener("chosen", load);
}
