#include "turbogr/data/arrow/arrow_batch.h"

#include <memory>

namespace turbogr::data {
namespace {

// A node with children, and the memory that all of them point to.
template <class Node, class Memory>
struct Given {
  Memory memory;
  std::vector<Node> children;
  std::vector<Node*> pointers;
  std::vector<std::vector<const void*>> buffers;
  const void* no_bitmap[1] = {nullptr};
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

ArrowBatch::ArrowBatch(const std::vector<std::pair<std::string, Type>>& columns) {
  for (const auto& [name, type] : columns) {
    Column& column = columns_.emplace_back();
    column.name = name;
    column.type = type;
    if (type == Type::kText) column.integers = {0};
  }
}

void ArrowBatch::add(std::size_t column, std::string_view value) {
  columns_[column].text += value;
  columns_[column].integers.push_back(std::ssize(columns_[column].text));
}

std::int64_t ArrowBatch::rows() const {
  const Column& first = columns_.front();
  return first.type == Type::kFloat32 ? std::ssize(first.floats)
                                      : std::ssize(first.integers) - (first.type == Type::kText);
}

void ArrowBatch::describe(ArrowSchema* out) const {
  using Names = std::vector<std::string>;
  auto given = std::make_unique<Given<ArrowSchema, Names>>();
  for (const Column& column : columns_) given->memory.push_back(column.name);
  given->children.resize(columns_.size());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    ArrowSchema& child = given->children[i] = {};
    child.format = columns_[i].type == Type::kInt64     ? "l"
                   : columns_[i].type == Type::kFloat32 ? "f"
                                                        : "U";
    child.name = given->memory[i].c_str();
    child.release = release_one<ArrowSchema>;
    given->pointers.push_back(&child);
  }
  *out = {};
  out->format = "+s";
  out->name = "";
  out->n_children = std::ssize(given->children);
  out->children = given->pointers.data();
  out->release = release_all<ArrowSchema, Names>;
  out->private_data = given.release();
}

void ArrowBatch::hand_over(ArrowArray* out) {
  auto given = std::make_unique<Given<ArrowArray, std::vector<Column>>>();
  const std::int64_t length = rows();
  std::vector<std::pair<std::string, Type>> same;
  for (const Column& column : columns_) same.emplace_back(column.name, column.type);
  given->memory = std::move(columns_);
  *this = ArrowBatch(same);
  for (const Column& column : given->memory) {
    auto& buffers = given->buffers.emplace_back();
    buffers.push_back(nullptr);
    if (column.type == Type::kFloat32) {
      buffers.push_back(column.floats.data());
    } else {
      buffers.push_back(column.integers.data());
    }
    if (column.type == Type::kText) buffers.push_back(column.text.data());
  }
  given->children.resize(given->memory.size());
  for (std::size_t i = 0; i < given->children.size(); ++i) {
    ArrowArray& child = given->children[i] = {};
    child.length = length;
    child.n_buffers = std::ssize(given->buffers[i]);
    child.buffers = given->buffers[i].data();
    child.release = release_one<ArrowArray>;
    given->pointers.push_back(&child);
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
