// Tiles with the latest number and ten minutes of it.

import { byId, bytes, clock, element, number, percent, shape } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 44;
const POINTS_MAX = 600;
// So many times what 19 of 20 values are below.
const SPIKE = 4;

const TILES = [
  { key: "published", name: "Published", unit: "/s", text: number },
  { key: "delivered", name: "Delivered", unit: "/s", text: number },
  { key: "messages_per_delivery", name: "Messages per delivery", unit: "", text: number },
  { key: "latency_ms", name: "Latency, median", unit: " ms", text: number },
  { key: "queue", name: "Waiting in queues", unit: "", text: bytes },
  { key: "busiest", name: "Busiest broker", unit: "", text: percent },
];

// How high a curve goes: to its highest value, unless that is a rare spike, which is cut so that the rest is seen.
function heightOf(values) {
  const sorted = [...values].sort((left, right) => left - right);
  const highest = sorted[sorted.length - 1] || 1e-9;
  const usual = sorted[Math.floor(sorted.length * 0.95)] || highest;
  return Math.min(highest, SPIKE * usual);
}

export class Tiles {
  constructor() {
    this.points = [];
    this.tiles = TILES.map((tile) => this.#make(tile));
  }

  start(points) {
    this.points = points.slice(-POINTS_MAX);
    this.#draw();
  }

  add(point) {
    const last = this.points[this.points.length - 1];
    if (last && last.at >= point.at) return;
    this.points.push(point);
    if (this.points.length > POINTS_MAX) this.points.shift();
    this.#draw();
  }

  #make(tile) {
    const value = element("div", { class: "value" }, "–");
    const area = shape("path", { class: "area" });
    const curve = shape("path", { class: "curve" });
    const cross = shape("line", { class: "cross", y1: 0, y2: HEIGHT, visibility: "hidden" });
    const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, area, curve, cross);
    const name = element("div", { class: "name" }, tile.name);
    byId("tiles").append(element("div", { class: "tile" }, name, value, chart));
    const made = { ...tile, value, area, curve, cross, chart, label: name };
    chart.addEventListener("pointermove", (event) => this.#inspect(made, event));
    chart.addEventListener("pointerleave", () => {
      made.cross.setAttribute("visibility", "hidden");
      made.label.textContent = made.name;
      this.#show(made, this.#latest(made));
    });
    return made;
  }

  #latest(tile) {
    const last = this.points[this.points.length - 1];
    return last ? last[tile.key] : null;
  }

  #show(tile, value) {
    tile.value.replaceChildren(tile.text(value), ...(tile.unit && value !== null && value !== undefined ? [element("small", {}, tile.unit)] : []));
  }

  #span() {
    const end = this.points.length ? this.points[this.points.length - 1].at : 0;
    const begin = this.points.length ? Math.min(this.points[0].at, end - 30) : 0;
    return { begin, length: Math.max(1, end - begin) };
  }

  #inspect(tile, event) {
    if (!this.points.length) return;
    const box = tile.chart.getBoundingClientRect();
    const { begin, length } = this.#span();
    const at = begin + (length * (event.clientX - box.left)) / box.width;
    const nearest = this.points.reduce((best, point) => (Math.abs(point.at - at) < Math.abs(best.at - at) ? point : best));
    const x = (WIDTH * (nearest.at - begin)) / length;
    tile.cross.setAttribute("x1", x);
    tile.cross.setAttribute("x2", x);
    tile.cross.setAttribute("visibility", "visible");
    tile.label.textContent = `${tile.name}, ${clock(nearest.at)}`;
    this.#show(tile, nearest[tile.key]);
  }

  #draw() {
    const { begin, length } = this.#span();
    for (const tile of this.tiles) {
      const known = this.points.filter((point) => point[tile.key] !== null && point[tile.key] !== undefined);
      const top = heightOf(known.map((point) => point[tile.key])) * 1.1;
      const spots = known.map((point) => {
        const x = (WIDTH * (point.at - begin)) / length;
        return `${x.toFixed(1)} ${(HEIGHT - 2 - Math.min(1, point[tile.key] / top) * (HEIGHT - 4)).toFixed(1)}`;
      });
      tile.curve.setAttribute("d", spots.length > 1 ? `M${spots.join("L")}` : "");
      const ends = known.length ? [known[0], known[known.length - 1]].map((point) => ((WIDTH * (point.at - begin)) / length).toFixed(1)) : [];
      tile.area.setAttribute("d", spots.length > 1 ? `M${ends[0]} ${HEIGHT}L${spots.join("L")}L${ends[1]} ${HEIGHT}Z` : "");
      if (tile.cross.getAttribute("visibility") === "hidden") this.#show(tile, this.#latest(tile));
      const peak = known.length ? tile.text(Math.max(...known.map((point) => point[tile.key]))) : "–";
      tile.chart.setAttribute("aria-label", `${tile.name} over time: now ${tile.text(this.#latest(tile))}, highest ${peak}`);
    }
  }
}
