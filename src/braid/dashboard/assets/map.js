// The map: draws the overlay, moves brokers to their new places, and lets one go through them by keys.

import { bytes, byId, number, percent, shape, stillness } from "./dom.js";
import { placesOf } from "./layout.js";

const MOVE_MS = 700;
const FRESH_MS = 6000;
// Above so many brokers names are shown for one at a time.
const NAMES_MAX = 40;
const SMALL = 40;

export class OverlayMap {
  constructor(choose) {
    this.svg = byId("map");
    this.choose = choose;
    this.layers = {};
    this.view = shape("g", {});
    for (const name of ["candidates", "soft", "links", "goal", "way", "nodes"]) {
      this.layers[name] = shape("g", { "data-layer": name });
      this.view.append(this.layers[name]);
    }
    this.svg.append(this.view);
    this.nodes = new Map();
    this.at = new Map();
    this.lines = new Map();
    this.fresh = new Map();
    this.picture = null;
    this.root = null;
    this.selected = null;
    this.way = [];
    this.goal = null;
    this.zoom = { scale: 1, x: 0, y: 0 };
    this.shape = "";
    this.frame = 0;
    this.#watchPointer();
    byId("zoom-in").addEventListener("click", () => this.#zoomBy(1.3));
    byId("zoom-out").addEventListener("click", () => this.#zoomBy(1 / 1.3));
    byId("zoom-reset").addEventListener("click", () => {
      this.zoom = { scale: 1, x: 0, y: 0 };
      this.#applyZoom();
    });
    for (const id of ["show-soft", "show-candidates"]) byId(id).addEventListener("change", () => this.#draw());
    new ResizeObserver(() => this.#place(false)).observe(this.svg);
    this.svg.addEventListener("keydown", (event) => this.#key(event));
  }

  show(picture) {
    const first = this.picture === null;
    this.picture = picture;
    const form = JSON.stringify([picture.brokers.map((broker) => broker.id), picture.links.map((link) => [link.a, link.b])]);
    if (form !== this.shape) {
      if (!first) this.#noteFresh(picture);
      this.shape = form;
      this.#place(!first);
    }
    this.#draw();
  }

  select(name) {
    this.selected = name;
    this.#draw();
  }

  showWay(hops) {
    this.way = hops;
    this.#draw();
  }

  showGoal(links) {
    this.goal = links;
    this.#draw();
  }

  #noteFresh(picture) {
    const known = new Set(this.lines.keys());
    const now = performance.now();
    for (const link of picture.links) {
      const key = `${link.a}\n${link.b}`;
      if (!known.has(key)) this.fresh.set(key, now + FRESH_MS);
    }
  }

  // Places.

  #place(moving) {
    if (!this.picture) return;
    const box = this.svg.getBoundingClientRect();
    if (box.width < 10 || box.height < 10) return;
    this.size = { width: box.width, height: box.height };
    this.svg.setAttribute("viewBox", `${-box.width / 2} ${-box.height / 2} ${box.width} ${box.height}`);
    const room = this.picture.brokers.length > SMALL ? 44 : 90;
    const { places, root } = placesOf(
      this.picture.brokers, this.picture.links, Math.max(120, box.width - room), Math.max(120, box.height - 84), this.root,
    );
    this.root = root;
    this.goals = places;
    if (!moving || stillness.matches) {
      this.at = new Map(places);
      this.#draw();
      return;
    }
    const from = new Map();
    for (const [name, place] of places) from.set(name, this.at.get(name) || place);
    const began = performance.now();
    cancelAnimationFrame(this.frame);
    const step = (now) => {
      const share = Math.min(1, (now - began) / MOVE_MS);
      const eased = share < 0.5 ? 2 * share * share : 1 - Math.pow(-2 * share + 2, 2) / 2;
      for (const [name, place] of places) {
        const start = from.get(name);
        this.at.set(name, { x: start.x + (place.x - start.x) * eased, y: start.y + (place.y - start.y) * eased });
      }
      this.#draw();
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  // Drawing.

  #draw() {
    if (!this.picture || !this.size) return;
    const { brokers, links, soft, candidates } = this.picture;
    byId("map-empty").hidden = brokers.length > 0;
    this.view.setAttribute("class", soft.length > SMALL ? "many" : "");
    this.#drawLinks(links);
    this.#drawCurves("soft", byId("show-soft").checked ? soft : [], "softlink");
    this.#drawCurves("candidates", byId("show-candidates").checked ? candidates : [], "candidate");
    this.#drawGoal();
    this.#drawWay();
    this.#drawNodes(brokers);
  }

  #drawLinks(links) {
    const busiest = Math.max(2000, ...links.map((link) => link.rate || 0));
    const now = performance.now();
    const kept = new Set();
    for (const link of links) {
      const key = `${link.a}\n${link.b}`;
      kept.add(key);
      let line = this.lines.get(key);
      if (!line) {
        line = shape("line", {}, shape("title"));
        this.lines.set(key, line);
        this.layers.links.append(line);
      }
      this.#stretch(line, link.a, link.b);
      const until = this.fresh.get(key) || 0;
      if (until <= now) this.fresh.delete(key);
      line.setAttribute("class", `link${link.up ? "" : " down"}${until > now ? " fresh" : ""}`);
      line.setAttribute("stroke-width", (1.6 + 8 * Math.sqrt((link.rate || 0) / busiest)).toFixed(2));
      const title = `${link.a} – ${link.b}: ${link.up ? `${bytes(link.rate)}/s` : "down"}`;
      if (line.firstChild.textContent !== title) line.firstChild.textContent = title;
    }
    for (const [key, line] of this.lines) {
      if (!kept.has(key)) {
        line.remove();
        this.lines.delete(key);
      }
    }
  }

  #stretch(line, a, b) {
    const from = this.at.get(a);
    const to = this.at.get(b);
    if (!from || !to) {
      line.setAttribute("visibility", "hidden");
      return;
    }
    line.removeAttribute("visibility");
    line.setAttribute("x1", from.x.toFixed(1));
    line.setAttribute("y1", from.y.toFixed(1));
    line.setAttribute("x2", to.x.toFixed(1));
    line.setAttribute("y2", to.y.toFixed(1));
  }

  #drawCurves(layer, pairs, kind) {
    const group = this.layers[layer];
    const shown = pairs.filter((pair) => this.at.has(pair.from) && this.at.has(pair.to));
    while (group.childNodes.length > shown.length) group.lastChild.remove();
    while (group.childNodes.length < shown.length) group.append(shape("path", { class: kind }, shape("title")));
    const busiest = Math.max(2000, ...shown.map((pair) => pair.rate || 0));
    shown.forEach((pair, place) => {
      const path = group.childNodes[place];
      const from = this.at.get(pair.from);
      const to = this.at.get(pair.to);
      // Bent a little to one side, so that two directions are two curves.
      const bend = 0.16;
      const x = (from.x + to.x) / 2 + (to.y - from.y) * bend;
      const y = (from.y + to.y) / 2 - (to.x - from.x) * bend;
      path.setAttribute("d", `M${from.x.toFixed(1)} ${from.y.toFixed(1)}Q${x.toFixed(1)} ${y.toFixed(1)} ${to.x.toFixed(1)} ${to.y.toFixed(1)}`);
      if (kind === "softlink") path.setAttribute("stroke-width", (1.1 + 5 * Math.sqrt((pair.rate || 0) / busiest)).toFixed(2));
      const title = kind === "softlink" ? `soft link ${pair.from} → ${pair.to}: ${bytes(pair.rate)}/s` : `candidate ${pair.from} → ${pair.to}`;
      if (path.firstChild.textContent !== title) path.firstChild.textContent = title;
    });
  }

  #drawGoal() {
    const group = this.layers.goal;
    group.replaceChildren();
    const present = new Set(this.picture.links.map((link) => `${link.a}\n${link.b}`));
    for (const [a, b] of this.goal || []) {
      if (present.has(a < b ? `${a}\n${b}` : `${b}\n${a}`)) continue;
      const line = shape("line", { class: "goal" });
      this.#stretch(line, a, b);
      group.append(line);
    }
  }

