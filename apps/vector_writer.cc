#include "apps/vector_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <utility>

#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/arrow/parquet_files.h"

namespace turbogr::apps {
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

std::vector<std::int64_t> numbers_of(const data::IdMap& ids) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < ids.size(); ++i) numbers.push_back(ids.integer(i));
  return numbers;
}

template <class T>
NamedTensor list_tensor(std::string name, std::vector<T>& values) {
  return named(std::move(name), View<T, 1>{values.data(), {std::ssize(values)}});
}

void write_one_safetensors(const std::string& path, const std::vector<ExportedVectors>& all) {
  std::vector<NamedTensor> tensors;
  std::deque<std::vector<std::int64_t>> numbers;  // never moved: tensors point into them
  std::deque<std::vector<std::uint8_t>> texts;
  for (const ExportedVectors& each : all) {
    const std::string what(each.what);
    tensors.push_back(named(what + "s", each.vectors));
    if (each.trained != nullptr) tensors.push_back(list_tensor(what + "s_trained", *each.trained));
    if (!are_texts(each.ids)) {
      tensors.push_back(list_tensor(what + "_ids", numbers.emplace_back(numbers_of(each.ids))));
      continue;
    }
    std::vector<std::uint8_t>& text = texts.emplace_back();
    std::vector<std::int64_t>& ends = numbers.emplace_back();
    for (std::int64_t i = 0; i < each.ids.size(); ++i) {
      const std::string_view id = each.ids.string(i);
      text.insert(text.end(), id.begin(), id.end());
      ends.push_back(std::ssize(text));
    }
    tensors.push_back(list_tensor(what + "_ids.text", text));
    tensors.push_back(list_tensor(what + "_ids.ends", ends));
  }
  OutputTarget target(path);
  checkpoint::write_safetensors(target.writing(), tensors, {});
  target.put_in_place();
}

// NumPy's own format, version 1:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
void write_npy(const std::string& path, std::string_view dtype,
               const std::vector<std::int64_t>& shape, const void* data, std::size_t bytes) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += fmt::format("{},", size);
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
  file.write(data, bytes);
  file.finish();
}

void write_npy_ids(const std::string& path, const data::IdMap& ids) {
  if (!are_texts(ids)) {
    const std::vector<std::int64_t> numbers = numbers_of(ids);
    write_npy(path, "<i8", {ids.size()}, numbers.data(), numbers.size() * sizeof(numbers[0]));
    return;
  }
  std::size_t longest = 1;
  for (std::int64_t i = 0; i < ids.size(); ++i) longest = std::max(longest, ids.string(i).size());
  std::string all(longest * static_cast<std::size_t>(ids.size()), '\0');
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    const std::string_view id = ids.string(i);
    std::copy(id.begin(), id.end(), all.begin() + i * static_cast<std::int64_t>(longest));
  }
  write_npy(path, fmt::format("|S{}", longest), {ids.size()}, all.data(), all.size());
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
    write_npy(file(what + "s"), "<f4", each.vectors.shape(), each.vectors.data(),
              each.vectors.bytes());
    write_npy_ids(file(what + "_ids"), each.ids);
    if (each.trained != nullptr) {
      write_npy(file(what + "s_trained"), "|u1", {std::ssize(*each.trained)}, each.trained->data(),
                each.trained->size());
    }
  }
  return files.put_in_place();
}

void write_one_parquet(const std::string& path, const ExportedVectors& each) {
  using Type = data::ArrowBatch::Type;
  const bool texts = are_texts(each.ids);
  const View<float, 2> vectors = each.vectors.view<float, 2>();
  std::vector<data::ArrowBatch::ColumnType> columns = {
      {std::string(each.what), texts ? Type::kText : Type::kInt64},
      {"vector", Type::kVector, vectors.shape[1]}};
  if (each.trained != nullptr) columns.push_back({"trained", Type::kInt64});
  data::ParquetWriter writer(path, data::ArrowBatch(columns));
  for (std::int64_t row = 0; row < each.ids.size(); ++row) {
    if (texts) {
      writer.rows().add(0, each.ids.string(row));
    } else {
      writer.rows().add(0, each.ids.integer(row));
    }
    for (std::int64_t c = 0; c < vectors.shape[1]; ++c) writer.rows().add(1, vectors(row, c));
    if (each.trained != nullptr) {
      writer.rows().add(2, std::int64_t{(*each.trained)[static_cast<std::size_t>(row)]});
    }
    writer.flush_if_many();
  }
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

}  // namespace turbogr::apps
