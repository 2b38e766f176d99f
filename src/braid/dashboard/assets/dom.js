// Makes elements. Text only ever becomes text: names of brokers and clients are chosen by others.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const FINE = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return (size >= 100 ? WHOLE : size >= 10 ? TENTHS : FINE).format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = value;
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (size < 1000 || unit === "GB") return `${unit === "B" ? WHOLE.format(size) : number(size)} ${unit}`;
    size /= 1000;
  }
  return "";
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${number(100 * share)} %`);

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");
