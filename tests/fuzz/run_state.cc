// What a run goes on from: manifest.json, state.json and config.toml of a checkpoint, between zero
// bytes. Checksums are made right, or nothing would get past them.
#include <nlohmann/json.hpp>

#include "tests/fuzz/support.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/data/batching.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr;
  using nlohmann::json;
  static const fuzz::Folder folder;
  folder.clear();
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 3);
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
    const json& state = checkpoint.state();
    if (!state.is_object() || !state.contains("loader") || !state["loader"].is_string()) return;
    const auto position = data::LoaderState::from_json(state["loader"].get<std::string>());
    fuzz::expect(data::LoaderState::from_json(position.to_json()) == position,
                 "a position comes back as it was written");
  });
  return 0;
}
