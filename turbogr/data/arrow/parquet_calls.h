// What the program asks of libturbogr_parquet.so, which is built against the Arrow C++ library of a
// pyarrow (`make parquet`) and opened when Parquet is asked for: plain C, so that neither side
// needs the other's headers or compiler.
#pragma once

#include <cstdint>

#include "turbogr/data/arrow/arrow_abi.h"

extern "C" {

// Functions return null, or what went wrong: words that live until the thread's next call.
struct TurbogrParquetCalls {
  int version;                 // of this struct
  const char* built_for;       // the Arrow it was compiled against: "26.0.1"
  const char* (*runs_with)();  // the Arrow that was loaded
  // The columns of files and (hive-partitioned) folders, those of the first file where they differ.
  const char* (*columns)(const char* const* paths, std::int64_t num_paths, ArrowSchema* out);
  // Batches of the columns named, in the order of the paths and of the names in folders, each of
  // about batch_bytes in memory at most. One is read ahead.
  const char* (*read)(const char* const* paths, std::int64_t num_paths, const char* const* columns,
                      std::int64_t num_columns, std::int64_t batch_bytes, ArrowArrayStream* out);
  // Takes the schema; batches then, and the end, which writes what readers look for first.
  const char* (*open_writer)(const char* path, ArrowSchema* schema, void** writer);
  const char* (*write)(void* writer, ArrowArray* batch);
  const char* (*close_writer)(void* writer);  // frees it in any case
};

const TurbogrParquetCalls* turbogr_parquet_calls();

}  // extern "C"

namespace turbogr::data {

inline constexpr int kParquetCallsVersion = 2;

// The library, opened once. Throws when it is not there or was built for another Arrow, saying
// which and what to do.
const TurbogrParquetCalls& parquet_calls();

}  // namespace turbogr::data
