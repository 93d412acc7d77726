// What a run leaves and goes on from: manifest.json, state.json and config.toml of a checkpoint and
// one of the run folder's own files, between zero bytes. Checksums are made right, or nothing would
// get past them.
#include <nlohmann/json.hpp>

#include "tests/fuzz/support.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/core/log.h"
#include "turbogr/data/batching.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/run_position.h"
#include "turbogr/run/timeline.h"

namespace {

using namespace turbogr;
using nlohmann::json;

json saved(const run::RunPosition& position) {
  json state;
  position.add_to(state, train::StageTimes{});
  return state;
}

// As RunCheckpoints::resume does, with the same exceptions caught.
void restore(const json& state) {
  try {
    const auto loader = data::LoaderState::from_json(state.at("loader").get<std::string>());
    fuzz::expect(data::LoaderState::from_json(loader.to_json()) == loader,
                 "a loader's position comes back as it was written");
    run::RunPosition position(/*patience=*/3), again(/*patience=*/3);
    position.restore(state);
    // As a file has it.
    const json written = json::parse(saved(position).dump());
    again.restore(written);
    fuzz::expect(saved(again).dump() == written.dump(), "so does the run's");
    if (const auto logged = run::LoggedBytes::of(state)) {
      const auto same = run::LoggedBytes::of({{"metrics", logged->to_json()}});
      fuzz::expect(same->bytes == logged->bytes && same->sum == logged->sum, "so do logged bytes");
      logged->are_in("a log");
    }
  } catch (const json::exception&) {
  }
}

void read_run_files(const std::string& path) {
  std::int64_t skipped = 0;
  run::read_json_lines(path, &skipped);
  { run::JsonLines lines(path, /*resume_step=*/3); }
  fuzz::errors_are_fine([&] { run::read_lengths(path); });
  fuzz::errors_are_fine([&] { run::timeline_text(run::read_timeline(path)); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  static const bool quiet = (log::set_up("off"), true);
  static_cast<void>(quiet);
  folder.clear();
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 4);
  folder.write("state.json", parts[1]);
  folder.write("config.toml", parts[2]);
  json manifest = json::parse(parts[0], nullptr, /*allow_exceptions=*/false);
  std::string text = parts[0];
  if (manifest.is_object()) {
    if (manifest.contains("files") && manifest["files"].is_object()) {
      manifest["files"]["state.json"] = checkpoint::sum_text(parts[1]);
      manifest["files"]["config.toml"] = checkpoint::sum_text(parts[2]);
    }
    manifest["crc32c"] = checkpoint::manifest_sum(manifest);
    text = manifest.dump();
  }
  folder.write("manifest.json", text);
  fuzz::errors_are_fine([&] {
    checkpoint::Checkpoint checkpoint(folder.path().string());
    checkpoint.verify();
    restore(checkpoint.state());
  });
  folder.write("run-file", parts[3]);
  fuzz::errors_are_fine([&] { read_run_files((folder.path() / "run-file").string()); });
  return 0;
}
