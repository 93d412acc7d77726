// An Arrow C stream, open for reading: its columns by name, then batch after batch. The memory is
// the producer's; nothing is copied.
//
//   ArrowStream stream("the frame", raw);
//   while (stream.next()) use(stream.batch());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/arrow/arrow_abi.h"

namespace turbogr::data {

class ArrowStream {
 public:
  // Takes what `raw` holds: it is empty afterwards. `name` is for messages. Throws when the stream
  // is none of record batches.
  ArrowStream(std::string name, ArrowArrayStream* raw);
  ~ArrowStream();
  ArrowStream(const ArrowStream&) = delete;
  ArrowStream& operator=(const ArrowStream&) = delete;

  const std::string& name() const { return name_; }
  std::vector<std::string> column_names() const;
  const ArrowSchema& column(std::size_t index) const { return *schema_.children[index]; }

  // To the next batch, the last one going; false at the end. Throws what the producer says.
  bool next();
  const ArrowArray& batch() const { return batch_; }  // until the next next()

 private:
  void check(int status, const char* doing);
  void free_batch();

  std::string name_;
  ArrowArrayStream stream_ = {};
  ArrowSchema schema_ = {};
  ArrowArray batch_ = {};
};

}  // namespace turbogr::data
