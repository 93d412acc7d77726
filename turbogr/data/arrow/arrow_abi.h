// The Arrow C data and stream interfaces: three structs whose layout is a published ABI
// (https://arrow.apache.org/docs/format/CDataInterface.html). Who fills one owns what it points to
// and frees it when `release` is called; a null `release` says that nothing is there (any more).
#pragma once

#include <cstdint>

// Whoever else defines them is told by these names, as the specification has it.
extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE  // NOLINT(readability-identifier-naming): as specified

struct ArrowSchema {
  const char* format;    // the type: "l" is int64, "u" a string, "+l" a list
  const char* name;      // may be null
  const char* metadata;  // may be null
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;  // of the values, where `format` is that of their indices
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;  // -1: not known
  std::int64_t offset;      // of the first value, in every buffer
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;  // the first is the bitmap of values that are there; null: all are
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE  // NOLINT(readability-identifier-naming): as specified

struct ArrowArrayStream {
  // Both return 0 or an errno, whose words are get_last_error's.
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);  // released `out`: the end
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

}  // extern "C"
