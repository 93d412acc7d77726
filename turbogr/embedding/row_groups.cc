#include "turbogr/embedding/row_groups.h"

namespace turbogr::embedding {

void group_equal(const Context& ctx, const std::vector<std::int64_t>& values,
                 std::vector<std::int64_t>& distinct, std::vector<std::int64_t>& offsets,
                 std::vector<std::int32_t>& positions, std::vector<std::int32_t>& inverse) {
  const auto count = static_cast<std::int64_t>(values.size());
  distinct.resize(values.size());
  offsets.resize(values.size() + 1);
  positions.resize(values.size());
  inverse.resize(values.size());
  ctx.workspace().reserve(ops::dedup_ids_workspace_bytes(count));
  const std::int64_t unique = ops::dedup_ids(ctx, {values.data(), {count}},
                                             {{distinct.data(), {count}},
                                              {offsets.data(), {count + 1}},
                                              {positions.data(), {count}},
                                              {inverse.data(), {count}}});
  distinct.resize(static_cast<std::size_t>(unique));
  offsets.resize(static_cast<std::size_t>(unique) + 1);
  if (count == 0) offsets[0] = 0;
}

ops::IdGroups groups_of(const std::vector<std::int64_t>& distinct,
                        const std::vector<std::int64_t>& offsets,
                        const std::vector<std::int32_t>& positions) {
  return {{distinct.data(), {static_cast<std::int64_t>(distinct.size())}},
          {offsets.data(), {static_cast<std::int64_t>(offsets.size())}},
          {positions.data(), {static_cast<std::int64_t>(positions.size())}}};
}

}  // namespace turbogr::embedding
