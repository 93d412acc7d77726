#include "turbogr/plan/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "turbogr/core/version.h"
#include "turbogr/run/page.h"
#include "turbogr/train/stages.h"

namespace turbogr::plan {
namespace {

using nlohmann::ordered_json;

constexpr double kPageGib = 1024.0 * 1024.0 * 1024.0;
constexpr std::size_t kMemoryBars = 8;

// Beside what every page has (run/page.cc).
constexpr const char* kPlanScript = R"page(
const kinds = ["compute", "sparse communication", "dense communication", "other"];
function colour_of(kind) { return `var(--c${Math.max(0, kinds.indexOf(kind))})`; }

function step_timeline(parent, step) {
  const card = make("div", parent, undefined, "card");
  card.id = "timeline";
  make("h2", card, "One step of rank " + step.rank + ", " + step.ms.toFixed(2) + " ms");
  legend(card, kinds.map((name, colour) => ({ name, colour })));
  const plot = make("div", card, undefined, "plot");
  const row = 46, tall = 2 * row + bottom + 14;
  const svg = draw("svg", plot, { height: tall });
  redraws.push(() => {
    const width = plot.clientWidth, from = 84;
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.replaceChildren();
    const x = ms => from + ms / step.ms * (width - from - right);
    ["this step", "next step"].forEach((name, lane) =>
      draw("text", svg, { x: from - 8, y: top_ + lane * row + 22, "text-anchor": "end" }, name));
    for (const ms of ticks(0, step.ms, Math.max(2, Math.floor(width / 110)))) {
      draw("line", svg, { x1: x(ms), x2: x(ms), y1: top_, y2: tall - bottom, stroke: "var(--grid)" });
      draw("text", svg, { x: x(ms), y: tall - 8, "text-anchor": "middle" }, short(ms) + " ms");
    }
    for (const stage of step.stages) {
      const bar = draw("rect", svg, { x: x(stage.begin), y: top_ + stage.lane * row + 2,
        width: Math.max(0.5, x(stage.end) - x(stage.begin)), height: row - 12, fill: colour_of(stage.kind),
        stroke: "var(--card)", "stroke-width": 0.5, class: "stage" });
      draw("title", bar, {}, stage.name + ": " + (stage.end - stage.begin).toFixed(3) + " ms");
    }
  });
}

function memory_bars(parent, memory) {
  const card = make("div", parent, undefined, "card");
  card.id = "memory";
  make("h2", card, "Memory of a device, GiB");
  const parts = ["activations", "item table and its state", "everything else"];
  legend(card, parts.map((name, colour) => ({ name, colour })));
  const plot = make("div", card, undefined, "plot");
  const row = 30, tall = memory.bars.length * row + bottom + 6;
  const svg = draw("svg", plot, { height: tall });
  const most = 1.08 * Math.max(memory.capacity, ...memory.bars.map(bar => bar.parts.reduce((a, b) => a + b, 0)));
  redraws.push(() => {
    const width = plot.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.replaceChildren();
    const x = gib => left + gib / most * (width - left - right);
    for (const gib of ticks(0, most, Math.max(2, Math.floor(width / 110)))) {
      draw("line", svg, { x1: x(gib), x2: x(gib), y1: 0, y2: tall - bottom, stroke: "var(--grid)" });
      draw("text", svg, { x: x(gib), y: tall - 8, "text-anchor": "middle" }, short(gib));
    }
    memory.bars.forEach((bar, i) => {
      let at = 0;
      bar.parts.forEach((gib, part) => {
        const box = draw("rect", svg, { x: x(at), y: i * row + 4, width: Math.max(0, x(at + gib) - x(at)),
          height: row - 10, fill: `var(--c${part})`, class: "part" });
        draw("title", box, {}, bar.name + ": " + parts[part] + " " + gib.toFixed(2) + " GiB");
        at += gib;
      });
      draw("text", svg, { x: left - 8, y: i * row + 19, "text-anchor": "end" }, i + 1);
    });
    draw("line", svg, { x1: x(memory.capacity), x2: x(memory.capacity), y1: 0, y2: tall - bottom,
      stroke: "var(--c4)", "stroke-dasharray": "5 4", "stroke-width": 2 });
  });
}

function choices_table(parent, rows) {
  const card = make("div", parent, undefined, "card");
  card.id = "choices";
  make("h2", card, "Settings, fastest first");
  const grid = make("table", make("div", card, undefined, "scroll"));
  const names = ["", "setting", "results", "step, ms", "linearity", "exposed sparse", "exposed dense", "GiB"];
  const head = make("tr", make("thead", grid));
  names.forEach((name, i) => make("th", head, name, i === 1 || i === 2 ? "word" : ""));
  const body = make("tbody", grid);
  for (const row of rows) {
    const line = make("tr", body);
    row.forEach((value, i) => make("td", line, value, i === 1 || i === 2 ? "word" : ""));
  }
}

document.title = data.name + " - turbogr plan";
document.getElementById("name").textContent = data.name;
document.getElementById("made").textContent = data.summary + ". A prediction by " + data.made_by + ". " + data.sources.join("; ") + ".";
show_tiles(data.tiles);
const charts = document.getElementById("charts"), main = document.querySelector("main");
for (const spec of data.charts) chart(charts, spec);
const below = make("div", main); below.style.marginTop = "16px";
if (data.charts.length) make("p", below, data.curve_note, "soft");
step_timeline(below, data.step);
memory_bars(below, data.memory);
choices_table(below, data.choices);
)page";

ordered_json chart_of(const std::vector<ScalingCurve>& curves, const char* title, const char* form,
                      double (*value)(const ScalingPoint&)) {
  ordered_json lines = ordered_json::array();
  int first = 0, last = 0;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    ordered_json points = ordered_json::array();
    for (const ScalingPoint& point : curves[c].points) {
      points.push_back({point.ranks, value(point)});
      first = first == 0 ? point.ranks : std::min(first, point.ranks);
      last = std::max(last, point.ranks);
    }
    if (points.empty()) continue;
    lines.push_back({{"name", curves[c].schedule},
                     {"colour", c},
                     {"dashed", curves[c].schedule == "semi_async"},
                     {"points", points}});
  }
  return {{"title", title},    {"form", form},
          {"first", first},    {"last", std::max(last, first + 1)},
          {"log_x", true},     {"x_name", "ranks"},
          {"from_zero", true}, {"lines", lines}};
}

