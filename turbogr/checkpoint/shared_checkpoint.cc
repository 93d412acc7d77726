#include "turbogr/checkpoint/shared_checkpoint.h"

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/row_pieces.h"

namespace turbogr::checkpoint {
namespace {

// A writer at work adds, replaces and removes checkpoints while they are opened. What fails and has
// changed meanwhile is looked at again, so many times at most.
constexpr int kAttempts = 20;

// Another number for another folder of the same name.
std::uint64_t identity_of(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

using Listing = std::vector<std::pair<std::string, std::uint64_t>>;
Listing listing_of(const std::string& folder) {
  Listing listing;
  for (std::string& path : list_checkpoints(folder)) {
    const std::uint64_t identity = identity_of(path);
    listing.emplace_back(std::move(path), identity);
  }
  return listing;
}

// What rank 0 says, on every rank: others may see a shared file system a moment later.
template <class Says>
std::string of_rank_0(dist::Communicator& ranks, Says&& says) {
  return ranks.all_gather_text(ranks.rank() == 0 ? says() : std::string())[0];
}
template <class Holds>
bool rank_0_finds(dist::Communicator& ranks, Holds&& holds) {
  return !of_rank_0(ranks, [&] { return std::string(holds() ? "yes" : ""); }).empty();
}

// Of rank 0 alone, so nothing is thrown: a file that cannot be read names nothing.
std::string pointed(const std::string& file) {
  try {
    return pointed_name(file);
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// One that is whole for all ranks, each of which has looked at its share of the bytes, and the same
// for all; else nothing. The first fault of several is the one worth telling.
std::optional<Checkpoint> open_whole(dist::Communicator& ranks, const std::string& path,
                                     std::string& first_fault) {
  std::optional<Checkpoint> found;
  std::string fault, manifest;
  try {
    found.emplace(path);
    found->verify(ranks.rank(), ranks.size());
    manifest = read_file(path + "/manifest.json");
  } catch (const Error& error) {
    fault = error.what();
  }
  const std::vector<std::string> manifests = ranks.all_gather_text(manifest);
  if (fault.empty() && !manifests[0].empty() && manifest != manifests[0]) {
    fault = "checkpoint '" + path +
            "': it is another one than rank 0 finds there; give all machines the same files";
  }
  const std::vector<std::string> faults = ranks.all_gather_text(fault);
  for (std::size_t rank = 0; rank < faults.size(); ++rank) {
    if (faults[rank].empty()) continue;
    if (first_fault.empty()) {
      first_fault = faults[rank];
      if (ranks.size() > 1) first_fault += " (found by rank " + std::to_string(rank) + ")";
    }
    return std::nullopt;
  }
  return found;
}

}  // namespace

Checkpoint open_newest_checkpoint(dist::Communicator& ranks, const std::string& folder,
                                  bool fall_back) {
  for (int attempt = 1;; ++attempt) {
    Listing listing;
    const std::vector<std::string> paths = lines_of(of_rank_0(ranks, [&] {
      listing = listing_of(folder);
      std::string text;
      for (const auto& [path, identity] : listing) text += path + "\n";
      return text;
    }));
    std::string fault = of_rank_0(ranks, [&] { return lost_latest(folder); });
    std::optional<Checkpoint> whole;
    for (const std::string& path : paths) {
      if ((whole = open_whole(ranks, path, fault))) break;
    }
    if (whole && fault.empty()) return *std::move(whole);
    const bool again =
        rank_0_finds(ranks, [&] { return attempt < kAttempts && listing_of(folder) != listing; });
    if (again) continue;
    TGR_CHECK(!paths.empty(), "there is no checkpoint in '", folder,
              "'; check the path: only a run that has saved one can be opened or resumed");
    TGR_CHECK(whole, fault, ". None of the ", paths.size(), " checkpoints in '", folder,
              "' is whole");
    TGR_CHECK(fall_back, fault, ". The newest good one is '", whole->folder(),
              "': set checkpoint.fall_back = true to go on from it");
    if (ranks.rank() == 0) {
      log::warn("{}. Going on from the newest good one, '{}'", fault, whole->folder());
    }
    return *std::move(whole);
  }
}

Checkpoint open_named_checkpoint(dist::Communicator& ranks, const std::string& given) {
  const std::string path = of_rank_0(ranks, [&] { return given; });
  std::string fault;
  for (int attempt = 1;; ++attempt) {
    const std::uint64_t identity = identity_of(path);
    fault.clear();
    if (std::optional<Checkpoint> whole = open_whole(ranks, path, fault)) return *std::move(whole);
    const bool again =
        rank_0_finds(ranks, [&] { return attempt < kAttempts && identity_of(path) != identity; });
    if (!again) break;
  }
  const std::vector<std::string> others = lines_of(of_rank_0(ranks, [&] {
    const std::filesystem::path named = std::filesystem::weakly_canonical(path);
    std::string text;
    for (const std::string& other : list_checkpoints(named.parent_path().string())) {
      if (other != named) text += other + "\n";
    }
    return text;
  }));
  for (const std::string& other : others) {
    std::string ignored;
    TGR_CHECK(!open_whole(ranks, other, ignored), fault, ". The newest good one beside it is '",
              other, "'");
  }
  throw Error(fault);
}

Checkpoint open_pointed_checkpoint(dist::Communicator& ranks, const std::string& file) {
  for (int attempt = 1;; ++attempt) {
    std::string name;
    const std::string chosen = of_rank_0(ranks, [&] {
      name = pointed(file);
      const std::filesystem::path folder = std::filesystem::path(file).parent_path();
      return checkpoint_step(name) ? (folder / name).string() : "";
    });
    try {
      TGR_CHECK(!chosen.empty(), "'", file,
                "' names no checkpoint; give a run folder, a checkpoint, or its `latest` or "
                "`best`");
      return open_named_checkpoint(ranks, chosen);
    } catch (const Error&) {
      const bool again =
          rank_0_finds(ranks, [&] { return attempt < kAttempts && pointed(file) != name; });
      if (!again) throw;
    }
  }
}

Checkpoint open_newest_checkpoint(const std::string& folder, bool fall_back) {
  return open_newest_checkpoint(*dist::make_self(), folder, fall_back);
}
Checkpoint open_named_checkpoint(const std::string& path) {
  return open_named_checkpoint(*dist::make_self(), path);
}
Checkpoint open_pointed_checkpoint(const std::string& file) {
  return open_pointed_checkpoint(*dist::make_self(), file);
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
