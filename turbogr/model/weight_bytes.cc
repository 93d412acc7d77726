#include "turbogr/model/weight_bytes.h"

#include <set>
#include <type_traits>
#include <vector>

#include "turbogr/ops/dense/small_weight.h"

namespace turbogr::model {
namespace {

std::size_t padded(std::int64_t size, std::int64_t multiple) {
  return static_cast<std::size_t>((size + multiple - 1) / multiple * multiple);
}

// What a CPU's products take beside their operands, from measurements with oneDNN 2.6 and some
// room: code for each shape of a matrix, and descriptions of the products of each matrix.
constexpr bool kWithOneDnn = TGR_WITH_ONEDNN;
constexpr std::size_t kProductCodeBytes = kWithOneDnn ? 640 << 10 : 0;
constexpr std::size_t kProductBytes = kWithOneDnn ? 128 << 10 : 16 << 10;
constexpr std::size_t kOwnProductBytes = 24 << 10;  // the same where products are our own

// Whether its products are our own, which keep little but two layouts.
template <class T>
bool is_small(const Context& ctx, const ParameterSpec& spec) {
  return std::is_same_v<T, float> && ctx.device() == Device::kCpu &&
         ops::is_small_weight(spec.shape[0], spec.shape[1]);
}

// What products make of a matrix (model/weight_matrix.h), at most: a GPU's its values in T, a CPU's
// these and two layouts of padded blocks.
template <class T>
std::size_t weight_copies(const Context& ctx, const ParameterSpec& spec) {
  if (!spec.decay || spec.shape.size() != 2) return 0;
  const std::int64_t inputs = spec.shape[0], outputs = spec.shape[1];
  const std::size_t plain = static_cast<std::size_t>(inputs * outputs) * sizeof(T);
  const std::size_t rounded = std::is_same_v<T, float> ? 0 : plain;
  if (ctx.device() == Device::kCuda) return plain;
  if (is_small<T>(ctx, spec)) {
    return kOwnProductBytes + ops::small_weight_bytes(inputs, outputs) +
           ops::small_weight_bytes(outputs, inputs);
  }
  const bool widened =
      std::is_same_v<T, bf16> && (!kWithOneDnn || ctx.simd() < SimdLevel::kAvx512Bf16);
  const std::size_t element = widened ? sizeof(float) : sizeof(T);
  return kProductBytes + rounded +
         element *
             (padded(inputs, 32) * padded(outputs, 64) + padded(outputs, 32) * padded(inputs, 64));
}

}  // namespace

template <class T>
std::size_t weight_copy_bytes(const Context& ctx, const ParameterSet<T>& parameters) {
  std::size_t bytes = 0;
  std::set<std::vector<std::int64_t>> shapes;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::size_t copies = weight_copies<T>(ctx, parameters.spec(i));
    bytes += copies;
    if (copies > 0 && !is_small<T>(ctx, parameters.spec(i))) {
      shapes.insert(parameters.value(i).shape());
    }
  }
  return bytes + (ctx.device() == Device::kCpu ? shapes.size() * kProductCodeBytes : 0);
}

template std::size_t weight_copy_bytes<float>(const Context&, const ParameterSet<float>&);
template std::size_t weight_copy_bytes<bf16>(const Context&, const ParameterSet<bf16>&);

}  // namespace turbogr::model
