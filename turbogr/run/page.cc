#include "turbogr/run/page.h"

namespace turbogr::run {
namespace {

constexpr const char* kPageHead = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>turbogr</title>
<style>
:root {
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5d6b7c; --rule: #e3e8ee; --grid: #edf0f4;
  --c0: #2563b0; --c1: #d9660f; --c2: #1d8a5f; --c3: #8a4fbf; --c4: #b8336a; --c5: #7a6a1f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1b212a; --ink: #e6ebf2; --soft: #93a1b3; --rule: #2b3440; --grid: #252d38;
    --c0: #6aa6ef; --c1: #f0934a; --c2: #52c295; --c3: #b98be8; --c4: #e8709f; --c5: #cbb85a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
main { max-width: 1280px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 24px; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 14px; font-weight: 600; margin: 0 0 8px; }
.soft { color: var(--soft); }
header { margin-bottom: 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 12px; margin-bottom: 16px; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: 12px; }
.tile .value { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile .label, .tile .note { color: var(--soft); font-size: 11.5px; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
@media (max-width: 820px) { .charts { grid-template-columns: minmax(0, 1fr); } }
.card { padding: 14px 16px 12px; margin-bottom: 16px; min-width: 0; }
.charts .card { margin-bottom: 0; }
.charts .card:last-child:nth-child(odd) { grid-column: 1 / -1; }
.plot { position: relative; }
svg { display: block; width: 100%; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--soft); min-height: 18px; }
.legend span { white-space: nowrap; }
.legend svg { display: inline-block; width: 18px; height: 8px; margin-right: 5px; vertical-align: middle; }
.tip {
  position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--rule);
  border-radius: 6px; padding: 6px 9px; font-size: 12px; white-space: nowrap; display: none;
  box-shadow: 0 3px 10px rgba(0, 0, 0, 0.14); font-variant-numeric: tabular-nums; z-index: 2;
}
.scroll { overflow: auto; max-height: 420px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; position: sticky; top: 0; background: var(--card); }
td.word, th.word { text-align: left; }
td.best { font-weight: 700; }
.config { columns: 3 260px; column-gap: 28px; font-size: 12.5px; }
.config section { break-inside: avoid; margin-bottom: 14px; }
.config h3 { font-size: 12.5px; margin: 0 0 3px; color: var(--c0); font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.config div { display: flex; justify-content: space-between; gap: 10px; border-bottom: 1px solid var(--grid); font-family: ui-monospace, "DejaVu Sans Mono", monospace; color: var(--soft); }
.config div.changed { color: var(--ink); font-weight: 600; }
.config b { font-weight: inherit; text-align: right; overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; font-size: 12.5px; }
</style>
</head>
<body>
<main>
<header><h1 id="name"></h1><div class="soft" id="made"></div></header>
<noscript><p>The curves are drawn by a script inside this page; allow it to run.</p></noscript>
<div class="tiles" id="tiles"></div>
<div class="charts" id="charts"></div>
</main>
)page";

constexpr const char* kPageScript = R"page(
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

function make(tag, parent, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  parent.appendChild(element);
  return element;
}
function draw(tag, parent, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}
function grouped(number) { return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ","); }
function short(number) {
  const size = Math.abs(number);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return parseFloat((number / unit).toPrecision(4)) + name;
  }
  return parseFloat(number.toPrecision(4)).toString();
}
function written(value, form) {
  if (form === "percent") return (100 * value).toFixed(1) + "%";
  if (form === "count") return grouped(value);
  if (form === "small") return value === 0 ? "0" : value.toExponential(2);
  return value === 0 ? "0" : Math.abs(value) >= 1000 ? short(value) : value.toPrecision(4);
}
function tick(value, form) {
  if (form === "percent") return parseFloat((100 * value).toPrecision(6)) + "%";
  if (form === "small") return value === 0 ? "0" : parseFloat(value.toPrecision(3)).toExponential();
  return short(parseFloat(value.toPrecision(6)));
}
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) found.push(i * step);
  return found;
}
// The mean of a thirtieth of the run round each point.
function smoothed(points) {
  const reach = Math.max(1, Math.floor(points.length / 60));
  const sums = [0];
  for (const point of points) sums.push(sums[sums.length - 1] + point[1]);
  return points.map(([step], i) => {
    const from = Math.max(0, i - reach), to = Math.min(points.length, i + reach + 1);
    return [step, (sums[to] - sums[from]) / (to - from)];
  });
}
function path(points, x, y) {
  return points.map(([step, value], i) => (i ? "L" : "M") + x(step).toFixed(1) + " " + y(value).toFixed(1)).join("");
}
function legend(parent, lines) {
  const box = make("div", parent, undefined, "legend");
  if (lines.length < 2) return;
  for (const line of lines) {
    const item = make("span", box);
    const mark = draw("svg", item, { viewBox: "0 0 18 8" });
    draw("line", mark, { x1: 0, x2: 18, y1: 4, y2: 4, stroke: `var(--c${line.colour % 6})`, "stroke-width": 2.5,
      "stroke-dasharray": line.dashed ? "4 3" : "none" });
    item.appendChild(document.createTextNode(line.name));
  }
}

const redraws = [];
const left = 54, right = 14, top_ = 8, bottom = 24, height = 230;

