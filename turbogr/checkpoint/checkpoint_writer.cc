#include "turbogr/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/core/background_worker.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/version.h"

namespace turbogr::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPartial = ".partial";

void check_shards(const std::vector<CheckpointShard>& shards) {
  std::set<std::string> files;
  std::set<std::string> names;
  for (const CheckpointShard& shard : shards) {
    TGR_CHECK(!shard.name.empty() && shard.name.find('/') == std::string::npos &&
                  files.insert(shard.name).second,
              "a checkpoint was given the shard name '", shard.name,
              "'; names must differ and be file names");
    for (const NamedTensor& tensor : shard.tensors) {
      TGR_CHECK(names.insert(tensor.name).second, "a checkpoint was given two tensors named '",
                tensor.name, "'");
    }
  }
}

void write_small_file(const std::string& path, const std::string& content) {
  OutputFile file(path);
  file.write(content);
  file.finish();
}

json entry_of(const SafetensorsSums& sums) {
  json entry = {{"bytes", sums.file_bytes}, {"header_crc32c", sum_text(sums.header)}};
  entry["tensors"] = json::object();
  for (const auto& [name, sum] : sums.tensors) entry["tensors"][name] = sum_text(sum);
  return entry;
}

// This rank's parts of the tables; what the manifest says of them.
json write_tables(const std::string& folder, const std::vector<CheckpointTable>& tables,
                  const SafetensorsWriteOptions& how) {
  json entries = json::object();
  for (const CheckpointTable& table : tables) {
    const std::string path =
        folder + "/" + part_name(table.name, table.part, table.parts) + ".safetensors";
    entries[table.name] = entry_of(write_safetensors(path, table.tensors, {}, how));
  }
  return entries;
}

// Everything but tables and the last rename: a folder that holds a whole checkpoint, on the disk.
// `parts`: what each rank has written of the tables.
void write_folder(const std::string& folder, const CheckpointContents& contents,
                  const std::vector<json>& parts, const SafetensorsWriteOptions& how) {
  json manifest = {
      {"format", kCheckpointFormat}, {"version", kCheckpointVersion},
      {"step", contents.step},       {"score", contents.score ? json(*contents.score) : json()},
      {"command", contents.command}, {"turbogr", version()},
      {"commit", commit()}};
  manifest["shards"] = json::object();
  for (const CheckpointShard& shard : contents.shards) {
    manifest["shards"][shard.name] = entry_of(
        write_safetensors(folder + "/" + shard.name + ".safetensors", shard.tensors, {}, how));
  }
  manifest["tables"] = json::object();
  for (const CheckpointTable& table : contents.tables) {
    json& entry = manifest["tables"][table.name];
    entry = {{"rows", table.rows}, {"placement", embedding::name_of(table.placement)}};
    entry["parts"] = json::array();
    for (const json& part : parts) entry["parts"].push_back(part.at(table.name));
  }
  const std::string state = contents.state.dump(1) + "\n";
  write_small_file(folder + "/config.toml", contents.config);
  write_small_file(folder + "/state.json", state);
  manifest["files"] = {{"config.toml", sum_text(contents.config)}, {"state.json", sum_text(state)}};
  manifest["crc32c"] = manifest_sum(manifest);
  write_small_file(folder + "/manifest.json", manifest.dump(1) + "\n");
  sync_folder(folder);
}

// Puts `partial` in the place of `target`, which may exist.
void move_into_place(const std::string& partial, const std::string& target) {
  if (fs::exists(target)) {
    // In one step where the file system can: at no moment is there none of this name.
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      sync_folder(fs::path(target).parent_path().string());
      fs::remove_all(partial);
      return;
    }
    fs::remove_all(target);
  }
  rename_durably(partial, target);
}

// Names the best one and returns those that neither keep_last nor keep_best wants. Steps past the
// one just saved belong to a past that was abandoned by falling back.
std::vector<std::string> name_best(const std::string& folder, std::int64_t saved_step,
                                   const CheckpointWriterOptions& options) {
  struct Kept {
    std::string path;
    std::int64_t step;
    std::optional<double> score;
  };
  std::vector<Kept> all;
  for (const std::string& path : list_checkpoints(folder)) {
    Kept kept{path, *checkpoint_step(fs::path(path).filename().string()), std::nullopt};
    if (options.keep_best > 0) {
      try {
        kept.score = Checkpoint(path).score();
      } catch (const Error& error) {  // a damaged one is no candidate for the best
        log::warn("{}", error.what());
      }
    }
    all.push_back(std::move(kept));
  }
  std::set<std::string> wanted;
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.step > b.step; });
  std::int64_t newest = 0;
  for (const Kept& kept : all) {
    if (kept.step <= saved_step && newest++ < options.keep_last) wanted.insert(kept.path);
  }
  std::erase_if(all, [](const Kept& kept) { return !kept.score.has_value(); });
  // Of equal scores the earlier step wins, as it did when it was saved.
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::pair(-*a.score, a.step) < std::pair(-*b.score, b.step);
  });
  const auto best =
      std::min(all.size(), static_cast<std::size_t>(std::max<std::int64_t>(options.keep_best, 0)));
  for (std::size_t i = 0; i < best; ++i) wanted.insert(all[i].path);
  if (best > 0) {
    replace_file(folder + "/best", fs::path(all[0].path).filename().string() + "\n");
  }
  std::vector<std::string> unwanted = list_checkpoints(folder);
  std::erase_if(unwanted, [&](const std::string& path) { return wanted.count(path) > 0; });
  return unwanted;
}

