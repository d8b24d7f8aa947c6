// Small line charts in SVG: lines over time, a legend, and a figure for each line at the pointer or at the arrow keys' place.

import { element, language } from "./base.js";

const HEIGHT = 180;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 8;

function svg(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.textContent = text;
  return made;
}

// A round number of at most `most` steps up to `top`.
function step(top, most) {
  const rough = top / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
}

const clock = (at, long) => new Intl.DateTimeFormat(language, long ? { month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(new Date(at * 1000));

// `lines`: [{name, values}], one value (or null) for each of `times` (seconds since the epoch); `band`: [from, to] is shaded.
export class LineChart {
  constructor(place, { label, shown, isLastRunning = false }) {
    this.shown = shown;
    this.rest = isLastRunning ? 2 : 1; // the legend's figures are of the last whole step
    this.left = LEFT;
    this.svg = svg("svg", { role: "img", "aria-label": label, tabindex: "0", height: HEIGHT });
    this.width = 600;
    this.legend = element("p", { class: "legend", "aria-live": "off" });
    place.replaceChildren(this.svg, this.legend);
    this.times = [];
    this.lines = [];
    this.index = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.svg.addEventListener("blur", () => this.choose(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw(this.times, this.lines, this.band)).observe(place);
  }

  draw(times, lines, band = null) {
    this.times = times;
    this.lines = lines;
    this.band = band;
    this.width = Math.max(200, this.svg.clientWidth);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const parts = [];
    const highest = Math.max(0, ...lines.flatMap((line) => line.values.filter((value) => value !== null)));
    const size = step(highest || 1, 4);
    this.top = Math.max(size, Math.ceil(highest / size) * size);
    const levels = [];
    for (let level = 0; level <= this.top + size / 2; level += size) levels.push(level);
    this.left = Math.max(LEFT, 12 + 7 * Math.max(...levels.map((level) => this.shown(level).length))); // about 7 px a character
    for (const level of levels) {
      const y = this.y(level);
      parts.push(svg("line", { x1: this.left, x2: this.width - RIGHT, y1: y, y2: y, class: "grid" }));
      parts.push(svg("text", { x: this.left - 6, y: y + 4, class: "tick end" }, this.shown(level)));
    }
    const last = times.length - 1;
    if (last > 0 && band) {
      const [from, to] = band.map((at) => this.place(Math.min(times[last], Math.max(times[0], at))));
      parts.unshift(svg("rect", { x: from, width: Math.max(1, to - from), y: TOP, height: HEIGHT - BOTTOM - TOP, class: "band" }));
    }
    if (last > 0) {
      const long = times[last] - times[0] > 7200;
      parts.push(svg("text", { x: this.left, y: HEIGHT - 4, class: "tick" }, clock(times[0], long)));
      parts.push(svg("text", { x: this.width - RIGHT, y: HEIGHT - 4, class: "tick end" }, clock(times[last], long)));
    }
    lines.forEach((line, number) => {
      let path = "";
      let drawing = false;
      line.values.forEach((value, index) => {
        if (value === null || value === undefined) {
          drawing = false;
          return;
        }
        path += `${drawing ? "L" : "M"}${this.x(index).toFixed(1)} ${this.y(value).toFixed(1)}${drawing ? "" : "h.01"}`; // one alone is a dot
        drawing = true;
      });
      parts.push(svg("path", { d: path, class: `line line-${number % 8}` }));
    });
    this.pointer = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "pointer", visibility: "hidden" });
    parts.push(this.pointer);
    this.svg.replaceChildren(...parts);
    this.choose(this.index !== null && this.index <= last ? this.index : null);
  }

  x(index) {
    return this.place(this.times[index]);
  }

  place(at) {
    const first = this.times[0];
    const span = this.times[this.times.length - 1] - first || 1;
    return this.left + ((at - first) / span) * (this.width - this.left - RIGHT);
  }

  y(value) {
    return HEIGHT - BOTTOM - (value / this.top) * (HEIGHT - BOTTOM - TOP);
  }

  point(event) {
    if (!this.times.length) return;
    const box = this.svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * this.width;
    let nearest = 0;
    this.times.forEach((_, index) => {
      if (Math.abs(this.x(index) - wanted) < Math.abs(this.x(nearest) - wanted)) nearest = index;
    });
    this.choose(nearest);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in moves) || !this.times.length) return;
    event.preventDefault();
    const from = this.index ?? this.times.length - 1;
    this.choose(Math.min(this.times.length - 1, Math.max(0, from + moves[event.key])));
  }

  choose(index) {
    this.index = index;
    const at = index ?? Math.max(0, this.times.length - this.rest);
    if (index === null) {
      this.pointer?.setAttribute("visibility", "hidden");
    } else {
      for (const end of ["x1", "x2"]) this.pointer.setAttribute(end, this.x(index));
      this.pointer.setAttribute("visibility", "visible");
    }
    this.legend.replaceChildren(
      ...this.lines.map((line, number) =>
        element("span", { class: `key key-${number % 8}` }, `${line.name} `, element("b", {}, line.values[at] !== null && line.values[at] !== undefined ? this.shown(line.values[at]) : "–"))),
      index === null ? "" : element("span", { class: "hint" }, clock(this.times[index], true)));
  }
}

// Bars on one axis of time, one row each: [{name, start, end, kind, title}] in seconds.
export function timeline(place, bars, { total, label, shown }) {
  const rows = bars.map((bar) => {
    const drawing = svg("svg", { viewBox: "0 0 1000 16", preserveAspectRatio: "none", "aria-hidden": "true" });
    const start = (bar.start / (total || 1)) * 1000;
    drawing.append(svg("rect", { x: start.toFixed(1), width: Math.max(2, ((bar.end - bar.start) / (total || 1)) * 1000).toFixed(1), y: 1, height: 14, rx: 2, class: `bar ${bar.kind}` }));
    return element("li", { class: bar.inner ? "inner" : null }, element("span", { class: "bar-name" }, bar.name), drawing, element("span", { class: "bar-time" }, shown(bar.end - bar.start)));
  });
  place.replaceChildren(element("ol", { class: "timeline", "aria-label": label }, ...rows));
}
