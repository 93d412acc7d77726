#include "turbogr/run/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"

namespace turbogr::run {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Where the line that starts at `begin` ends, its newline included; npos when it has none.
std::size_t line_end(std::string_view text, std::size_t begin) {
  const std::size_t newline = text.find('\n', begin);
  return newline == std::string_view::npos ? newline : newline + 1;
}

// How many bytes of an old file a resumed run keeps.
std::size_t bytes_to_keep(std::string_view text, std::int64_t resume_step) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = line_end(text, begin);
    if (end == std::string_view::npos) return begin;  // torn
    const json line = parse_json(text.substr(begin, end - begin));
    const bool last = end == text.size();
    if (line.is_discarded() && last) return begin;
    if (line.is_object() && line.contains("step") && line["step"].is_number() &&
        line["step"].get<double>() > static_cast<double>(resume_step)) {
      return begin;
    }
    begin = end;
  }
  return text.size();
}

std::set<std::string> lines_of_step(std::string_view text, std::int64_t step) {
  std::set<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(line_end(text, begin), text.size());
    const json line = parse_json(text.substr(begin, end - begin));
    if (line.is_object() && line.value("step", json()) == step) {
      lines.emplace(text.substr(begin, end - begin));
    }
    begin = end;
  }
  return lines;
}

}  // namespace

bool LoggedBytes::are_in(std::string_view text) const {
  return text.size() >= bytes && crc32c(0, text.data(), bytes) == sum;
}

json LoggedBytes::to_json() const { return {{"bytes", bytes}, {"crc32c", sum}}; }

std::optional<LoggedBytes> LoggedBytes::of(const json& state) {
  const json logged = state.value("metrics", json());
  if (logged.is_null()) return std::nullopt;
  return LoggedBytes{whole_number<std::uint64_t>(logged.at("bytes")),
                     whole_number<std::uint32_t>(logged.at("crc32c"))};
}

JsonLines::JsonLines(std::string path, std::optional<std::int64_t> resume_step,
                     std::optional<LoggedBytes> logged)
    : path_(std::move(path)) {
  std::error_code absent;
  const bool exists = std::filesystem::file_size(path_, absent) > 0 && !absent;
  bool lost = logged && logged->bytes > 0;
  if (exists) {
    TGR_CHECK(resume_step.has_value(), "'", path_,
              "' is there already; resume that run or choose another run.dir");
    const std::string text = read_file(path_);
    const std::size_t keep = bytes_to_keep(text, *resume_step);
    const std::string_view kept = std::string_view(text).substr(0, keep);
    lost = logged && !logged->are_in(kept);
    kept_ = lines_of_step(kept, *resume_step);
    if (keep < text.size()) {
      log::info("{}: cutting off {} bytes logged after step {}", path_, text.size() - keep,
                *resume_step);
      std::error_code error;
      std::filesystem::resize_file(path_, keep, error);
      TGR_CHECK(!error, "cannot shorten '", path_, "': ", error.message());
    }
  }
  open();
  if (lost) say_lost(*resume_step, "since its checkpoint was saved");
}

// What is there now is what has been logged.
void JsonLines::open() {
  file_ = FileHandle(path_, O_WRONLY | O_CREAT | O_APPEND);
  logged_ = {};
  if (!std::filesystem::is_regular_file(path_)) return;
  const std::string text = read_file(path_);
  logged_ = {text.size(), crc32c(0, text.data(), text.size())};
}

void JsonLines::append(const std::string& line) {
  write_all(file_.get(), std::as_bytes(std::span(line)), path_);
  logged_.bytes += line.size();
  logged_.sum = crc32c(logged_.sum, line.data(), line.size());
}

void JsonLines::say_lost(std::int64_t step, const char* when) {
  log::warn("{} was removed, cut or changed {}: figures up to step {} are missing from it", path_,
            when, step);
  const ordered_json line = {
      {"step", step},
      {"note", fmt::format("figures up to step {} are missing: the file was removed, cut or "
                           "changed {}",
                           step, when)}};
  append(line.dump() + "\n");
}

void JsonLines::write(const MetricRecord& record) {
  struct stat status = {};
  const bool whole = is_at(file_.get(), path_) && ::fstat(file_.get(), &status) == 0 &&
                     static_cast<std::uint64_t>(status.st_size) == logged_.bytes;
  if (!whole) {
    open();
    say_lost(record.step, "while the run wrote to it");
  }
  ordered_json line;
  line["step"] = record.step;
  line["epoch"] = record.epoch;
  if (!record.split.empty()) line["split"] = record.split;
  for (const auto& [name, value] : record.values) line[name] = value;
  if (!record.calibration.empty()) line[kCalibration] = calibration_json(record.calibration);
  const std::string text = line.dump() + "\n";
  if (!kept_.contains(text)) append(text);
}

std::vector<MetricRecord> read_json_lines(const std::string& path, std::int64_t* skipped) {
  std::vector<MetricRecord> records;
  std::int64_t bad = 0;
  const std::string text = read_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(line_end(text, begin), text.size());
    const std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end;
    const ordered_json line = parse_json<ordered_json>(content);
    if (!line.is_object() || !line.contains("step") ||
        !is_whole_number<std::int64_t>(line["step"])) {
      if (content.find_first_not_of(" \r\n") != std::string_view::npos) ++bad;
      continue;
    }
    MetricRecord record;
    for (const auto& [key, value] : line.items()) {
      if (key == "step") {
        record.step = value.get<std::int64_t>();
      } else if (key == "epoch" && value.is_number()) {
        record.epoch = value.get<double>();
      } else if (key == "split" && value.is_string()) {
        record.split = value.get<std::string>();
      } else if (key == "note" && value.is_string()) {
        record.note = value.get<std::string>();
      } else if (key == kCalibration) {
        record.calibration = read_calibration(value);
      } else if (value.is_number()) {
        record.values.emplace_back(key, value.get<double>());
      }
    }
    records.push_back(std::move(record));
  }
  if (skipped != nullptr) *skipped = bad;
  return records;
}

}  // namespace turbogr::run
