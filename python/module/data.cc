// prepare and the store it makes.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "python/module/bindings.h"
#include "python/module/host.h"
#include "turbogr/core/check.h"
#include "turbogr/data/arrow/parquet_files.h"
#include "turbogr/data/kuairand_inputs.h"
#include "turbogr/data/log_inputs.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/merge_stores.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"
#include "turbogr/data/yambda/yambda_inputs.h"

namespace turbogr::python {
namespace {

using data::PrepareOptions;
using data::PrepareReport;

// The stream in a capsule of the Arrow PyCapsule interface, which keeps it.
ArrowArrayStream* stream_of(const nb::object& capsule) {
  void* stream = PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
  if (stream == nullptr) throw nb::python_error();
  return static_cast<ArrowArrayStream*>(stream);
}

// Tuples (name, capsule or None, kept in the store); without a capsule the name is a path.
std::vector<data::TableInput> tables_of(const nb::list& entries) {
  std::vector<data::TableInput> tables;
  for (const nb::handle entry : entries) {
    const auto parts = nb::cast<nb::tuple>(entry);
    tables.emplace_back(nb::cast<std::filesystem::path>(parts[0]));
    if (!parts[1].is_none()) tables.back().stream = stream_of(parts[1]);
    tables.back().kept = nb::cast<bool>(parts[2]);
  }
  return tables;
}

// Changes `options` of KuaiRand's or Yambda's files to those of any log; (their format, user
// tables, item tables, remarks), tables as tuples of a path and whether the store keeps them.
nb::tuple resolve_published(PrepareOptions& options, const std::string& format) {
  std::vector<std::string> remarks;
  options.format = data::log_format_from_name(format);
  options = options.format == data::LogFormat::kYambda ? data::yambda_options(options, remarks)
                                                       : data::kuairand_options(options, remarks);
  const auto listed = [](std::vector<data::TableInput>& tables) {
    nb::list list;
    for (const data::TableInput& table : tables) {
      list.append(nb::make_tuple(table.path.string(), table.kept));
    }
    tables.clear();
    return list;
  };
  nb::list words;
  for (const std::string& remark : remarks) words.append(remark);
  const char* name = options.format == data::LogFormat::kParquet ? "parquet"
                     : options.format == data::LogFormat::kCsv   ? "csv"
                                                                 : "kuairand";
  return nb::make_tuple(name, listed(options.user_tables), listed(options.item_tables), words);
}

data::Repeats repeats_of(const std::string& name) {
  return name == "events"  ? data::Repeats::kDropEvents
         : name == "items" ? data::Repeats::kDropItems
                           : data::Repeats::kKeep;
}

PrepareReport prepare(PrepareOptions options, const std::string& format,
                      const std::string& on_error, const std::string& repeats,
                      const nb::list& streams, const nb::list& user_tables,
                      const nb::list& item_tables) {
  options.format = data::log_format_from_name(format);
  TGR_CHECK(on_error == "stop" || on_error == "skip", "on_error is stop or skip, not '", on_error,
            "'");
  options.bad_rows.skip = on_error == "skip";
  options.repeats = repeats_of(repeats);
  for (const nb::handle entry : streams) {
    const auto parts = nb::cast<nb::tuple>(entry);
    options.streams.push_back({nb::cast<std::string>(parts[0]), stream_of(parts[1])});
  }
  options.user_tables = tables_of(user_tables);
  options.item_tables = tables_of(item_tables);
  return interruptible([&] { return data::prepare(options); });
}

// Python holds stores by pointer; they are never copied.
struct OpenStore : data::Store {
  using data::Store::Store;
  OpenStore(const OpenStore&) = delete;
  OpenStore& operator=(const OpenStore&) = delete;
};

nb::object ids_of(const data::IdMap& ids) {
  nb::list list;
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    if (ids.kind() != data::IdKind::kString) {
      list.append(ids.integer(i));
    } else {
      const std::string_view text = ids.string(i);
      PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                               "surrogateescape");
      if (decoded == nullptr) throw nb::python_error();
      list.append(nb::steal(decoded));
    }
  }
  return list;
}

}  // namespace

