#include "turbogr/run/vector_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <utility>

#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/arrow/parquet_files.h"

namespace turbogr::run {
namespace {

std::string extension_of(const std::string& path) {
  return std::filesystem::path(path).extension().string();
}

// "vectors.npy" and "items" to "vectors.items.npy".
std::string part_of(const std::string& path, std::string_view part) {
  std::filesystem::path file(path);
  const std::string extension = file.extension().string();
  return file.replace_extension().string() + "." + std::string(part) + extension;
}

bool are_texts(const data::IdMap& ids) { return ids.kind() == data::IdKind::kString; }

// Small things on their way to a file.
class Bytes {
 public:
  explicit Bytes(OutputFile& file) : file_(file) {}
  void add(std::string_view bytes) {
    held_ += bytes;
    if (held_.size() >= kHeld) flush();
  }
  void add(std::int64_t number) { add({reinterpret_cast<const char*>(&number), sizeof(number)}); }
  void flush() {
    file_.write(held_);
    held_.clear();
  }

 private:
  static constexpr std::size_t kHeld = 1 << 20;
  OutputFile& file_;
  std::string held_;
};

// Calls add(bytes, index) for every id.
template <class Add>
checkpoint::TensorStream id_stream(std::string name, DType dtype, std::int64_t size,
                                   const data::IdMap& ids, Add add) {
  return {std::move(name), dtype, {size}, [&ids, add](OutputFile& file) {
            Bytes bytes(file);
            Add next = add;  // may count
            for (std::int64_t i = 0; i < ids.size(); ++i) next(bytes, i);
            bytes.flush();
          }};
}

checkpoint::TensorStream vector_stream(const ExportedVectors& each) {
  return {std::string(each.what) + "s",
          DType::kF32,
          {each.ids.size(), each.width},
          [&each](OutputFile& file) {
            each.give([&](View<const float, 2> block) {
              file.write(block.data, static_cast<std::size_t>(block.size()) * sizeof(float));
            });
          }};
}

checkpoint::TensorStream trained_stream(const ExportedVectors& each) {
  return {std::string(each.what) + "s_trained",
          DType::kU8,
          {std::ssize(*each.trained)},
          [&each](OutputFile& file) { file.write(each.trained->data(), each.trained->size()); }};
}

checkpoint::TensorStream number_stream(const ExportedVectors& each) {
  const data::IdMap& ids = each.ids;
  return id_stream(std::string(each.what) + "_ids", DType::kI64, ids.size(), ids,
                   [&ids](Bytes& bytes, std::int64_t i) { bytes.add(ids.integer(i)); });
}

void write_one_safetensors(const std::string& path, const std::vector<ExportedVectors>& all) {
  std::vector<checkpoint::TensorStream> tensors;
  for (const ExportedVectors& each : all) {
    tensors.push_back(vector_stream(each));
    if (each.trained != nullptr) tensors.push_back(trained_stream(each));
    if (!are_texts(each.ids)) {
      tensors.push_back(number_stream(each));
      continue;
    }
    const data::IdMap& ids = each.ids;
    const std::string name = std::string(each.what) + "_ids";
    std::int64_t text = 0;
    for (std::int64_t i = 0; i < ids.size(); ++i) text += std::ssize(ids.string(i));
    tensors.push_back(
        id_stream(name + ".text", DType::kU8, text, ids,
                  [&ids](Bytes& bytes, std::int64_t i) { bytes.add(ids.string(i)); }));
    tensors.push_back(
        id_stream(name + ".ends", DType::kI64, ids.size(), ids,
                  [&ids, end = std::int64_t{0}](Bytes& bytes, std::int64_t i) mutable {
                    end += std::ssize(ids.string(i));
                    bytes.add(end);
                  }));
  }
  OutputTarget target(path);
  checkpoint::stream_safetensors(target.writing(), tensors);
  target.put_in_place();
}

// NumPy's own format, version 1:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
void write_npy(const std::string& path, std::string_view dtype,
               const checkpoint::TensorStream& tensor) {
  std::string sizes;
  for (const std::int64_t size : tensor.shape) sizes += fmt::format("{},", size);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({})}}", dtype, sizes);
  constexpr std::size_t kPreamble = 10, kAlignment = 64;
  header.resize(
      (header.size() + 1 + kPreamble + kAlignment - 1) / kAlignment * kAlignment - kPreamble - 1,
      ' ');
  header += '\n';
  std::string preamble = "\x93NUMPY";
  for (const std::size_t byte :
       {std::size_t{1}, std::size_t{0}, header.size() % 256, header.size() / 256}) {
    preamble += static_cast<char>(byte);
  }
  OutputFile file(path);
  file.write(preamble);
  file.write(header);
  tensor.write(file);
  file.finish();
}

