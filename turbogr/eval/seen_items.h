// What becomes of items that a user has met before, when items are ranked: eval.seen. One rule for
// evaluation and recommendation; a run stores the one it was evaluated by.
//
//   drop   they leave the candidates, so a target met before is a miss
//   keep   nothing leaves
#pragma once

#include <cstdint>
#include <string_view>

namespace turbogr::eval {

enum class SeenItems : std::uint8_t { kDrop, kKeep };
SeenItems seen_items_from_name(std::string_view name);  // drop, keep; throws on another
std::string_view name_of(SeenItems seen);

}  // namespace turbogr::eval
