#include "turbogr/run/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/output_file.h"

namespace turbogr::run {
namespace {

struct Event {
  double begin, end;  // microseconds
  std::size_t stage;  // place in kStages
};

struct Rank {
  std::vector<Event> computing, ahead;
};

std::map<int, Rank> ranks_in(const nlohmann::json& trace) {
  std::map<int, Rank> ranks;
  for (const auto& event : trace.value("traceEvents", nlohmann::json::array())) {
    if (event.value("ph", "") != "X") continue;
    const auto stage = std::find_if(
        train::kStages.begin(), train::kStages.end(),
        [&](const train::Stage& each) { return event.value("name", "") == each.name; });
    if (stage == train::kStages.end()) continue;
    const double begin = event.value("ts", 0.0);
    Rank& rank = ranks[whole_number<int>(event.value("pid", nlohmann::json(0)))];
    (whole_number<int>(event.value("tid", nlohmann::json(0))) == train::kComputeLane
         ? rank.computing
         : rank.ahead)
        .push_back({begin, begin + event.value("dur", 0.0),
                    static_cast<std::size_t>(stage - train::kStages.begin())});
  }
  for (auto& [number, rank] : ranks) {
    std::sort(rank.computing.begin(), rank.computing.end(),
              [](const Event& a, const Event& b) { return a.begin < b.begin; });
  }
  return ranks;
}

std::map<int, Rank> read_ranks(const std::string& path) {
  try {
    return ranks_in(parse_json(read_file(path)));
  } catch (const nlohmann::json::exception&) {
    detail::throw_error("'", path,
                        "' is not a trace as a run writes it; train with --run.trace=true again");
  }
}

bool is_step(const Event& event) {
  return train::kStages[event.stage].name == std::string_view(train::stages::kCompute.name);
}

bool outside(const Event& event) {
  return train::kStages[event.stage].kind == train::StageKind::kOutside;
}

// Adds one rank's times, in microseconds, to `rows`; returns the time they are shares of.
double add_rank(const Rank& rank, std::array<Timeline::Row, train::kStages.size()>& rows,
                std::int64_t& steps) {
  const auto first = std::find_if(rank.computing.begin(), rank.computing.end(), is_step);
  const auto last = std::find_if(rank.computing.rbegin(), rank.computing.rend(), is_step);
  if (first == rank.computing.end() || last.base() - first < 2) return 0;
  const double begin = first->end, end = last->end;
  double before = begin, off = 0;
  for (auto event = first + 1; event != last.base(); ++event) {
    Timeline::Row& row = rows[event->stage];
    if (outside(*event)) {
      // What leads up to it and what follows are the end of one stretch and the start of another.
      off += event->end - before;
    } else {
      row.bubble += std::max(0.0, event->begin - before);
      row.share += event->end - event->begin;
    }
    steps += is_step(*event) ? 1 : 0;
    before = std::max(before, event->end);
  }
  for (const Event& event : rank.ahead) {
    rows[event.stage].hidden +=
        std::max(0.0, std::min(end, event.end) - std::max(begin, event.begin));
  }
  return end - begin - off;
}

}  // namespace

double Timeline::share_of(train::StageKind kind) const {
  double sum = 0;
  for (const Row& row : stages) sum += row.kind == kind ? row.share : 0;
  return sum;
}

double Timeline::bubbles() const {
  double sum = 0;
  for (const Row& row : stages) sum += row.bubble;
  return sum;
}

Timeline read_timeline(const std::string& trace_path) {
  const std::map<int, Rank> ranks = read_ranks(trace_path);
  std::array<Timeline::Row, train::kStages.size()> rows;
  Timeline timeline;
  double total = 0;
  for (const auto& [number, rank] : ranks) {
    const double time = add_rank(rank, rows, timeline.steps);
    total += time;
    timeline.ranks += time > 0 ? 1 : 0;
  }
  TGR_CHECK(timeline.ranks > 0, "'", trace_path,
            "' shows no two training steps; train for longer with --run.trace=true");
  timeline.steps /= timeline.ranks;
  timeline.seconds = total * 1e-6 / timeline.ranks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Timeline::Row& row = rows[i];
    if (train::kStages[i].kind == train::StageKind::kOutside || row.share + row.hidden == 0)
      continue;
    row.name = train::kStages[i].name;
    row.kind = train::kStages[i].kind;
    for (double* part : {&row.share, &row.bubble, &row.hidden}) *part /= total;
    timeline.stages.push_back(row);
  }
  return timeline;
}

std::string timeline_text(const Timeline& timeline) {
  std::string text = fmt::format(
      "{} steps of {} ranks: compute {:.1f}%, exposed sparse communication {:.1f}%, exposed dense "
      "{:.1f}%, input {:.1f}%, bubbles {:.1f}%\n",
      timeline.steps, timeline.ranks, 100 * timeline.share_of(train::StageKind::kCompute),
      100 * timeline.share_of(train::StageKind::kSparse),
      100 * timeline.share_of(train::StageKind::kDense),
      100 * timeline.share_of(train::StageKind::kInput), 100 * timeline.bubbles());
  text += fmt::format("  {:<30} {:<21} {:>7} {:>14} {:>8}\n", "stage", "kind", "share",
                      "bubble before", "hidden");
  for (const Timeline::Row& row : timeline.stages) {
    text += fmt::format("  {:<30} {:<21} {:>6.1f}% {:>13.1f}% {:>7.1f}%\n", row.name,
                        text_of(row.kind), 100 * row.share, 100 * row.bubble, 100 * row.hidden);
  }
  return text;
}

}  // namespace turbogr::run
