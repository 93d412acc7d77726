#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/block.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/tolerance.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops {
namespace {

using test::Block;
using test::converted;
using test::element;
using test::matches;
using test::message_of;
using test::random_tensor;

template <class T>
class ElementwiseOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(ElementwiseOf, Formats);

// A tensor whose element i is formula(i), computed in A and rounded to T.
template <class T, class A>
Tensor filled(std::vector<std::int64_t> shape, const std::function<A(std::int64_t)>& formula) {
  Tensor out(dtype_of<T>(), std::move(shape));
  T* data = reinterpret_cast<T*>(out.data());
  for (std::int64_t i = 0; i < out.size(); ++i) data[i] = convert<T>(formula(i));
  return out;
}

template <class A>
A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}
template <class A>
A slope(A x) {
  return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

constexpr std::int64_t kWidths[] = {1, 7, 16, 50, 129, 300};

// Checks `fast` against `formula`, evaluated plainly in the format's Accum and in double.
template <class T, class Formula>
void expect_formula(const Tensor& fast, Formula&& formula) {
  using A = Accum<T>;
  const Tensor plain = filled<T, A>(fast.shape(), [&](std::int64_t i) { return formula(A(0), i); });
  const Tensor reference =
      filled<double, double>(fast.shape(), [&](std::int64_t i) { return formula(0.0, i); });
  EXPECT_TRUE(matches(fast, plain, reference));
}

TYPED_TEST(ElementwiseOf, SwigluAndSiluMatchTheirFormulas) {
  using T = TypeParam;
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t cols : kWidths) {
      SCOPED_TRACE(::testing::Message() << cols << " columns " << name_of(simd));
      const std::int64_t rows = 5;
      const Tensor a = random_tensor<T>({rows, cols}, 1, 3), b = random_tensor<T>({rows, cols}, 2);
      const Tensor dy = random_tensor<T>({rows, cols}, 3);
      const Block<T> in_a(a), in_b(b), in_dy(dy);
      Block<T> y(rows, cols), da(rows, cols), db(rows, cols), s(rows, cols), dx(rows, cols);
      swiglu<T>(ctx, in_a.rows(), in_b.rows(), y.rows());
      swiglu_backward<T>(ctx, in_a.rows(), in_b.rows(), in_dy.rows(), da.rows(), db.rows());
      silu<T>(ctx, in_a.rows(), s.rows());
      silu_backward<T>(ctx, in_a.rows(), in_dy.rows(), dx.rows());
      const auto at = [](auto zero, const Tensor& t, std::int64_t i) {
        return static_cast<decltype(zero)>(element(t, i));
      };
      expect_formula<T>(y.values(), [&](auto z, std::int64_t i) {
        return at(z, a, i) * sigmoid(at(z, a, i)) * at(z, b, i);
      });
      expect_formula<T>(da.values(), [&](auto z, std::int64_t i) {
        return at(z, dy, i) * at(z, b, i) * slope(at(z, a, i));
      });
      expect_formula<T>(db.values(), [&](auto z, std::int64_t i) {
        return at(z, dy, i) * at(z, a, i) * sigmoid(at(z, a, i));
      });
      expect_formula<T>(s.values(),
                        [&](auto z, std::int64_t i) { return at(z, a, i) * sigmoid(at(z, a, i)); });
      expect_formula<T>(dx.values(),
                        [&](auto z, std::int64_t i) { return at(z, dy, i) * slope(at(z, a, i)); });
    }
  }
}

// Rows 0 to 2 are ordinary, row 3 is zero, row 4 shorter than eps.
template <class T>
Tensor rows_to_normalize(std::int64_t cols) {
  Tensor x = random_tensor<T>({5, cols}, 1);
  for (std::int64_t c = 0; c < cols; ++c) {
    x.view<T, 2>()(3, c) = convert<T>(Accum<T>(0));
    x.view<T, 2>()(4, c) = convert<T>(Accum<T>(1e-9));
  }
  return x;
}

