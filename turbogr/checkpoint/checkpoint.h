// Checkpoints. One is a folder, step-000000300, that holds a manifest with the checksum of
// everything else, safetensors shards, each table in as many parts as ranks shared it, the
// trainer's small state and the resolved config; it appears whole or not at all. The folder above
// it has `latest`, the name of the newest one.
//
//   Checkpoint saved = open_newest_checkpoint("runs/demo/checkpoints", /*fall_back=*/false);
//   saved.read(model_tensors);
//   loader.restore(saved.state().at("loader"));
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/embedding/sharding.h"

namespace turbogr::checkpoint {

// One safetensors file: "model" becomes model.safetensors. Tensor names differ across shards, too.
struct CheckpointShard {
  std::string name;
  std::vector<NamedTensor> tensors;
};

// A rank's part of a table, "items-00001-of-00004.safetensors": rows of the whole by the sharding,
// in tensors of the table's name and what it adds to it ("items.first_moment").
struct CheckpointTable {
  std::string name;
  std::int64_t rows = 0;  // of the whole
  embedding::Placement placement = embedding::Placement::kRoundRobin;
  int part = 0, parts = 1;
  std::vector<NamedTensor> tensors;
};

struct CheckpointContents {
  std::int64_t step = 0;
  std::vector<CheckpointShard> shards;
  std::vector<CheckpointTable> tables;
  nlohmann::json state;         // loader position, epoch, counters: whatever resuming needs
  std::string config;           // resolved TOML
  std::string command;          // how the run was started
  std::optional<double> score;  // higher is better; only scored ones can be the best
};

// A table of a checkpoint, whatever number of parts it is in: rows by their ids. Of a checkpoint of
// an older program, whose tables were tensors like others. Lives no longer than the checkpoint.
class SavedTable {
 public:
  std::int64_t rows() const { return sharding_.rows(); }
  // Numbers a row has of a tensor of the table, f32, bf16 or f16; 0 where there is no such tensor.
  std::int64_t width(std::string_view tensor) const;
  DType dtype(std::string_view tensor) const;
  // One row, in `dtype`.
  void read_row(std::string_view tensor, std::int64_t id, DType dtype, std::byte* into) const;
  // Rows [begin, end) of part `part` by `sharding`, end to end, in their own format.
  void read_part(ThreadPool& pool, std::string_view tensor, const embedding::Sharding& sharding,
                 int part, std::int64_t begin, std::int64_t end, std::byte* into) const;
  // What was read so far need not stay in memory.
  void forget_pages() const;

 private:
  friend class Checkpoint;
  struct Column {
    std::int64_t width = 0;
    DType dtype = DType::kF32;
    std::vector<const std::byte*> parts;
    std::size_t row_bytes() const { return static_cast<std::size_t>(width) * size_of(dtype); }
  };
  const std::byte* row(const Column& column, std::int64_t id) const;
  const Column* find(std::string_view tensor) const;

  explicit SavedTable(const embedding::Sharding& sharding) : sharding_(sharding) {}
  embedding::Sharding sharding_;
  embedding::Placement placement_ = embedding::Placement::kRoundRobin;
  std::map<std::string, Column, std::less<>> columns_;
};

// A checkpoint opened for reading. Any fault found, now or later, is an Error that begins with
// "checkpoint '<folder>'" and says what is wrong with it.
class Checkpoint {
 public:
  // Checks the manifest, the small files, and each shard's size and header: all but the tensors.
  explicit Checkpoint(std::string folder);

  const std::string& folder() const { return folder_; }
  std::int64_t step() const { return step_; }
  std::optional<double> score() const { return score_; }
  const nlohmann::json& state() const { return state_; }
  const std::string& config() const { return config_; }
  const std::string& command() const { return command_; }

  // Reads every byte and compares its checksum; later reads skip theirs. Of several ranks each may
  // look at its share of the files, if all then agree that it is whole. Takes a few of the cores.
  void verify(int rank = 0, int ranks = 1);

  const TensorEntry* find(std::string_view name) const;  // null when absent

  // Copies one tensor, or all: then the names of the checkpoint (in the shards asked for, all when
  // empty) and of `into` must be the same set, or the error lists what differs.
  void read(const NamedTensor& into) const;
  void read_all(const std::vector<NamedTensor>& into,
                const std::vector<std::string>& shards = {}) const;
  SavedTable table(const std::string& name) const;  // throws where there is none
  // The tensor in place, for maps from old rows to new ones. Its checksum is checked first.
  template <class T, int Rank>
  View<const T, Rank> view(std::string_view name) const {
    const Found found = find_checked(name);
    return found.shard->file.view<T, Rank>(name);
  }

 private:
  struct Shard {
    std::string name;
    SafetensorsFile file;
    std::map<std::string, std::string> sums;  // CRC-32C as text, by tensor
  };
  struct Found {
    const Shard* shard;
    const TensorEntry* entry;
  };
  Found find_checked(std::string_view name) const;
  void check_sum(ThreadPool& pool, const Shard& shard, const TensorEntry& entry) const;
  std::string read_listed_file(const nlohmann::json& files, const std::string& name) const;
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    detail::throw_error("checkpoint '", folder_, "': ", parts...);
  }

  std::string folder_;
  int version_ = 0;
  std::int64_t step_ = 0;
  std::optional<double> score_;
  std::string command_;
  std::string config_;
  nlohmann::json state_;
  struct Table {
    std::int64_t rows;
    std::string placement;
    std::vector<Shard> parts;
  };
  Shard open_shard(const std::string& name, const nlohmann::json& fields) const;
  void add_column(SavedTable& table, const std::string& tensor,
                  const std::vector<const Shard*>& parts) const;

  std::vector<Shard> shards_;
  std::map<std::string, Table> tables_;
  bool verified_ = false;
};

// The folders that claim to be checkpoints, the one `latest` names first, then by falling step.
// Half-written ones are not among them. An absent folder has none.
std::vector<std::string> list_checkpoints(const std::string& folder);

// What is wrong with the folder's `latest` where it names no checkpoint that is there; else empty.
// Writers never leave it so.
std::string lost_latest(const std::string& folder);

// Whether a writer has opened the folder and saved nothing there yet. A folder that is empty
// without this has lost its checkpoints.
bool never_saved(const std::string& folder);

// The checkpoint that the folder's `best` names; empty when there is no such file or checkpoint.
std::string best_checkpoint(const std::string& folder);

// What a `latest` or `best` says; throws where it cannot be read.
std::string pointed_name(const std::string& file);

std::string checkpoint_name(std::int64_t step);                      // "step-000000300"
std::optional<std::int64_t> checkpoint_step(std::string_view name);  // nothing for another name

}  // namespace turbogr::checkpoint