  #drawWay() {
    const group = this.layers.way;
    group.replaceChildren();
    for (const hop of this.way) {
      if (hop.came_by === "client") continue;
      const line = shape("line", { class: "waylink" });
      this.#stretch(line, hop.came_from, hop.broker);
      group.append(line);
    }
  }

  #drawNodes(brokers) {
    const narrow = this.size.width < 500;
    const radius = brokers.length > 80 ? (narrow ? 5 : 7.5) : brokers.length > SMALL ? (narrow ? 7 : 10) : narrow ? 11 : 16;
    const onWay = new Set(this.way.map((hop) => hop.broker));
    const kept = new Set();
    const current = this.#tabStop(brokers);
    for (const broker of brokers) {
      kept.add(broker.id);
      let node = this.nodes.get(broker.id);
      if (!node) {
        node = shape(
          "g", { role: "button", "data-broker": broker.id }, shape("title"), shape("circle", { class: "ring" }),
          shape("circle", { class: "body" }), shape("path", { class: "cross" }), shape("text", { "text-anchor": "middle" }),
        );
        node.addEventListener("click", () => this.choose(broker.id));
        this.nodes.set(broker.id, node);
        this.layers.nodes.append(node);
      }
      const place = this.at.get(broker.id) || { x: 0, y: 0 };
      node.setAttribute("transform", `translate(${place.x.toFixed(1)} ${place.y.toFixed(1)})`);
      const classes = ["node", `load-${loadOf(broker)}`];
      if (brokers.length > NAMES_MAX) classes.push("small");
      if (broker.problem) classes.push("failed");
      else if (!broker.ready) classes.push("unready");
      if (broker.operation) classes.push("changing");
      if (broker.id === this.selected) classes.push("selected");
      if (onWay.has(broker.id)) classes.push("onway");
      node.setAttribute("class", classes.join(" "));
      node.setAttribute("tabindex", broker.id === current ? "0" : "-1");
      node.setAttribute("aria-pressed", String(broker.id === this.selected));
      node.setAttribute("aria-label", sentenceOf(broker, this.picture));
      const [title, ring, body, cross, text] = node.children;
      const sentence = node.getAttribute("aria-label");
      if (title.textContent !== sentence) title.textContent = sentence;
      ring.setAttribute("r", radius + 5);
      body.setAttribute("r", radius);
      const arm = radius * 0.45;
      cross.setAttribute("d", broker.problem ? `M${-arm} ${-arm}L${arm} ${arm}M${arm} ${-arm}L${-arm} ${arm}` : "");
      text.setAttribute("y", radius + 17);
      const name = broker.id.length > 18 ? `${broker.id.slice(0, 17)}…` : broker.id;
      if (text.textContent !== name) text.textContent = name;
    }
    for (const [name, node] of this.nodes) {
      if (!kept.has(name)) {
        node.remove();
        this.nodes.delete(name);
      }
    }
  }

  // Keys.

  #tabStop(brokers) {
    const focused = document.activeElement?.dataset?.broker;
    for (const name of [focused, this.selected]) {
      if (name && brokers.some((broker) => broker.id === name)) return name;
    }
    return brokers.length ? brokers[0].id : null;
  }

  #key(event) {
    const name = event.target.dataset?.broker;
    if (!name) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(name);
      return;
    }
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    const here = this.at.get(name);
    let best = null;
    for (const [other, place] of this.at) {
      if (other === name || !this.nodes.has(other)) continue;
      const dx = place.x - here.x;
      const dy = place.y - here.y;
      const along = dx * way[0] + dy * way[1];
      if (along <= 0) continue;
      const cost = Math.hypot(dx, dy) + 2 * Math.abs(dx * way[1] + dy * way[0]);
      if (!best || cost < best.cost) best = { other, cost };
    }
    if (!best) return;
    const node = this.nodes.get(best.other);
    node.setAttribute("tabindex", "0");
    node.focus();
    this.nodes.get(name).setAttribute("tabindex", "-1");
  }

  // Zoom.

  #applyZoom() {
    const { scale, x, y } = this.zoom;
    this.view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    // A finger scrolls the page as long as all of the map is there to be seen.
    this.svg.style.touchAction = scale > 1 ? "none" : "";
  }

  #zoomBy(factor) {
    this.zoom.scale = Math.min(8, Math.max(0.5, this.zoom.scale * factor));
    this.#applyZoom();
  }

  #watchPointer() {
    let last = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || (event.pointerType === "touch" && this.zoom.scale <= 1)) return;
      last = event;
    });
    window.addEventListener("pointermove", (event) => {
      if (!last) return;
      this.svg.classList.add("dragging");
      this.zoom.x += event.clientX - last.clientX;
      this.zoom.y += event.clientY - last.clientY;
      last = event;
      this.#applyZoom();
    });
    window.addEventListener("pointerup", () => {
      last = null;
      this.svg.classList.remove("dragging");
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.#zoomBy(event.deltaY < 0 ? 1.1 : 1 / 1.1);
    }, { passive: false });
  }
}

// Five steps, from idle to busy. Brokers that do not tell their share of time are judged by their messages.
export function loadOf(broker) {
  const share = broker.busy !== null && broker.busy !== undefined
    ? broker.busy
    : ((broker.received || 0) + (broker.forwarded || 0) + (broker.delivered || 0)) / 20000;
  return [0.02, 0.1, 0.3, 0.6].filter((bound) => share >= bound).length;
}

export function sentenceOf(broker, picture) {
  if (broker.problem) return `${broker.id}, does not answer`;
  const links = picture.links.filter((link) => link.a === broker.id || link.b === broker.id).length;
  const ready = broker.ready ? "" : ", not ready";
  const operation = broker.operation ? `, changing: ${broker.operation.kind}` : "";
  return `${broker.id}${ready}${operation}, ${links} link${links === 1 ? "" : "s"}, busy ${percent(broker.busy)}, ${number(broker.received)} messages a second`;
}
