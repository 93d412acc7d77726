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

// As open_newest_checkpoint, the same one on every rank. Collective.
Checkpoint open_newest_checkpoint(dist::Communicator& ranks, const std::string& folder,
                                  bool fall_back);

// A rank's part of a table, for a checkpoint.
CheckpointTable table_contents(const std::string& name, embedding::ItemTable& part,
                               const embedding::Sharding& sharding, int index);

enum class TableParts : std::uint8_t { kWeights, kAll };  // all: the optimiser's state, too
// Reads a rank's part from a table that was saved by any number of ranks.
void read_table(const Context& ctx, const Checkpoint& saved, const std::string& name,
                TableParts wanted, const embedding::Sharding& sharding, int index,
                embedding::ItemTable& part);

}  // namespace turbogr::checkpoint
