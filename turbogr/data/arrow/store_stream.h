// The events of a store as an Arrow stream, user after user in the order they are kept: what makes
// stores the input of another one.
#pragma once

#include "turbogr/data/arrow/arrow_abi.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// Fills `out`, which its reader releases. The store outlives it. Throws on a store whose events
// have bags: they cannot be told from one value.
void open_store_stream(const Store& store, ArrowArrayStream* out);

// What the stream's columns mean.
ColumnMap store_stream_columns(const Store& store);

}  // namespace turbogr::data
