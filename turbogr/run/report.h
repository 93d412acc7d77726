// `turbogr report`: one page that holds everything a run has to show, readable without a network:
// curves of loss, quality, learning rate, throughput and MFU, the lengths, the configuration.
#pragma once

#include <string>

namespace turbogr::run {

// The page of a run folder. metrics.jsonl must be there; config.toml and lengths.json are shown
// when they are.
std::string report_page(const std::string& run_folder);

// Writes it to `path`, or to report.html in the run folder when that is empty; returns the path.
std::string write_report(const std::string& run_folder, const std::string& path = "");

// What draws the figures, in report_page.cc.
extern const char* const kReportScript;

}  // namespace turbogr::run
