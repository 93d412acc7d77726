#include "turbogr/data/arrow/arrow_batch.h"

#include <cstring>
#include <memory>

namespace turbogr::data {
namespace {

constexpr std::int64_t kNullable = 2;  // the interface's ARROW_FLAG_NULLABLE

// A node with children, and the memory that all of them point to. A vector column has a child of
// its own: its numbers.
template <class Node, class Memory>
struct Given {
  Memory memory;
  std::vector<Node> children, numbers;
  std::vector<Node*> pointers, number_pointers;
  std::vector<std::vector<const void*>> buffers, number_buffers;
  const void* no_bitmap[1] = {nullptr};

  explicit Given(std::size_t columns)
      : children(columns), numbers(columns), number_buffers(columns) {
    for (std::size_t i = 0; i < columns; ++i) {
      pointers.push_back(&children[i]);
      number_pointers.push_back(&numbers[i]);
    }
  }
};

// The children's memory is the parent's: releasing one frees nothing by itself.
template <class Node>
void release_one(Node* node) {
  node->release = nullptr;
}
template <class Node, class Memory>
void release_all(Node* node) {
  delete static_cast<Given<Node, Memory>*>(node->private_data);
  node->release = nullptr;
}

}  // namespace

std::string ArrowBatch::ColumnType::format() const {
  switch (type) {
    case Type::kInt64:
      return "l";
    case Type::kUint32:
      return "I";
    case Type::kUint16:
      return "S";
    case Type::kUint8:
      return "C";
    case Type::kFloat32:
      return "f";
    case Type::kText:
      return "U";
    case Type::kVector:
      break;
  }
  return "+w:" + std::to_string(width);
}

ArrowBatch::ArrowBatch(const std::vector<ColumnType>& columns) {
  for (const ColumnType& about : columns) {
    Column& column = columns_.emplace_back();
    column.about = about;
    if (about.type == Type::kText) column.integers = {0};
  }
}

void ArrowBatch::add(std::size_t column, std::string_view value) {
  columns_[column].text += value;
  columns_[column].integers.push_back(std::ssize(columns_[column].text));
}

void ArrowBatch::add_missing(std::size_t column) {
  columns_[column].missing.push_back(columns_[column].integers.size());
  columns_[column].integers.push_back(0);
}

std::int64_t ArrowBatch::rows() const {
  const Column& first = columns_.front();
  if (first.is_integer()) return std::ssize(first.integers);
  if (first.about.type == Type::kText) return std::ssize(first.integers) - 1;
  return std::ssize(first.floats) / first.about.width;
}

// In as many bytes as the type has: on a little-endian machine the lowest ones.
const void* ArrowBatch::Column::narrow_integers() {
  const std::size_t bytes = about.type == Type::kUint32 ? 4 : about.type == Type::kUint16 ? 2 : 1;
  narrow.resize(bytes * integers.size());
  for (std::size_t i = 0; i < integers.size(); ++i) {
    std::memcpy(narrow.data() + i * bytes, &integers[i], bytes);
  }
  return narrow.data();
}

const void* ArrowBatch::Column::bitmap() {
  if (missing.empty()) return nullptr;
  there.assign(integers.size() / 8 + 1, 0xff);
  for (const std::size_t row : missing) {
    there[row / 8] = static_cast<std::uint8_t>(there[row / 8] & ~(1u << (row % 8)));
  }
  return there.data();
}

void ArrowBatch::describe(ArrowSchema* out) const {
  struct Words {
    std::string name, format;
  };
  using AllWords = std::vector<Words>;
  auto given = std::make_unique<Given<ArrowSchema, AllWords>>(columns_.size());
  for (const Column& column : columns_) {
    given->memory.push_back({column.about.name, column.about.format()});
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    ArrowSchema& child = given->children[i];
    child.format = given->memory[i].format.c_str();
    child.name = given->memory[i].name.c_str();
    child.flags = columns_[i].about.optional ? kNullable : 0;
    child.release = release_one<ArrowSchema>;
    if (columns_[i].about.type != Type::kVector) continue;
    ArrowSchema& numbers = given->numbers[i];
    numbers.format = "f";
    numbers.name = "item";
    numbers.release = release_one<ArrowSchema>;
    child.n_children = 1;
    child.children = &given->number_pointers[i];
  }
  *out = {};
  out->format = "+s";
  out->name = "";
  out->n_children = std::ssize(given->children);
  out->children = given->pointers.data();
  out->release = release_all<ArrowSchema, AllWords>;
  out->private_data = given.release();
}

void ArrowBatch::hand_over(ArrowArray* out) {
  auto given = std::make_unique<Given<ArrowArray, std::vector<Column>>>(columns_.size());
  const std::int64_t length = rows();
  std::vector<ColumnType> same;
  for (const Column& column : columns_) same.push_back(column.about);
  given->memory = std::move(columns_);
  *this = ArrowBatch(same);
  for (std::size_t i = 0; i < given->memory.size(); ++i) {
    Column& column = given->memory[i];
    std::vector<const void*>& buffers = given->buffers.emplace_back(1, column.bitmap());
    ArrowArray& child = given->children[i];
    if (column.about.type == Type::kVector) {
      std::vector<const void*>& number_buffers = given->number_buffers[i];
      number_buffers = {nullptr, column.floats.data()};
      ArrowArray& numbers = given->numbers[i];
      numbers.length = std::ssize(column.floats);
      numbers.n_buffers = 2;
      numbers.buffers = number_buffers.data();
      numbers.release = release_one<ArrowArray>;
      child.n_children = 1;
      child.children = &given->number_pointers[i];
    } else if (column.about.type == Type::kFloat32) {
      buffers.push_back(column.floats.data());
    } else if (column.is_integer() && column.about.type != Type::kInt64) {
      buffers.push_back(column.narrow_integers());
    } else {
      buffers.push_back(column.integers.data());
    }
    if (column.about.type == Type::kText) buffers.push_back(column.text.data());
    child.length = length;
    child.null_count = std::ssize(column.missing);
    child.n_buffers = std::ssize(buffers);
    child.release = release_one<ArrowArray>;
  }
  for (std::size_t i = 0; i < given->children.size(); ++i) {
    given->children[i].buffers = given->buffers[i].data();
  }
  *out = {};
  out->length = length;
  out->n_buffers = 1;
  out->buffers = given->no_bitmap;
  out->n_children = std::ssize(given->children);
  out->children = given->pointers.data();
  out->release = release_all<ArrowArray, std::vector<Column>>;
  out->private_data = given.release();
}

}  // namespace turbogr::data
