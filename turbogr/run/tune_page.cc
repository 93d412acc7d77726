// The page of a search: the figures of every trial as curves, and the table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "turbogr/run/tune.h"

namespace turbogr::run {
namespace {

constexpr double kWidth = 900;
constexpr double kHeight = 380;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 12;
constexpr double kBottom = 44;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// About four round numbers from 0 to the end.
double tick_step(double end) {
  const double power = std::pow(10.0, std::floor(std::log10(end / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (end / (factor * power) <= 5) return factor * power;
  }
  return 10 * power;
}

struct Axes {
  double epochs = 0;
  double value = 0;

  double x(double epoch) const { return kLeft + epoch / epochs * (kWidth - kLeft - kRight); }
  double y(double v) const { return kHeight - kBottom - v / value * (kHeight - kTop - kBottom); }
};

std::string axes_svg(const Axes& axes, const std::string& metric) {
  std::string svg;
  for (double v = 0; v <= axes.value * (1 + 1e-9); v += tick_step(axes.value)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n",
        kLeft, kWidth - kRight, axes.y(v), axes.y(v), kLeft - 8, axes.y(v) + 4, v);
  }
  for (double e = 0; e <= axes.epochs * (1 + 1e-9); e += tick_step(axes.epochs)) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>\n",
                       axes.x(e), kHeight - kBottom + 18, e);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">epochs</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 6);
  svg += fmt::format(
      "<text transform=\"rotate(-90)\" x=\"{}\" y=\"14\" text-anchor=\"middle\">"
      "{} (validation)</text>\n",
      -kHeight / 2, escaped(metric));
  return svg;
}

std::string curve_svg(const Trial& trial, const Axes& axes, bool best) {
  if (trial.curve.empty()) return "";
  std::string points;
  for (const auto& [epoch, value] : trial.curve) {
    if (std::isfinite(value)) points += fmt::format("{:.1f},{:.1f} ", axes.x(epoch), axes.y(value));
  }
  const char* const name = best ? "best" : "curve";
  std::string svg = fmt::format("<g class=\"{}\"><title>trial {}: {:.4f}</title>", name,
                                trial.number, trial.best());
  svg += fmt::format("<polyline points=\"{}\"/>", points);
  // A curve of one point has no line to see.
  const auto& [epoch, value] = trial.curve.back();
  svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/></g>\n", axes.x(epoch),
                     axes.y(std::isfinite(value) ? value : 0));
  return svg;
}

std::string table_html(const std::vector<Trial>& trials, const std::string& metric) {
  std::string html = "<table>\n<tr><th>trial</th>";
  const std::vector<std::string>& settings = tuned_settings(trials.front().config);
  for (const std::string& setting : settings) html += "<th>" + setting + "</th>";
  html += fmt::format("<th>epochs</th><th>{}</th></tr>\n", escaped(metric));
  for (const Trial& trial : trials) {
    html += fmt::format("<tr><td>{}</td>", trial.number);
    for (const std::string& setting : settings) {
      html += "<td>" + setting_text(trial.config, setting) + "</td>";
    }
    html += trial.fault.empty()
                ? fmt::format("<td>{:.0f}</td><td>{:.4f}</td></tr>\n", trial.epochs(), trial.best())
                : fmt::format("<td>{:.0f}</td><td title=\"{}\">failed</td></tr>\n", trial.epochs(),
                              escaped(trial.fault));
  }
  return html + "</table>\n";
}

constexpr const char* kHead = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>turbogr tune</title>
<style>
:root { --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5d6b7c; --rule: #e3e8ee; --best: #d9660f; --line: #2563b0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --card: #1b212a; --ink: #e6ebf2; --soft: #93a1b3; --rule: #2b3440; --best: #f0934a; --line: #6aa6ef; }
}
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 22px; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 14px 16px; margin-bottom: 16px; overflow: auto; }
svg { display: block; width: 100%; }
svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--rule); }
polyline { fill: none; }
.curve polyline { stroke: var(--line); stroke-opacity: 0.45; }
.curve circle { fill: var(--line); fill-opacity: 0.6; }
.best polyline { stroke: var(--best); stroke-width: 2.5; }
.best circle { fill: var(--best); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px; text-align: right; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 500; }
tr:nth-child(2) td { font-weight: 700; color: var(--best); }
p { color: var(--soft); }
</style>
</head>
<body>
<main>
)page";

}  // namespace

std::string trials_page(const std::vector<Trial>& trials, const std::string& metric,
                        const std::string& title) {
  Axes axes;
  for (const Trial& trial : trials) {
    axes.epochs = std::max(axes.epochs, trial.epochs());
    if (std::isfinite(trial.best())) axes.value = std::max(axes.value, trial.best());
  }
  if (axes.epochs <= 0) axes.epochs = 1;
  if (axes.value <= 0) axes.value = 1;
  std::string page = kHead;
  page += fmt::format(
      "<h1>{}</h1>\n<p>The best trial is drawn in orange and stands first; trial 1 "
      "is the config as it was given.</p>\n",
      escaped(title));
  page += fmt::format("<section><svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kHeight);
  page += axes_svg(axes, metric);
  for (std::size_t t = trials.size(); t-- > 0;) page += curve_svg(trials[t], axes, t == 0);
  page += "</svg></section>\n<section>\n" + table_html(trials, metric) + "</section>\n";
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace turbogr::run