function chart(parent, spec) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, spec.title);
  legend(card, spec.lines);
  const plot = make("div", card, undefined, "plot");
  const svg = draw("svg", plot, { height });
  const tip = make("div", plot, undefined, "tip");
  const lines = spec.lines.map(line => ({ ...line,
    shown: spec.smooth && line.points.length > 60 ? smoothed(line.points) : line.points,
    raw: spec.smooth && line.points.length > 60 ? line.points : null }));
  // Single spikes must not flatten the rest: the axis covers what is drawn boldly, and 99 % of the raw points.
  let values = lines.flatMap(line => line.shown.map(p => p[1]));
  for (const line of lines) if (line.raw) {
    const sorted = line.raw.map(p => p[1]).sort((a, b) => a - b);
    values.push(sorted[Math.floor(0.005 * sorted.length)], sorted[Math.ceil(0.995 * sorted.length) - 1]);
  }
  let low = Math.min(...values), high = Math.max(...values);
  if (low >= 0 && spec.from_zero) low = 0;
  if (high === low) { high += Math.abs(high) * 0.1 || 1; low -= low === 0 ? 0 : Math.abs(low) * 0.1; }
  high += 0.05 * (high - low);
  if (low !== 0) low -= 0.05 * (high - low);
  const first = spec.first ?? 0, last = spec.last ?? Math.max(data.last_step, 1);
  const place = spec.log_x ? step => Math.log2(step) : step => step;
  const steps = width => spec.log_x
    ? lines[0].points.map(p => p[0])
    : ticks(first, last, Math.max(2, Math.floor(width / 90))).filter(step => step === Math.round(step));
  const clip = "clip" + redraws.length;

  function redraw() {
    const width = plot.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const x = step => left + (place(step) - place(first)) / (place(last) - place(first)) * (width - left - right);
    const y = value => height - bottom - (value - low) / (high - low) * (height - top_ - bottom);
    const region = draw("clipPath", draw("defs", svg, {}), { id: clip });
    draw("rect", region, { x: left - 3, y: 0, width: Math.max(0, width - left - right + 6), height: height - bottom + 3 });
    for (const value of ticks(low, high, 6)) {
      draw("line", svg, { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--grid)" });
      draw("text", svg, { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, tick(value, spec.form));
    }
    for (const step of steps(width)) {
      draw("text", svg, { x: x(step), y: height - 6, "text-anchor": "middle" }, short(step));
    }
    draw("line", svg, { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: "var(--rule)" });
    const group = draw("g", svg, { "clip-path": `url(#${clip})` });
    for (const line of lines) {
      const colour = `var(--c${line.colour % 6})`;
      const pen = { fill: "none", stroke: colour, "stroke-linejoin": "round" };
      if (line.raw) draw("path", group, { ...pen, d: path(line.raw, x, y), "stroke-width": 1, opacity: 0.28 });
      draw("path", group, { ...pen, d: path(line.shown, x, y), "stroke-width": 2,
        "stroke-dasharray": line.dashed ? "5 4" : "none" });
      if (line.shown.length <= 40) for (const [step, value] of line.shown) {
        draw("circle", group, { cx: x(step), cy: y(value), r: 2.6, fill: line.dashed ? "var(--card)" : colour, stroke: colour, "stroke-width": 1.4 });
      }
    }
    const hair = draw("line", svg, { y1: top_, y2: height - bottom, stroke: "var(--soft)", "stroke-dasharray": "2 3", visibility: "hidden" });
    svg.onmousemove = event => {
      const at = event.clientX - svg.getBoundingClientRect().left;
      const wanted = place(first) + (at - left) / (width - left - right) * (place(last) - place(first));
      let nearest = null;
      for (const line of lines) for (const point of line.points) {
        if (nearest === null || Math.abs(place(point[0]) - wanted) < Math.abs(place(nearest) - wanted)) nearest = point[0];
      }
      hair.setAttribute("x1", x(nearest)); hair.setAttribute("x2", x(nearest));
      hair.setAttribute("visibility", "visible");
      tip.replaceChildren();
      make("div", tip, (spec.x_name ?? "step") + " " + grouped(nearest), "soft");
      for (const line of lines) {
        const point = line.points.find(p => p[0] === nearest);
        if (!point) continue;
        const row = make("div", tip, line.name + "  " + written(point[1], spec.form));
        row.style.color = `var(--c${line.colour % 6})`;
      }
      tip.style.display = "block";
      const side = x(nearest) + 14 + tip.offsetWidth > width ? x(nearest) - 14 - tip.offsetWidth : x(nearest) + 14;
      tip.style.left = side + "px"; tip.style.top = "14px";
    };
    svg.onmouseleave = () => { tip.style.display = "none"; hair.setAttribute("visibility", "hidden"); };
  }
  redraws.push(redraw);
}

function show_tiles(tiles) {
  for (const tile of tiles) {
    const box = make("div", document.getElementById("tiles"), undefined, "tile");
    make("div", box, tile.label, "label"); make("div", box, tile.value, "value"); make("div", box, tile.note, "note");
  }
}
)page";

constexpr const char* kPageEnd = R"page(
function redraw_all() { for (const redraw of redraws) redraw(); }
redraw_all();
addEventListener("resize", redraw_all);
</script>
</body>
</html>
)page";

}  // namespace

std::string page_of(std::string figures, std::string_view script) {
  // Inside a script element "</script" would end it, and "<!--" with "<script" would hide its end.
  for (std::size_t at = 0; (at = figures.find('<', at)) != std::string::npos;) {
    figures.replace(at, 1, "\\u003c");
  }
  std::string page = kPageHead;
  page += "<script type=\"application/json\" id=\"data\">" + figures + "</script>\n<script>";
  page += kPageScript;
  page += script;
  return page + kPageEnd;
}

}  // namespace turbogr::run
