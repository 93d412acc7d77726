// Vectors and the ids of their rows, as files other systems read. The format is the extension's:
//
//   NAME.safetensors   one file: items, items_trained, users; item_ids, user_ids
//   NAME.npy           NAME.items.npy, NAME.item_ids.npy, NAME.items_trained.npy, NAME.users.npy,
//   ... NAME.parquet       NAME.items.parquet (item, vector, trained), NAME.users.parquet (user,
//   vector)
//
// Ids keep their type. Of texts a safetensors file has the bytes of all (item_ids.text) and where
// each ends (item_ids.ends); NumPy's files have them as byte strings. Vectors come and go a block
// at a time: a file may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/view.h"
#include "turbogr/data/id_map.h"

namespace turbogr::run {

using TakeVectors = std::function<void(View<const float, 2>)>;

struct ExportedVectors {
  std::string_view what;  // "item" or "user"
  std::int64_t width = 0;
  const data::IdMap& ids;
  std::vector<std::uint8_t>* trained = nullptr;  // of each id; null: not told
  // Hands over a vector for each id, in their order, in blocks of any size.
  std::function<void(const TakeVectors&)> give;
};

// Throws on an extension it does not know, before anything is made.
void check_vector_file(const std::string& path);
// The files written.
std::vector<std::string> write_vectors(const std::string& path,
                                       const std::vector<ExportedVectors>& all);

}  // namespace turbogr::run
