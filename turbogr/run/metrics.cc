#include "turbogr/run/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
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
    const json line = json::parse(text.substr(begin, end - begin), nullptr, false);
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
    const json line = json::parse(text.substr(begin, end - begin), nullptr, false);
    if (line.is_object() && line.value("step", json()) == step) {
      lines.emplace(text.substr(begin, end - begin));
    }
    begin = end;
  }
  return lines;
}

}  // namespace

JsonLines::JsonLines(std::string path, std::optional<std::int64_t> resume_step)
    : path_(std::move(path)) {
  std::error_code absent;
  const bool exists = std::filesystem::file_size(path_, absent) > 0 && !absent;
  if (exists) {
    TGR_CHECK(resume_step.has_value(), "'", path_,
              "' is there already; resume that run or choose another run.dir");
    const std::string text = read_file(path_);
    const std::size_t keep = bytes_to_keep(text, *resume_step);
    kept_ = lines_of_step(std::string_view(text).substr(0, keep), *resume_step);
    if (keep < text.size()) {
      log::info("{}: cutting off {} bytes logged after step {}", path_, text.size() - keep,
                *resume_step);
      std::error_code error;
      std::filesystem::resize_file(path_, keep, error);
      TGR_CHECK(!error, "cannot shorten '", path_, "': ", error.message());
    }
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  TGR_CHECK(descriptor_ >= 0, "cannot open '", path_, "': ", std::strerror(errno));
}

JsonLines::~JsonLines() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void JsonLines::write(const MetricRecord& record) {
  ordered_json line;
  line["step"] = record.step;
  line["epoch"] = record.epoch;
  if (!record.split.empty()) line["split"] = record.split;
  for (const auto& [name, value] : record.values) line[name] = value;
  const std::string text = line.dump() + "\n";
  if (!kept_.contains(text)) write_all(descriptor_, std::as_bytes(std::span(text)), path_);
}

std::vector<MetricRecord> read_json_lines(const std::string& path, std::int64_t* skipped) {
  std::vector<MetricRecord> records;
  std::int64_t bad = 0;
  const std::string text = read_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(line_end(text, begin), text.size());
    const std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end;
    const ordered_json line = ordered_json::parse(content, nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) {
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
      } else if (value.is_number()) {
        record.values.emplace_back(key, value.get<double>());
      }
    }
    records.push_back(std::move(record));
  }
  if (skipped != nullptr) *skipped = bad;
  return records;
}

}  // namespace turbogr