TYPED_TEST(ElementwiseOf, L2NormalizeMatchesItsFormula) {
  using T = TypeParam;
  using A = Accum<T>;
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t cols : kWidths) {
      SCOPED_TRACE(::testing::Message() << cols << " columns " << name_of(simd));
      const Tensor x = rows_to_normalize<T>(cols), dy = random_tensor<T>({5, cols}, 2);
      const Block<T> in_x(x), in_dy(dy);
      Block<T> y(5, cols), dx(5, cols);
      Tensor inverse(dtype_of<A>(), {5});
      test::poison<A>(inverse);
      l2_normalize<T>(ctx, in_x.rows(), {}, y.rows(), inverse.view<A, 1>());
      l2_normalize_backward<T>(ctx, in_x.rows(), in_dy.rows(), inverse.view<A, 1>(), {}, dx.rows());
      const auto product = [&](auto zero, const Tensor& p, const Tensor& q, std::int64_t row) {
        using B = decltype(zero);
        B total = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          total += static_cast<B>(element(p, row * cols + c)) *
                   static_cast<B>(element(q, row * cols + c));
        }
        return total;
      };
      const auto inverse_of = [&](auto zero, std::int64_t row) {
        using B = decltype(zero);
        return 1 / std::max(std::sqrt(product(zero, x, x, row)), static_cast<B>(1e-6));
      };
      expect_formula<T>(y.values(), [&](auto z, std::int64_t i) {
        return static_cast<decltype(z)>(element(x, i)) * inverse_of(z, i / cols);
      });
      // Per kind of row: the gradient of the short ones is a million times larger.
      const auto gradient = [&](auto z, std::int64_t i) {
        using B = decltype(z);
        const std::int64_t row = i / cols;
        const B inv = inverse_of(z, row);
        const B along = row < 3 ? product(z, x, dy, row) * inv * inv : B(0);
        return (static_cast<B>(element(dy, i)) - static_cast<B>(element(x, i)) * along) * inv;
      };
      const Tensor all = dx.values();
      for (const std::int64_t first : {0, 3}) {
        const std::int64_t count = first == 0 ? 3 : 2;
        Tensor part(dtype_of<T>(), {count, cols});
        std::copy_n(all.view<T, 2>().data + first * cols, count * cols, part.view<T, 2>().data);
        if (first == 0 && cols == 1) {  // a number's direction does not change: all cancels
          EXPECT_LT(test::max_magnitude(part), 1e-5);
          continue;
        }
        expect_formula<T>(part,
                          [&](auto z, std::int64_t i) { return gradient(z, i + first * cols); });
      }
    }
  }
}

TYPED_TEST(ElementwiseOf, TakesAnEmptyBatch) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  Tensor none(dtype_of<T>(), {0, 8}), inverse(dtype_of<Accum<T>>(), {0});
  const Rows<T> rows = none.view<T, 2>();
  swiglu<T>(ctx, rows, rows, rows);
  swiglu_backward<T>(ctx, rows, rows, rows, rows, rows);
  silu<T>(ctx, rows, rows);
  silu_backward<T>(ctx, rows, rows, rows);
  l2_normalize<T>(ctx, rows, {}, rows, inverse.view<Accum<T>, 1>());
  l2_normalize_backward<T>(ctx, rows, rows, inverse.view<Accum<T>, 1>(), {}, rows);
}

