// Columns in Python's memory as an Arrow stream of one batch: what a dictionary of NumPy arrays is
// read through, and how tables of results reach pandas, polars and pyarrow. Nothing is copied: the
// stream holds on to the buffers.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/module/bindings.h"
#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_abi.h"

namespace turbogr::python {
namespace {

constexpr const char* kCapsule = "arrow_array_stream";

// A buffer of a Python object, held until this goes; then the GIL is needed and taken.
struct HeldBuffer {
  Py_buffer view = {};
  HeldBuffer() = default;
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    if (view.obj == nullptr || Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire gil;
    PyBuffer_Release(&view);
  }
};

struct Column {
  std::string name;
  std::string format;
  std::vector<std::unique_ptr<HeldBuffer>> buffers;  // null: not there
};

struct Columns {
  std::vector<Column> columns;
  std::int64_t length = 0;
};
using Shared = std::shared_ptr<Columns>;

// A schema or an array of the whole batch, and what its pointers lead to.
template <class Node>
struct Tree {
  Shared columns;
  std::vector<Node> children;
  std::vector<Node*> pointers;
  std::vector<std::vector<const void*>> buffers;
  const void* no_buffers[1] = {nullptr};
};

template <class Node>
void release_tree(Node* node) {
  delete static_cast<Tree<Node>*>(node->private_data);
  node->release = nullptr;
}
template <class Node>
void release_child(Node* node) {
  node->release = nullptr;  // its memory is the parent's
}

int give_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  const Shared& columns = static_cast<std::pair<Shared, bool>*>(stream->private_data)->first;
  auto tree = std::make_unique<Tree<ArrowSchema>>();
  tree->columns = columns;
  tree->children.resize(columns->columns.size());
  constexpr std::int64_t kNullable = 2;
  for (std::size_t i = 0; i < tree->children.size(); ++i) {
    ArrowSchema& child = tree->children[i];
    child = {};
    child.format = columns->columns[i].format.c_str();
    child.name = columns->columns[i].name.c_str();
    child.flags = kNullable;
    child.release = release_child<ArrowSchema>;
    tree->pointers.push_back(&child);
  }
  *out = {};
  out->format = "+s";
  out->name = "";
  out->n_children = static_cast<std::int64_t>(tree->children.size());
  out->children = tree->pointers.data();
  out->release = release_tree<ArrowSchema>;
  out->private_data = tree.release();
  return 0;
}

int give_batch(ArrowArrayStream* stream, ArrowArray* out) {
  auto& [columns, given] = *static_cast<std::pair<Shared, bool>*>(stream->private_data);
  *out = {};
  if (std::exchange(given, true)) return 0;
  auto tree = std::make_unique<Tree<ArrowArray>>();
  tree->columns = columns;
  tree->children.resize(columns->columns.size());
  for (std::size_t i = 0; i < tree->children.size(); ++i) {
    auto& pointers = tree->buffers.emplace_back();
    for (const auto& buffer : columns->columns[i].buffers) {
      pointers.push_back(buffer ? buffer->view.buf : nullptr);
    }
  }
  for (std::size_t i = 0; i < tree->children.size(); ++i) {
    ArrowArray& child = tree->children[i];
    child = {};
    child.length = columns->length;
    child.null_count = tree->buffers[i][0] == nullptr ? 0 : -1;
    child.n_buffers = static_cast<std::int64_t>(tree->buffers[i].size());
    child.buffers = tree->buffers[i].data();
    child.release = release_child<ArrowArray>;
    tree->pointers.push_back(&child);
  }
  out->length = columns->length;
  out->n_buffers = 1;
  out->buffers = tree->no_buffers;
  out->n_children = static_cast<std::int64_t>(tree->children.size());
  out->children = tree->pointers.data();
  out->release = release_tree<ArrowArray>;
  out->private_data = tree.release();
  return 0;
}

const char* no_error(ArrowArrayStream*) { return nullptr; }

void release_stream(ArrowArrayStream* stream) {
  delete static_cast<std::pair<Shared, bool>*>(stream->private_data);
  stream->release = nullptr;
}

void delete_capsule(PyObject* capsule) {
  auto* stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (stream == nullptr) return;
  if (stream->release != nullptr) stream->release(stream);
  delete stream;
}

// `columns` are tuples (name, Arrow format, [buffer or None, ...]), the bitmap of values first.
nb::object columns_stream(const nb::list& columns, std::int64_t length) {
  auto shared = std::make_shared<Columns>();
  shared->length = length;
  for (const nb::handle entry : columns) {
    const auto parts = nb::cast<nb::tuple>(entry);
    Column& column = shared->columns.emplace_back();
    column.name = nb::cast<std::string>(parts[0]);
    column.format = nb::cast<std::string>(parts[1]);
    for (const nb::handle buffer : nb::cast<nb::list>(parts[2])) {
      auto& held = column.buffers.emplace_back();
      if (buffer.is_none()) continue;
      held = std::make_unique<HeldBuffer>();
      if (PyObject_GetBuffer(buffer.ptr(), &held->view, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    }
  }
  auto stream = std::make_unique<ArrowArrayStream>();
  stream->get_schema = give_schema;
  stream->get_next = give_batch;
  stream->get_last_error = no_error;
  stream->release = release_stream;
  stream->private_data = new std::pair<Shared, bool>(std::move(shared), false);
  PyObject* capsule = PyCapsule_New(stream.get(), kCapsule, delete_capsule);
  if (capsule == nullptr) {
    stream->release(stream.get());
    throw nb::python_error();
  }
  stream.release();  // the capsule's now
  return nb::steal(capsule);
}

}  // namespace

void bind_columns(nb::module_& module) {
  module.def("columns_stream", &columns_stream, nb::arg("columns"), nb::arg("length"),
             "An Arrow C stream, in its capsule, of one batch of columns that lie in buffers.");
}

}  // namespace turbogr::python