ordered_json charts_of(const std::vector<ScalingCurve>& curves) {
  ordered_json charts = ordered_json::array();
  if (std::all_of(curves.begin(), curves.end(), [](const auto& c) { return c.points.empty(); })) {
    return charts;
  }
  charts.push_back(chart_of(curves, "Linearity over ranks", "percent",
                            [](const ScalingPoint& p) { return p.linearity; }));
  charts.push_back(chart_of(curves, "Milliseconds of a step over ranks", "number",
                            [](const ScalingPoint& p) { return 1e3 * p.step_seconds; }));
  return charts;
}

std::string_view kind_of(std::string_view name) {
  for (const train::Stage& stage : train::kStages) {
    if (name != stage.name) continue;
    const bool shown = stage.kind == train::StageKind::kCompute ||
                       stage.kind == train::StageKind::kSparse ||
                       stage.kind == train::StageKind::kDense;
    return shown ? text_of(stage.kind) : "other";
  }
  return "other";
}

ordered_json step_of(const PlanFigures& figures) {
  ordered_json stages = ordered_json::array();
  for (const TracedStage& stage : figures.step) {
    stages.push_back({{"name", stage.name},
                      {"lane", stage.lane == train::kComputeLane ? 0 : 1},
                      {"kind", kind_of(stage.name)},
                      {"begin", 1e3 * stage.begin},
                      {"end", 1e3 * stage.end}});
  }
  return {{"rank", figures.step.empty() ? 0 : figures.step.front().rank},
          {"ms", 1e3 * figures.step_seconds},
          {"stages", stages}};
}

ordered_json memory_of_choices(const PlanFigures& figures) {
  ordered_json bars = ordered_json::array();
  for (const Choice& choice : figures.choices) {
    if (bars.size() == kMemoryBars) break;
    const RankMemory& m = choice.memory;
    bars.push_back(
        {{"name", choice.settings.text()},
         {"parts",
          {m.activations / kPageGib, (m.table - m.host_table) / kPageGib,
           std::max(0.0, m.device - m.activations - m.table + m.host_table) / kPageGib}}});
  }
  return {{"capacity", figures.memory_gib}, {"bars", bars}};
}

ordered_json rows_of(const std::vector<Choice>& choices) {
  ordered_json rows = ordered_json::array();
  for (const Choice& choice : choices) {
    const Simulation& s = choice.simulation;
    const std::string gib = fmt::format("{:.1f}", choice.memory.device / kPageGib);
    ordered_json row = {std::to_string(rows.size() + 1), choice.settings.text(),
                        text_of(choice.semantics)};
    if (!choice.fits) {
      for (const char* text : {"does not fit", "", "", ""}) row.push_back(text);
    } else {
      row.push_back(fmt::format("{:.2f}", 1e3 * s.step_seconds));
      row.push_back(fmt::format("{:.3f}", s.linearity()));
      row.push_back(fmt::format("{:.1f}%", 100 * s.share(train::StageKind::kSparse)));
      row.push_back(fmt::format("{:.1f}%", 100 * s.share(train::StageKind::kDense)));
    }
    row.push_back(gib);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<TracedStage> last_step(const std::vector<TracedStage>& trace, int rank) {
  std::vector<double> ends;
  for (const TracedStage& stage : trace) {
    if (stage.rank == rank && std::string_view(stage.name) == train::stages::kDenseUpdate.name) {
      ends.push_back(stage.end);
    }
  }
  if (ends.size() < 2) return {};
  const double begin = ends[ends.size() - 2], end = ends.back();
  std::vector<TracedStage> cut;
  for (TracedStage stage : trace) {
    if (stage.rank != rank || stage.end <= begin || stage.begin >= end) continue;
    stage.begin = std::max(0.0, stage.begin - begin);
    stage.end = std::min(stage.end, end) - begin;
    cut.push_back(stage);
  }
  return cut;
}

std::string plan_page(const PlanFigures& figures) {
  ordered_json tiles = ordered_json::array();
  for (const auto& [label, value] : figures.tiles) {
    tiles.push_back({{"label", label}, {"value", value}, {"note", ""}});
  }
  const ordered_json data = {{"name", figures.name},
                             {"summary", figures.summary},
                             {"made_by", fmt::format("turbogr {} ({})", version(), commit())},
                             {"sources", figures.sources},
                             {"tiles", tiles},
                             {"charts", charts_of(figures.curves)},
                             {"curve_note", figures.curve_note},
                             {"step", step_of(figures)},
                             {"memory", memory_of_choices(figures)},
                             {"choices", rows_of(figures.choices)}};
  return run::page_of(data.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
                      kPlanScript);
}

}  // namespace turbogr::plan