void bind_data(nb::module_& module) {
  nb::class_<PrepareOptions>(module, "PrepareOptions")
      .def(nb::init<>())
      .def_rw("inputs", &PrepareOptions::inputs)
      .def_rw("out", &PrepareOptions::out)
      .def_rw("overwrite", &PrepareOptions::overwrite)
      .def_rw("time_unit", &PrepareOptions::time_unit)
      .def_rw("ids", &PrepareOptions::ids)
      .def_rw("keep_signal", &PrepareOptions::keep_signal)
      .def_rw("min_user", &PrepareOptions::min_user)
      .def_rw("min_item", &PrepareOptions::min_item)
      .def_rw("memory_bytes", &PrepareOptions::memory_bytes)
      .def_rw("threads", &PrepareOptions::threads)
      .def_rw("user_features", &PrepareOptions::user_features)
      .def_rw("item_features", &PrepareOptions::item_features)
      .def_rw("keep_items_without_events", &PrepareOptions::keep_items_without_events)
      .def_rw("shard", &PrepareOptions::shard)
      .def_rw("shards", &PrepareOptions::shards)
      .def_prop_rw(
          "max_bad", [](const PrepareOptions& o) { return o.bad_rows.max_bad; },
          [](PrepareOptions& o, std::int64_t value) { o.bad_rows.max_bad = value; })
#define TGR_COLUMN(field, name)                                      \
  .def_prop_rw(                                                      \
      name, [](const PrepareOptions& o) { return o.columns.field; }, \
      [](PrepareOptions& o, const decltype(o.columns.field)& value) { o.columns.field = value; })
          TGR_COLUMN(user, "user") TGR_COLUMN(item, "item") TGR_COLUMN(time, "time")
              TGR_COLUMN(signals, "signals") TGR_COLUMN(numbers, "numbers")
                  TGR_COLUMN(features, "event_features") TGR_COLUMN(labels, "labels")
                      TGR_COLUMN(delimiter, "delimiter") TGR_COLUMN(header, "header");
#undef TGR_COLUMN
  nb::class_<PrepareReport>(module, "PrepareReport", "What prepare read, kept and left out.")
      .def_ro("rows", &PrepareReport::rows)
      .def_ro("bad_rows", &PrepareReport::bad_rows)
      .def_ro("without_signal", &PrepareReport::without_signal)
      .def_ro("repeated", &PrepareReport::repeated)
      .def_ro("filtered", &PrepareReport::filtered)
      .def_ro("users", &PrepareReport::users)
      .def_ro("short_users", &PrepareReport::short_users)
      .def_ro("items", &PrepareReport::items)
      .def_ro("items_without_events", &PrepareReport::items_without_events)
      .def_ro("events", &PrepareReport::events)
      .def_ro("seconds", &PrepareReport::seconds)
      .def_ro("parse_seconds", &PrepareReport::parse_seconds)
      .def_ro("features", &PrepareReport::features)
      .def_ro("remarks", &PrepareReport::remarks);
  module.def("prepare", &prepare, nb::arg("options"), nb::arg("format"), nb::arg("on_error"),
             nb::arg("repeats"), nb::arg("streams"), nb::arg("user_tables"), nb::arg("item_tables"),
             "Logs to a store; `streams` are tuples (name, capsule of an Arrow stream), tables "
             "(name, capsule or None, whether the store keeps it).");
  module.def("parquet_batch_bytes", &data::parquet_batch_bytes, nb::arg("memory_bytes"),
             "What a batch of Parquet may take of the memory of prepare.");
  module.def("resolve_published", &resolve_published, nb::arg("options"), nb::arg("format"),
             "What KuaiRand's and Yambda's files are in options of any log.");
  module.def(
      "merge",
      [](const std::vector<std::filesystem::path>& parts, PrepareOptions options,
         const std::string& repeats, const nb::list& user_tables, const nb::list& item_tables) {
        options.repeats = repeats_of(repeats);
        options.user_tables = tables_of(user_tables);
        options.item_tables = tables_of(item_tables);
        return interruptible([&] { return data::merge_stores(parts, options); });
      },
      nb::arg("parts"), nb::arg("options"), nb::arg("repeats"), nb::arg("user_tables"),
      nb::arg("item_tables"), "Stores of parts of one log to the store of all of it.");
  module.def(
      "files_of_shard",
      [](std::vector<std::filesystem::path> files, const PrepareOptions& options) {
        std::vector<std::string> names;
        for (const std::filesystem::path& file : data::files_of_shard(std::move(files), options)) {
          names.push_back(file.string());
        }
        return names;
      },
      nb::arg("files"), nb::arg("options"), "Those that the options' shard is to read.");
  module.def(
      "log_columns",
      [](const PrepareOptions& options, const std::vector<std::string>& names,
         const std::string& file) { return data::log_columns(options.columns, names, file); },
      nb::arg("options"), nb::arg("names"), nb::arg("file"),
      "Which of these columns a log is made of.");

  nb::class_<OpenStore>(module, "Store")
      .def(nb::init<const std::filesystem::path&>(), nb::arg("folder"))
      .def_prop_ro("folder", [](const OpenStore& store) { return store.folder().string(); })
      .def_prop_ro("users", [](const OpenStore& store) { return store.num_users(); })
      .def_prop_ro("items", [](const OpenStore& store) { return store.num_items(); })
      .def_prop_ro("events", [](const OpenStore& store) { return store.num_events(); })
      .def_prop_ro("time_unit",
                   [](const OpenStore& store) { return std::string(name_of(store.time_unit())); })
      .def_prop_ro("signals", [](const OpenStore& store) { return store.manifest().signals; })
      .def_prop_ro("numbers", [](const OpenStore& store) { return store.manifest().numbers; })
      .def("user_ids", [](const OpenStore& store) { return ids_of(store.user_ids()); })
      .def("item_ids", [](const OpenStore& store) { return ids_of(store.item_ids()); })
      .def("verify", [](const OpenStore& store) {
        const nb::gil_scoped_release release;
        store.verify();
      });
}

}  // namespace turbogr::python
