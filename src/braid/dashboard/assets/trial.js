// Try it: a filter judged by the real parser as it is typed, what matches it now, and the way of a publication.

import { byId, element, number } from "./dom.js";
import { listen, post } from "./stream.js";

const PAUSE_MS = 150;
const MATCHES_MAX = 60;

export class Trial {
  constructor(failed, showWay) {
    this.failed = failed;
    this.showWay = showWay;
    this.watching = null;
    this.count = 0;
    this.checks = 0;
    byId("filter").addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#check(), PAUSE_MS);
    });
    byId("watch-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.watching) this.#stop("");
      else this.#watch();
    });
    byId("publish-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#publish();
    });
    byId("tab-try").addEventListener("chosen", () => this.#check());
  }

  brokers(names) {
    const select = byId("publish-at");
    const known = [...select.options].map((option) => option.value);
    if (JSON.stringify(known) === JSON.stringify(names)) return;
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(chosen)) select.value = chosen;
  }

  async #check() {
    const answer = byId("filter-answer");
    const text = byId("filter").value;
    this.checks += 1;
    const mine = this.checks;
    let found;
    try {
      found = await post("/api/filter", { filter: text });
    } catch (error) {
      found = { ok: false, message: this.failed(error) };
    }
    if (mine !== this.checks) return false;
    byId("filter").setAttribute("aria-invalid", String(!found.ok));
    answer.className = `answer ${found.ok ? "good" : "bad"}`;
    if (found.ok) {
      answer.textContent = found.plain && found.plain !== text.trim() ? `means ${found.plain}` : "a filter";
      return true;
    }
    answer.replaceChildren(found.line ? `line ${found.line}, column ${found.column}: ${found.message}` : found.message);
    if (found.line) {
      const line = text.split("\n")[found.line - 1] || "";
      const from = Math.max(0, found.column - 31);
      answer.append(element("pre", { "aria-hidden": "true" }, `${line.slice(from, from + 48)}\n${" ".repeat(found.column - 1 - from)}^`));
      if (found.hint) answer.append(` ${found.hint}`);
    }
    return false;
  }

  async #watch() {
    if (!(await this.#check())) return;
    const stop = new AbortController();
    this.watching = stop;
    this.count = 0;
    byId("matches").replaceChildren();
    byId("watch").textContent = "Stop";
    byId("match-count").textContent = "subscribing…";
    try {
      await listen(`/api/matches?filter=${encodeURIComponent(byId("filter").value)}`, (kind, content) => this.#heard(kind, content), stop.signal);
      this.#stop("the stream has ended");
    } catch (error) {
      if (!stop.signal.aborted) this.#stop(this.failed(error));
    }
  }

  #heard(kind, content) {
    if (kind === "ended") {
      this.#stop(content.reason);
      return;
    }
    this.count += content.publications.length + content.more;
    const missing = content.missing && content.missing.length ? `, without what is behind ${content.missing.join(", ")}` : "";
    byId("match-count").textContent = `${number(this.count)} so far${missing}`;
    const list = byId("matches");
    for (const publication of content.publications) {
      list.prepend(element("li", {}, element("code", {}, JSON.stringify(publication.attributes))));
    }
    while (list.childElementCount > MATCHES_MAX) list.lastElementChild.remove();
  }

  #stop(reason) {
    this.watching?.abort();
    this.watching = null;
    byId("watch").textContent = "Show what matches";
    if (reason) byId("match-count").textContent = reason;
  }

  async #publish() {
    const way = byId("way");
    let attributes;
    try {
      attributes = JSON.parse(byId("attributes").value);
    } catch (error) {
      way.replaceChildren(element("p", { class: "problem" }, `This is not JSON: ${error.message}`));
      return;
    }
    way.textContent = "publishing…";
    try {
      const found = await post("/api/publish", { attributes, broker: byId("publish-at").value });
      this.showWay(found.hops);
      way.replaceChildren(...wayOf(found));
    } catch (error) {
      this.showWay([]);
      way.replaceChildren(element("p", { class: "problem" }, this.failed(error)));
    }
  }
}

function wayOf(found) {
  const delivered = `${found.subscribers} subscriber${found.subscribers === 1 ? "" : "s"}`;
  const settled = found.settled ? "settled" : `not settled yet${found.problem ? `: ${found.problem}` : ""}`;
  const links = Math.max(0, found.hops.length - 1);
  const items = found.hops.map((hop) => {
    const came = hop.came_by === "client" ? "entered the network" : `came ${hop.came_by === "soft" ? "over a soft link " : ""}from ${hop.came_from}`;
    const clients = hop.went_to.filter((to) => to.kind === "client").map((to) => to.name);
    const given = clients.length ? `, given to ${clients.slice(0, 5).join(", ")}${clients.length > 5 ? ` and ${clients.length - 5} more` : ""}` : "";
    const item = element("li", {}, element("strong", {}, hop.broker), ` ${came}${given} `, element("span", { class: "ms" }, `+${number(hop.after_ms)} ms`));
    item.style.setProperty("--depth", hop.depth);
    return item;
  });
  const silent = found.silent.length ? [element("p", { class: "muted" }, `No answer from ${found.silent.join(", ")}.`)] : [];
  return [
    element("p", {}, `To ${delivered} over ${links} link${links === 1 ? "" : "s"}, ${settled}.`),
    element("ol", { "aria-label": "The way, hop by hop" }, ...items),
    ...silent,
  ];
}