// The checkpoint just written is safe: one too many is worth a warning, not the end of a run.
void prune(const std::vector<std::string>& unwanted) {
  for (const std::string& path : unwanted) {
    // Renamed first: a kill in the middle of a removal must not leave half a checkpoint.
    std::error_code error;
    fs::rename(path, path + kPartial, error);
    if (!error) fs::remove_all(path + kPartial, error);
    if (error) {
      log::warn("the old checkpoint '{}' could not be removed: {}; remove it by hand", path,
                error.message());
    }
  }
}

std::vector<NamedTensor*> tensors_of(CheckpointContents& contents) {
  std::vector<NamedTensor*> tensors;
  for (CheckpointShard& shard : contents.shards) {
    for (NamedTensor& tensor : shard.tensors) tensors.push_back(&tensor);
  }
  for (CheckpointTable& table : contents.tables) {
    for (NamedTensor& tensor : table.tensors) tensors.push_back(&tensor);
  }
  return tensors;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Small ones are not worth a line.
void tell(std::int64_t step, std::size_t bytes, double waited, double seconds) {
  if (seconds < 1) return;
  log::info("step {} saved: {:.1f} GB in {:.1f} s; training waited {:.2f} s", step,
            static_cast<double>(bytes) * 1e-9, seconds, waited);
}

// Enough to keep a disk busy, and a small part of the machine.
int write_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
}

void prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  TGR_CHECK(!error, "cannot make the checkpoint folder '", folder, "': ", error.message());
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kPartial)) fs::remove_all(entry.path(), error);
  }
  if (list_checkpoints(folder).empty()) {
    replace_file(folder + "/" + kNoneYet, "no checkpoint has been saved here so far\n");
  }
}

}  // namespace

struct CheckpointWriter::Worker {
  std::string folder;
  CheckpointWriterOptions options;
  // The copy a background save writes from. The host's memory is kept for the next one, a GPU's is
  // given back.
  std::vector<Tensor> memory;
  CheckpointContents snapshot;
  std::unique_ptr<BackgroundWorker> background;  // last: it uses the others

  void check_folder() const {
    if (options.check_folder) options.check_folder();
  }

  bool leads() const { return options.ranks == nullptr || options.ranks->rank() == 0; }

  std::vector<std::string> texts_of(const std::string& own) const {
    return options.ranks == nullptr ? std::vector{own} : options.ranks->all_gather_text(own);
  }

  // Work whose fault on one rank is everybody's: they go on together or not at all.
  template <class Work>
  void together(Work&& work) const {
    std::string own;
    try {
      work();
    } catch (const std::exception& error) {
      own = error.what();
    }
    const std::vector<std::string> faults = texts_of(own);
    for (std::size_t rank = 0; rank < faults.size(); ++rank) {
      TGR_CHECK(faults[rank].empty(), faults.size() > 1 ? fmt::format("rank {}: ", rank) : "",
                faults[rank]);
    }
  }

  void write(const CheckpointContents& contents) const {
    const SafetensorsWriteOptions how = {.threads = write_threads(), .device = options.device};
    const std::string target = folder + "/" + checkpoint_name(contents.step);
    const std::string partial = target + kPartial;
    if (leads()) check_folder();
    try {
      together([&] {
        if (!leads()) return;
        fs::remove_all(partial);
        fs::create_directories(partial);
      });
      json own;
      together([&] { own = write_tables(partial, contents.tables, how); });
      std::vector<json> parts;
      for (const std::string& text : texts_of(own.dump())) parts.push_back(json::parse(text));
      together([&] {
        if (!leads()) return;
        write_folder(partial, contents, parts, how);
        check_folder();  // tensors take a while
        move_into_place(partial, target);
        replace_file(folder + "/latest", checkpoint_name(contents.step) + "\n");
        fs::remove(folder + "/" + kNoneYet);
      });
    } catch (const std::exception& error) {
      if (!leads()) throw;
      check_folder();  // else `partial` is not ours to remove
      std::error_code ignored;
      fs::remove_all(partial, ignored);
      const std::vector<std::string> whole = list_checkpoints(folder);
      detail::throw_error(
          "checkpoint '", target, "' could not be written: ", error.what(), ". ",
          whole.empty() ? "There is no earlier one" : "The newest whole one is '" + whole[0] + "'");
    }
    if (!leads()) return;
    check_folder();
    try {
      prune(name_best(folder, contents.step, options));
    } catch (const std::exception& error) {
      detail::throw_error(
          "checkpoint '", target,
          "' was written, but `best` could not be brought up to date: ", error.what());
    }
  }

