#include "turbogr/run/report.h"

namespace turbogr::run {

// Beside what every page has (page.cc).
const char* const kReportScript = R"page(
function histogram(parent, lengths) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, "Sequence lengths");
  make("div", card, lengths.note, "legend");
  const plot = make("div", card, undefined, "plot");
  const svg = draw("svg", plot, { height });
  const bins = lengths.bins;
  const most = Math.max(...bins.map(b => b[2])) * 1.05;
  redraws.push(() => {
    const width = plot.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const slot = (width - left - right) / bins.length;
    const y = count => height - bottom - count / most * (height - top_ - bottom);
    for (const value of ticks(0, most, 4)) {
      if (value !== Math.round(value)) continue;
      draw("line", svg, { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--grid)" });
      draw("text", svg, { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, short(value));
    }
    const every = Math.max(1, Math.ceil(46 / slot));
    bins.forEach(([from, to, count], i) => {
      const bar = draw("rect", svg, { x: left + i * slot + 1, y: y(count), width: Math.max(1, slot - 2),
        height: height - bottom - y(count), fill: "var(--c0)", rx: 1.5 });
      draw("title", bar, {}, (from === to ? from : from + " to " + to) + " events: " + grouped(count));
      if (i % every === 0) draw("text", svg, { x: left + (i + 0.5) * slot, y: height - 6, "text-anchor": "middle" }, short(parseFloat(from.toPrecision(2))));
    });
    draw("line", svg, { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: "var(--rule)" });
  });
}

// What was predicted against how often it came true: a dot a bin, as large as the bin has targets.
function calibration(parent, spec) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, spec.title);
  legend(card, spec.lines);
  make("div", card, (spec.lines.length < 2 ? spec.lines[0].name + ". " : "") +
    "Across: the mean score of a bin of targets; up: the share of them that came true. On the dotted line both agree.", "legend");
  const plot = make("div", card, undefined, "plot");
  const svg = draw("svg", plot, { height });
  const bins = spec.lines.flatMap(line => line.bins);
  const most = 1.05 * Math.max(...bins.map(b => Math.max(b[0], b[1]))) || 1;
  const largest = Math.max(...bins.map(b => b[2]));
  redraws.push(() => {
    const width = plot.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const x = share => left + share / most * (width - left - right);
    const y = share => height - bottom - share / most * (height - top_ - bottom);
    for (const share of ticks(0, most, 5)) {
      draw("line", svg, { x1: left, x2: width - right, y1: y(share), y2: y(share), stroke: "var(--grid)" });
      draw("text", svg, { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, tick(share, "percent"));
      draw("text", svg, { x: x(share), y: height - 6, "text-anchor": "middle" }, tick(share, "percent"));
    }
    draw("line", svg, { x1: x(0), x2: x(most), y1: y(0), y2: y(most), stroke: "var(--soft)", "stroke-dasharray": "2 3" });
    for (const line of spec.lines) {
      const colour = `var(--c${line.colour % 6})`;
      draw("path", svg, { fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-dasharray": line.dashed ? "5 4" : "none",
        d: path(line.bins, x, y) });
      for (const [predicted, observed, targets] of line.bins) {
        const dot = draw("circle", svg, { cx: x(predicted), cy: y(observed), r: 1.5 + 3.5 * Math.sqrt(targets / largest),
          fill: line.dashed ? "var(--card)" : colour, stroke: colour, "stroke-width": 1.4 });
        draw("title", dot, {}, "predicted " + written(predicted, "percent") + ", came true " + written(observed, "percent") + " of " +
          grouped(targets) + " targets");
      }
    }
  });
}

function evaluations(parent, table) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, "Evaluations, newest first");
  if (table.note) make("div", card, table.note, "legend");
  const grid = make("table", make("div", card, undefined, "scroll"));
  const head = make("tr", make("thead", grid));
  for (const name of ["step", "epoch", "split"].concat(table.names)) make("th", head, name, name === "split" ? "word" : "");
  const best = {};
  for (const row of table.rows) row.slice(3).forEach((value, i) => {
    const key = row[2] + " " + i;
    const better = table.less_is_better[i] ? value < best[key] : value > best[key];
    if (value !== null && (best[key] === undefined || better)) best[key] = value;
  });
  const body = make("tbody", grid);
  for (const row of table.rows.slice().reverse()) {
    const line = make("tr", body);
    make("td", line, grouped(row[0]));
    make("td", line, parseFloat(row[1].toFixed(2)).toString());
    make("td", line, row[2], "word");
    row.slice(3).forEach((value, i) => {
      make("td", line, value === null ? "" : value.toFixed(4), value !== null && value === best[row[2] + " " + i] ? "best" : "");
    });
  }
}

function timeline(parent, times) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, "Where the time went");
  const percent = share => (100 * share).toFixed(1) + "%";
  make("div", card, times.note + ": " + Object.entries(times.shares).map(([name, share]) => name + " " + percent(share)).join(", ") +
    ". Hidden: done beside the computing, at nobody's cost.", "legend");
  const grid = make("table", make("div", card, undefined, "scroll"));
  const head = make("tr", make("thead", grid));
  ["stage", "kind", "share", "bubble before", "hidden"].forEach((name, i) => make("th", head, name, i < 2 ? "word" : ""));
  const body = make("tbody", grid);
  for (const row of times.rows) {
    const line = make("tr", body);
    row.forEach((value, i) => make("td", line, i < 2 ? value : percent(value), i < 2 ? "word" : ""));
  }
}

function configuration(parent, config) {
  const card = make("div", parent, undefined, "card");
  make("h2", card, "Configuration");
  if (config.text !== undefined) { make("pre", card, config.text); return; }
  make("div", card, "Bold: not the default.", "legend");
  const box = make("div", card, undefined, "config");
  for (const [section, keys] of Object.entries(config.sections)) {
    const part = make("section", box);
    make("h3", part, "[" + section + "]");
    for (const [key, value, changed] of keys) {
      const row = make("div", part, undefined, changed ? "changed" : "");
      make("span", row, key); make("b", row, value);
    }
  }
}

document.title = data.name + " - turbogr";
document.getElementById("name").textContent = data.name;
document.getElementById("made").textContent = (data.summary ? data.summary + ". " : "") + data.made_by + ". Curves run over training steps" + (data.charts.some(spec => spec.smooth && spec.lines.some(line => line.points.length > 60)) ? "; a bold line is the mean round a pale one." : ".") + (data.skipped ? " Unreadable lines of metrics.jsonl left out: " + data.skipped + "." : "") + data.notes.map(note => " Note: " + note + ".").join("");
show_tiles(data.tiles);
const charts = document.getElementById("charts"), main = document.querySelector("main");
for (const spec of data.charts) chart(charts, spec);
for (const spec of data.calibrations) calibration(charts, spec);
if (data.lengths) histogram(charts, data.lengths);
const below = make("div", main); below.style.marginTop = "16px";
if (data.evaluations.rows.length) evaluations(below, data.evaluations);
if (data.timeline) timeline(below, data.timeline);
if (data.config) configuration(below, data.config);
)page";

}  // namespace turbogr::run
