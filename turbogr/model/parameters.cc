#include "turbogr/model/parameters.h"

#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"

namespace turbogr::model {
namespace {

// FNV-1a: a stable number for a name, the same on every machine.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

double draw(Init init, double scale, PhiloxStream& random) {
  switch (init) {
    case Init::kZero:
      return 0;
    case Init::kOne:
      return 1;
    case Init::kNormal:
      return scale * random.normal();
    case Init::kTruncatedNormal:
      for (;;) {
        const double value = random.normal();
        if (std::abs(value) <= 2) return scale * value;
      }
    case Init::kUniform:
      return scale * (2 * random.uniform() - 1);
  }
  return 0;
}

}  // namespace

double xavier_bound(std::int64_t inputs, std::int64_t outputs) {
  return std::sqrt(6.0 / static_cast<double>(inputs + outputs));
}

double xavier_deviation(std::int64_t inputs, std::int64_t outputs) {
  return std::sqrt(2.0 / static_cast<double>(inputs + outputs));
}

template <class T>
int ParameterSet<T>::add(ParameterSpec spec) {
  for (const ParameterSpec& other : specs_) {
    TGR_CHECK(other.name != spec.name, "two parameters named '", spec.name, "'");
  }
  values_.emplace_back(dtype_of<Accum<T>>(), spec.shape, device_);
  gradients_.push_back(with_gradients_ ? Tensor(dtype_of<Accum<T>>(), spec.shape, device_)
                                       : Tensor());
  specs_.push_back(std::move(spec));
  return size() - 1;
}

template <class T>
void ParameterSet<T>::initialise(const Context& ctx, std::uint64_t seed) {
  std::vector<Tensor> made(specs_.size());
  parallel_for(ctx.host().pool(), size(), [&](std::int64_t i, int) {
    const ParameterSpec& s = spec(static_cast<int>(i));
    PhiloxStream random(seed, hash_of(s.name));
    Tensor& host = made[static_cast<std::size_t>(i)];
    host = Tensor(dtype_of<Accum<T>>(), s.shape);
    auto* values = reinterpret_cast<Accum<T>*>(host.data());
    for (std::int64_t k = 0; k < host.size(); ++k) {
      values[k] = static_cast<Accum<T>>(draw(s.init, s.scale, random));
    }
  });
  for (int i = 0; i < size(); ++i) copy_tensor(ctx, value(i), made[static_cast<std::size_t>(i)]);
}

template <class T>
void ParameterSet<T>::zero_gradients(const Context& ctx) {
  for (Tensor& gradient : gradients_) zero_bytes(ctx, gradient.data(), gradient.bytes());
}

template <class T>
std::int64_t ParameterSet<T>::count() const {
  std::int64_t total = 0;
  for (int i = 0; i < size(); ++i) {
    if (spec(i).counted) total += value(i).size();
  }
  return total;
}

template class ParameterSet<double>;
template class ParameterSet<float>;
template class ParameterSet<bf16>;

}  // namespace turbogr::model
