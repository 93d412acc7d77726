#include "turbogr/run/item_names.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/row_pieces.h"
#include "turbogr/data/target_counts.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {
namespace {

constexpr const char* kOffsets = "item_names.offsets";
constexpr const char* kText = "item_names.text";
constexpr const char* kTrained = "item_names.trained";

struct SavedNames {
  View<const std::int64_t, 1> offsets;
  View<const std::uint8_t, 1> text;

  // Throws unless every name lies within the text: a checksum says that the file is as it was
  // written, not that a program wrote it.
  explicit SavedNames(const checkpoint::Checkpoint& saved)
      : offsets(saved.view<std::int64_t, 1>(kOffsets)), text(saved.view<std::uint8_t, 1>(kText)) {
    const std::span<const std::int64_t> all(offsets.data,
                                            static_cast<std::size_t>(offsets.shape[0]));
    TGR_CHECK(!all.empty() && all.front() == 0 && all.back() == text.shape[0] &&
                  std::is_sorted(all.begin(), all.end()),
              "checkpoint '", saved.folder(), "': the offsets of its item names (", kOffsets,
              ") do not rise from 0 to the ", text.shape[0],
              " bytes of their text; it was not made by this program: use another one");
  }

  std::int64_t size() const { return offsets.shape[0] - 1; }
  std::string_view name(std::int64_t index) const {
    return {reinterpret_cast<const char*>(text.data) + offsets(index),
            static_cast<std::size_t>(offsets(index + 1) - offsets(index))};
  }
};

std::vector<std::uint8_t> in_training_part(const Config& config, const data::Store& store) {
  return data::items_in(store,
                        data::make_windows(store, train_loader_options(config, store).windows));
}

// The checkpoint's own marks, or ones where it has none, by the store's items.
std::vector<std::uint8_t> marks_of(const checkpoint::Checkpoint& saved, const data::Store& store) {
  const SavedNames names(saved);
  View<const std::uint8_t, 1> marks;
  if (saved.find(kTrained) != nullptr) {
    marks = saved.view<std::uint8_t, 1>(kTrained);
    TGR_CHECK(marks.shape[0] == names.size(), "checkpoint '", saved.folder(), "' marks ",
              marks.shape[0], " items as trained or not and names ", names.size(),
              "; use another checkpoint");
  }
  std::vector<std::uint8_t> trained(static_cast<std::size_t>(store.num_items()));
  for (std::int64_t item = 0; item < names.size(); ++item) {
    const auto index = store.item_ids().find(names.name(item));
    if (index) trained[static_cast<std::size_t>(*index)] = marks.empty() || marks(item) != 0;
  }
  return trained;
}

}  // namespace

void ItemNames::add_trained(const checkpoint::Checkpoint& saved, const data::Store& store) {
  if (saved.find(kTrained) != nullptr) trained_before_ = marks_of(saved, store);
}

std::vector<NamedTensor> ItemNames::tensors(const Config& config, const data::Store& store) {
  if (offsets_.size() == 0) {
    const std::int64_t items = store.num_items();
    offsets_ = Tensor(DType::kI64, {items + 1});
    std::string all;
    for (std::int64_t item = 0; item < items; ++item) {
      all += store.item_ids().text(item);
      offsets_.view<std::int64_t, 1>()(item + 1) = static_cast<std::int64_t>(all.size());
    }
    text_ = Tensor(DType::kU8, {static_cast<std::int64_t>(all.size())});
    std::memcpy(text_.data(), all.data(), all.size());
    std::vector<std::uint8_t> trained = in_training_part(config, store);
    for (std::size_t i = 0; i < trained_before_.size(); ++i) trained[i] |= trained_before_[i];
    trained_ = Tensor(DType::kU8, {items});
    std::memcpy(trained_.data(), trained.data(), trained.size());
  }
  return {named(kOffsets, offsets_), named(kText, text_), named(kTrained, trained_)};
}

std::vector<std::uint8_t> trained_items(const checkpoint::Checkpoint& saved, const Config& config,
                                        const data::Store& store) {
  std::vector<std::uint8_t> trained = marks_of(saved, store);
  if (saved.find(kTrained) != nullptr) return trained;
  log::info(
      "'{}' is of an older program that did not mark the items it trained: those of the store's "
      "training part are taken for it",
      saved.folder());
  const std::vector<std::uint8_t> part = in_training_part(config, store);
  for (std::size_t i = 0; i < part.size(); ++i) trained[i] &= part[i];
  return trained;
}

bool has_same_items(const checkpoint::Checkpoint& saved, const data::Store& store) {
  const SavedNames names(saved);
  if (names.size() != store.num_items()) return false;
  for (std::int64_t item = 0; item < names.size(); ++item) {
    if (names.name(item) != store.item_ids().text(item)) return false;
  }
  return true;
}

void check_item_names(const checkpoint::Checkpoint& saved, const Config& config,
                      const data::Store& store) {
  const SavedNames names(saved);
  // What the task's run.start_from would not refuse in turn.
  const char* advice =
      config.ranks()
          ? "; a ranking model has a row for each item of its store: give the store it was trained "
            "on, or train a new model on this one"
          : "; start a new run with run.start_from, which keeps the rows of items it knows";
  TGR_CHECK(names.size() == store.num_items(), "checkpoint '", saved.folder(), "' has ",
            names.size(), " items and the store '", store.folder().string(), "' has ",
            store.num_items(), advice);
  for (std::int64_t item = 0; item < names.size(); ++item) {
    TGR_CHECK(names.name(item) == store.item_ids().text(item), "checkpoint '", saved.folder(),
              "' has item '", names.name(item), "' where the store '", store.folder().string(),
              "' has '", store.item_ids().text(item), "'", advice);
  }
}

std::int64_t read_known_rows(const Context& ctx, const checkpoint::Checkpoint& saved,
                             const data::Store& store, const embedding::Sharding& sharding,
                             int index, embedding::ItemTable& part) {
  Tensor& own = part.weight_tensor();
  const std::int64_t width = part.width();
  const SavedNames names(saved);
  const checkpoint::SavedTable table = saved.table("items");
  TGR_CHECK(table.rows() == names.size() && table.width("items") == width, "checkpoint '",
            saved.folder(), "': its item table is [", table.rows(), ", ", table.width("items"),
            "] for ", names.size(), " items; wanted width ", width);
  std::int64_t known = 0;
  std::vector<std::int64_t> saved_row(static_cast<std::size_t>(part.rows()), -1);
  for (std::int64_t item = 0; item < names.size(); ++item) {
    const auto found = store.item_ids().find(names.name(item));
    if (!found) continue;
    ++known;
    if (sharding.shard_of(*found) != index) continue;
    saved_row[static_cast<std::size_t>(sharding.row_of(*found))] = item;
  }
  const TableMemory memory = memory_of(own);
  for_each_piece(ctx, memory, PieceUse::kUpdate, [&](const RowPiece& piece) {
    for (std::int64_t row = piece.begin; row < piece.end; ++row) {
      const std::int64_t item = saved_row[static_cast<std::size_t>(row)];
      if (item < 0) continue;
      table.read_row("items", item, part.dtype(),
                     piece.data + (row - piece.begin) * memory.row_bytes);
    }
    table.forget_pages();
  });
  return known;
}

}  // namespace turbogr::run
