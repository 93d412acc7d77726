#include "turbogr/eval/seen_items.h"

#include "turbogr/core/check.h"

namespace turbogr::eval {

SeenItems seen_items_from_name(std::string_view name) {
  if (name == "drop") return SeenItems::kDrop;
  TGR_CHECK(name == "keep", "seen items '", name, "'; use drop or keep");
  return SeenItems::kKeep;
}

std::string_view name_of(SeenItems seen) { return seen == SeenItems::kDrop ? "drop" : "keep"; }

}  // namespace turbogr::eval
