// A safetensors file.
#include "turbogr/checkpoint/safetensors.h"

#include <sys/mman.h>

#include "tests/fuzz/support.h"
#include "turbogr/core/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr;
  static ThreadPool pool(1);
  const FileHandle memory(::memfd_create("fuzz", 0));
  write_all(memory.get(), std::as_bytes(std::span(data, size)), "fuzz");
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  fuzz::errors_are_fine([&] {
    const checkpoint::SafetensorsFile file(path);
    file.header_sum();
    for (const checkpoint::TensorEntry& entry : file.entries()) {
      fuzz::expect(file.find(entry.name) != nullptr, "an entry is found by its name");
      fuzz::expect(entry.begin <= size && entry.bytes <= size - entry.begin,
                   "a tensor lies within its file");
      file.sum_of(pool, entry);  // reads every byte
    }
    fuzz::errors_are_fine([&] { file.view<float, 2>("w"); });
  });
  return 0;
}
