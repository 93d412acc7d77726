// A log as an Arrow stream: a row an event, or a row a user, where the item column holds lists (the
// sequential form). Columns are found by name like those of delimited text; a list column may have
// its name in the plural (item_ids).
#pragma once

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/arrow/arrow_stream.h"
#include "turbogr/data/bad_rows.h"
#include "turbogr/data/event_collector.h"
#include "turbogr/data/prepare.h"

namespace turbogr::data {

void read_arrow_log(ThreadPool& pool, ArrowStream& stream, const PrepareOptions& options,
                    EventCollector& events, BadRows& bad, PrepareReport& report);

}  // namespace turbogr::data