  // Where there is room for a copy to write from: on the GPU beside what is copied, else on the
  // host, else nowhere; then pieces are written while training waits. And the bytes in all.
  enum class Place : std::uint8_t { kBeside, kHost, kNone };
  std::pair<Place, std::size_t> place_for(CheckpointContents contents) const {
    std::size_t host_bytes = 0, device_bytes = 0;
    for (const NamedTensor* tensor : tensors_of(contents)) {
      const bool on_device = tensor->device == Device::kCuda;
      TGR_CHECK(!on_device || options.device != nullptr, "tensor '", tensor->name, "' is on ",
                name_of(tensor->device), "; give the checkpoint writer its context");
      (on_device ? device_bytes : host_bytes) += tensor->bytes();
    }
    const std::size_t bytes = host_bytes + device_bytes;
    if (background == nullptr) return {Place::kNone, bytes};
    std::size_t copied = 0;
    for (const Tensor& tensor : memory) copied += tensor.bytes();
    const std::size_t room = copied / 2 + available_host_memory() / 2;
    if (device_bytes > 0 && device_bytes <= device_memory().free / 2 && host_bytes <= room) {
      return {Place::kBeside, bytes};
    }
    return {bytes <= room ? Place::kHost : Place::kNone, bytes};
  }

  void copy_from(const CheckpointContents& contents, Place place) {
    snapshot = contents;
    std::size_t index = 0;
    for (NamedTensor* tensor : tensors_of(snapshot)) {
      if (index == memory.size()) memory.emplace_back();
      Tensor& copy = memory[index++];
      const bool on_device = tensor->device == Device::kCuda;
      const Device device = on_device && place == Place::kBeside ? Device::kCuda : Device::kCpu;
      if (copy.data() == nullptr || copy.device() != device || copy.dtype() != tensor->dtype ||
          copy.shape() != tensor->shape) {
        copy = Tensor(tensor->dtype, tensor->shape, device);
      }
      if (on_device) {
        copy_bytes(*options.device, copy.data(), tensor->data, copy.bytes());
      } else if (copy.bytes() > 0) {
        std::memcpy(copy.data(), tensor->data, copy.bytes());
      }
      tensor->data = copy.data();
      tensor->device = device;
    }
    if (options.device != nullptr) synchronize(*options.device);
  }

  void release_device_memory() {
    for (Tensor& copy : memory) {
      if (copy.device() == Device::kCuda) copy = Tensor();
    }
  }
};

CheckpointWriter::CheckpointWriter(std::string folder, CheckpointWriterOptions options)
    : worker_(std::make_unique<Worker>()) {
  TGR_CHECK(options.keep_last >= 1, "keep_last = ", options.keep_last,
            "; at least the newest checkpoint must be kept");
  worker_->folder = std::move(folder);
  worker_->options = std::move(options);
  if (worker_->leads()) prepare_folder(worker_->folder);
  if (worker_->options.background) worker_->background = std::make_unique<BackgroundWorker>();
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
}

void CheckpointWriter::save(const CheckpointContents& contents) {
  wait();
  TGR_CHECK(contents.step >= 0, "a checkpoint of step ", contents.step, " cannot be saved");
  check_shards(contents.shards);
  const Clock::time_point start = Clock::now();
  const auto [place, bytes] = worker_->place_for(contents);
  if (place == Worker::Place::kNone) {
    if (worker_->options.device != nullptr) synchronize(*worker_->options.device);
    worker_->write(contents);
    tell(contents.step, bytes, seconds_since(start), seconds_since(start));
    return;
  }
  worker_->copy_from(contents, place);
  worker_->background->start(
      [worker = worker_.get(), start, bytes = bytes, waited = seconds_since(start)] {
        if (worker->options.device != nullptr) bind_thread(*worker->options.device);
        try {
          worker->write(worker->snapshot);
        } catch (...) {
          worker->release_device_memory();
          throw;
        }
        worker->release_device_memory();
        if (worker->leads()) tell(worker->snapshot.step, bytes, waited, seconds_since(start));
      });
}

void CheckpointWriter::wait() {
  if (worker_->background != nullptr) worker_->background->join();
}

}  // namespace turbogr::checkpoint