void write_npy_ids(const std::string& path, const ExportedVectors& each) {
  const data::IdMap& ids = each.ids;
  if (!are_texts(ids)) return write_npy(path, "<i8", number_stream(each));
  std::size_t longest = 1;
  for (std::int64_t i = 0; i < ids.size(); ++i) longest = std::max(longest, ids.string(i).size());
  const auto add = [&ids, longest](Bytes& bytes, std::int64_t i) {
    std::string id(ids.string(i));
    id.resize(longest, '\0');
    bytes.add(id);
  };
  write_npy(path, fmt::format("|S{}", longest), id_stream("", DType::kU8, ids.size(), ids, add));
}

// Files that belong together: none is in its place before all are written.
class FilesTogether {
 public:
  // Where to write what becomes `path`.
  const std::string& add(const std::string& path) {
    paths_.push_back(path);
    return targets_.emplace_back(path).writing();
  }
  std::vector<std::string> put_in_place() {
    for (OutputTarget& target : targets_) target.put_in_place();
    return paths_;
  }

 private:
  std::vector<std::string> paths_;
  std::deque<OutputTarget> targets_;
};

std::vector<std::string> write_npy_files(const std::string& path,
                                         const std::vector<ExportedVectors>& all) {
  FilesTogether files;
  const auto file = [&](const std::string& part) { return files.add(part_of(path, part)); };
  for (const ExportedVectors& each : all) {
    const std::string what(each.what);
    write_npy(file(what + "s"), "<f4", vector_stream(each));
    write_npy_ids(file(what + "_ids"), each);
    if (each.trained != nullptr) {
      write_npy(file(what + "s_trained"), "|u1", trained_stream(each));
    }
  }
  return files.put_in_place();
}

void write_one_parquet(const std::string& path, const ExportedVectors& each) {
  using Type = data::ArrowBatch::Type;
  const bool texts = are_texts(each.ids);
  std::vector<data::ArrowBatch::ColumnType> columns = {
      {std::string(each.what), texts ? Type::kText : Type::kInt64},
      {"vector", Type::kVector, each.width}};
  if (each.trained != nullptr) columns.push_back({"trained", Type::kInt64});
  data::ParquetWriter writer(path, data::ArrowBatch(columns));
  std::int64_t row = 0;
  each.give([&](View<const float, 2> block) {
    for (std::int64_t r = 0; r < block.shape[0]; ++r, ++row) {
      if (texts) {
        writer.rows().add(0, each.ids.string(row));
      } else {
        writer.rows().add(0, each.ids.integer(row));
      }
      for (std::int64_t c = 0; c < each.width; ++c) writer.rows().add(1, block(r, c));
      if (each.trained != nullptr) {
        writer.rows().add(2, std::int64_t{(*each.trained)[static_cast<std::size_t>(row)]});
      }
      writer.flush_if_many();
    }
  });
  writer.finish();
}

}  // namespace

void check_vector_file(const std::string& path) {
  const std::string extension = extension_of(path);
  TGR_CHECK(extension == ".safetensors" || extension == ".npy" || extension == ".parquet",
            "cannot write '", path,
            "': vectors are written as .safetensors, .npy or .parquet; end the name of --out in "
            "one of these");
}

std::vector<std::string> write_vectors(const std::string& path,
                                       const std::vector<ExportedVectors>& all) {
  const std::string extension = extension_of(path);
  if (extension == ".npy") return write_npy_files(path, all);
  if (extension == ".safetensors") {
    write_one_safetensors(path, all);
    return {path};
  }
  FilesTogether files;
  for (const ExportedVectors& each : all) {
    write_one_parquet(files.add(part_of(path, std::string(each.what) + "s")), each);
  }
  return files.put_in_place();
}

}  // namespace turbogr::run