TYPED_TEST(ElementwiseOf, WritesInPlace) {
  using T = TypeParam;
  const Context ctx({.threads = 1});
  const Tensor x = random_tensor<T>({3, 21}, 1), dy = random_tensor<T>({3, 21}, 2);
  const auto r = [](const Tensor& t) { return Rows<const T>(t.view<T, 2>()); };
  const auto w = [](Tensor& t) { return Rows<T>(t.view<T, 2>()); };
  Tensor apart(dtype_of<T>(), {3, 21}), other(dtype_of<T>(), {3, 21});
  Tensor same = converted<T, T>(x), inverse(dtype_of<Accum<T>>(), {3});
  l2_normalize<T>(ctx, r(x), {}, w(apart), inverse.view<Accum<T>, 1>());
  l2_normalize<T>(ctx, w(same), {}, w(same), inverse.view<Accum<T>, 1>());
  EXPECT_TRUE(test::same_bits(apart, same));
  same = converted<T, T>(dy);
  l2_normalize_backward<T>(ctx, r(x), r(dy), inverse.view<Accum<T>, 1>(), {}, w(apart));
  l2_normalize_backward<T>(ctx, r(x), w(same), inverse.view<Accum<T>, 1>(), {}, w(same));
  EXPECT_TRUE(test::same_bits(apart, same));
  same = converted<T, T>(x);
  silu_backward<T>(ctx, r(x), r(dy), w(apart));
  silu_backward<T>(ctx, w(same), r(dy), w(same));
  EXPECT_TRUE(test::same_bits(apart, same));
  Tensor a = converted<T, T>(x), b = converted<T, T>(dy);
  swiglu_backward<T>(ctx, r(x), r(dy), r(dy), w(apart), w(other));
  swiglu_backward<T>(ctx, w(a), w(b), r(dy), w(a), w(b));
  EXPECT_TRUE(test::same_bits(apart, a));
  EXPECT_TRUE(test::same_bits(other, b));
}

TEST(Elementwise, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor good(DType::kF32, {2, 4}), bad(DType::kF32, {2, 5}), two(DType::kF32, {2});
  Tensor three(DType::kF32, {3});
  const Rows<float> g = good.view<float, 2>(), b = bad.view<float, 2>();
  const auto inv = two.view<float, 1>();
  const auto said = [&](auto&& call, const char* text) { EXPECT_EQ(message_of(call), text); };
  said([&] { swiglu<float>(ctx, g, b, g); }, "swiglu: b is [2, 5]; wanted [2, 4]");
  said([&] { swiglu<float>(ctx, g, g, b); }, "swiglu: y is [2, 5]; wanted [2, 4]");
  said([&] { swiglu_backward<float>(ctx, g, b, g, g, g); },
       "swiglu_backward: b is [2, 5]; wanted [2, 4]");
  said([&] { swiglu_backward<float>(ctx, g, g, b, g, g); },
       "swiglu_backward: dy is [2, 5]; wanted [2, 4]");
  said([&] { swiglu_backward<float>(ctx, g, g, g, b, g); },
       "swiglu_backward: da is [2, 5]; wanted [2, 4]");
  said([&] { swiglu_backward<float>(ctx, g, g, g, g, b); },
       "swiglu_backward: db is [2, 5]; wanted [2, 4]");
  said([&] { silu<float>(ctx, g, b); }, "silu: y is [2, 5]; wanted [2, 4]");
  said([&] { silu_backward<float>(ctx, g, b, g); }, "silu_backward: dy is [2, 5]; wanted [2, 4]");
  said([&] { silu_backward<float>(ctx, g, g, b); }, "silu_backward: dx is [2, 5]; wanted [2, 4]");
  said([&] { l2_normalize<float>(ctx, g, {.eps = 0}, g, inv); },
       "l2_normalize: eps is 0; it must be above 0");
  said([&] { l2_normalize<float>(ctx, g, {}, b, inv); },
       "l2_normalize: y is [2, 5]; wanted [2, 4]");
  said([&] { l2_normalize<float>(ctx, g, {}, g, three.view<float, 1>()); },
       "l2_normalize: inverse has 3 elements; wanted 2");
  said([&] { l2_normalize_backward<float>(ctx, g, b, inv, {}, g); },
       "l2_normalize_backward: dy is [2, 5]; wanted [2, 4]");
  said([&] { l2_normalize_backward<float>(ctx, g, g, inv, {}, b); },
       "l2_normalize_backward: dx is [2, 5]; wanted [2, 4]");
  said([&] { l2_normalize_backward<float>(ctx, g, g, inv, {.eps = -1}, g); },
       "l2_normalize_backward: eps is -1; it must be above 0");
}

}  // namespace
}  // namespace turbogr::ops
