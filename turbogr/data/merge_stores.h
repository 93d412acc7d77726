// Stores that hold parts of one log, as `prepare` with a shard makes them, become the store of the
// whole log: the bytes that one process reading all of it would have written.
#pragma once

#include <filesystem>
#include <vector>

#include "turbogr/data/prepare.h"

namespace turbogr::data {

// `options` says what prepare is to do with all events together (out, repeats, k-core, tables,
// memory); what tells how to read a log is the stores' own. Throws where a store is damaged or
// given twice, and where they differ in what they keep of an event.
PrepareReport merge_stores(const std::vector<std::filesystem::path>& parts, PrepareOptions options);

}  // namespace turbogr::data
