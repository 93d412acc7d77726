#include "turbogr/checkpoint/shared_checkpoint.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/row_pieces.h"

namespace turbogr::checkpoint {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Checkpoint open_newest_checkpoint(dist::Communicator& ranks, const std::string& folder,
                                  bool fall_back) {
  if (ranks.size() == 1) return open_newest_checkpoint(folder, fall_back);
  // Rank 0 says what there is: others may see a shared file system a moment later.
  std::string listing;
  if (ranks.rank() == 0) {
    for (const std::string& path : list_checkpoints(folder)) listing += path + "\n";
  }
  const std::vector<std::string> paths = lines_of(ranks.all_gather_text(listing)[0]);
  std::string first_fault = ranks.all_gather_text(ranks.rank() == 0 ? lost_latest(folder) : "")[0];
  for (const std::string& path : paths) {
    std::optional<Checkpoint> found;
    std::string fault;
    try {
      found.emplace(path);
      found->verify(ranks.rank(), ranks.size());
    } catch (const Error& error) {
      fault = error.what();
    }
    const std::vector<std::string> faults = ranks.all_gather_text(fault);
    const auto bad = std::find_if(faults.begin(), faults.end(),
                                  [](const std::string& text) { return !text.empty(); });
    if (bad != faults.end()) {
      if (first_fault.empty()) first_fault = *bad;
      continue;
    }
    if (!first_fault.empty()) {
      TGR_CHECK(fall_back, first_fault, ". The newest good one is '", path,
                "': set checkpoint.fall_back = true to go on from it");
      if (ranks.rank() == 0) {
        log::warn("{}. Going on from the newest good one, '{}'", first_fault, path);
      }
    }
    return *std::move(found);
  }
  TGR_CHECK(!paths.empty(), "there is no checkpoint in '", folder,
            "'; check the path: only a run that has saved one can be opened or resumed");
  detail::throw_error(first_fault, ". None of the ", paths.size(), " checkpoints in '", folder,
                      "' is whole");
}

CheckpointTable table_contents(const std::string& name, embedding::ItemTable& part,
                               const embedding::Sharding& sharding, int index) {
  CheckpointTable table = {.name = name,
                           .rows = sharding.rows(),
                           .placement = sharding.placement(),
                           .part = index,
                           .parts = sharding.shards(),
                           .tensors = {named(name, part.weight_tensor())}};
  if (part.has_first_moment()) {
    table.tensors.push_back(named(name + ".first_moment", part.first_moment()));
  }
  if (part.has_second_moment()) {
    table.tensors.push_back(named(name + ".second_moment", part.second_moment()));
  }
  return table;
}

void read_table(const Context& ctx, const Checkpoint& saved, const std::string& name,
                TableParts wanted, const embedding::Sharding& sharding, int index,
                embedding::ItemTable& part) {
  const SavedTable table = saved.table(name);
  for (const NamedTensor& tensor : table_contents(name, part, sharding, index).tensors) {
    if (wanted == TableParts::kWeights && tensor.name != name) continue;
    const std::int64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    TGR_CHECK(table.width(tensor.name) > 0, "checkpoint '", saved.folder(),
              "': it is of another model: it lacks ", tensor.name,
              "; use the config that wrote it (config.toml beside it)");
    TGR_CHECK(table.rows() == sharding.rows() && table.width(tensor.name) == width &&
                  table.dtype(tensor.name) == tensor.dtype,
              "checkpoint '", saved.folder(), "': it is of another model: ", tensor.name, " has ",
              table.rows(), " rows of ", table.width(tensor.name), " ",
              name_of(table.dtype(tensor.name)), ", ", sharding.rows(), " of ", width, " ",
              name_of(tensor.dtype),
              " wanted; use the config that wrote it (config.toml beside it)");
    const std::int64_t row_bytes = width * static_cast<std::int64_t>(size_of(tensor.dtype));
    for_each_piece(ctx, {tensor.data, tensor.device, sharding.rows_of(index), row_bytes},
                   PieceUse::kWrite, [&](const RowPiece& piece) {
                     table.read_part(ctx.host().pool(), tensor.name, sharding, index, piece.begin,
                                     piece.end, piece.data);
                     table.forget_pages();
                   });
  }
}

}  // namespace turbogr::checkpoint
