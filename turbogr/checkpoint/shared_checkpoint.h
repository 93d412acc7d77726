// Checkpoints and the tables of ranks: each rank reads and checks its part, and all agree on which
// checkpoint it is.
#pragma once

#include <cstdint>
#include <string>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/embedding/sharding.h"

namespace turbogr::checkpoint {

// Opening, collective: rank 0 says which checkpoint it is, each rank reads and compares its share
// of the bytes, and one rank's fault is everybody's. All may be called while a run saves there:
// what it has replaced or removed in between is looked for again. Without ranks: alone.

// The newest checkpoint. When it is damaged or gone: with fall_back the newest good one before it,
// with a warning in the log; without, an Error that names both.
Checkpoint open_newest_checkpoint(dist::Communicator& ranks, const std::string& folder,
                                  bool fall_back);
Checkpoint open_newest_checkpoint(const std::string& folder, bool fall_back);

// The one named. When it is damaged the Error names the newest good one beside it.
Checkpoint open_named_checkpoint(dist::Communicator& ranks, const std::string& path);
Checkpoint open_named_checkpoint(const std::string& path);

// The one that `latest` or `best` beside it names.
Checkpoint open_pointed_checkpoint(dist::Communicator& ranks, const std::string& file);
Checkpoint open_pointed_checkpoint(const std::string& file);

// A rank's part of a table, for a checkpoint.
CheckpointTable table_contents(const std::string& name, embedding::ItemTable& part,
                               const embedding::Sharding& sharding, int index);

enum class TableParts : std::uint8_t { kWeights, kAll };  // all: the optimiser's state, too
// Reads a rank's part from a table that was saved by any number of ranks.
void read_table(const Context& ctx, const Checkpoint& saved, const std::string& name,
                TableParts wanted, const embedding::Sharding& sharding, int index,
                embedding::ItemTable& part);

}  // namespace turbogr::checkpoint
