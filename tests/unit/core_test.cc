#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/log.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/core/trace.h"
#include "turbogr/core/workspace.h"

namespace turbogr {
namespace {

using test::message_of;

TEST(Check, ThrowsAllPartsOfTheMessage) {
  EXPECT_EQ(message_of([] { TGR_CHECK(1 == 2, "found ", 1, ", wanted ", 2); }),
            "found 1, wanted 2");
}

TEST(Bf16, RoundsToNearestEvenAndKeepsSpecialValues) {
  EXPECT_EQ(static_cast<float>(bf16(1.0f)), 1.0f);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);             // a tie goes to the even neighbour
  EXPECT_EQ(bf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // past the tie goes up
  EXPECT_EQ(bf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(static_cast<float>(bf16(-0.0f)), 0.0f);
  EXPECT_TRUE(std::signbit(static_cast<float>(bf16(-0.0f))));
}

TEST(F16, EveryPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    f16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(f16(wide))));
    } else {
      EXPECT_EQ(f16(wide).bits, bits);
    }
  }
}

TEST(F16, RoundsToNearestEvenAtBothEnds) {
  EXPECT_EQ(f16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(f16(0x1p-25f).bits, 0);  // half of the smallest subnormal: tie to zero
  EXPECT_EQ(f16(0x1.8p-24f).bits, 2);
  EXPECT_EQ(f16(1.0f + 0x1p-11f).bits, 0x3c00);
}

TEST(DType, NamesAreFoundAndUnknownOnesListTheChoices) {
  EXPECT_EQ(dtype_from_name("bf16"), DType::kBf16);
  EXPECT_EQ(size_of(DType::kF16), 2u);
  EXPECT_EQ(name_of(DType::kI64), "i64");
  EXPECT_NE(message_of([] { dtype_from_name("fp8"); }).find("'fp8'; use f64, f32"),
            std::string::npos);
}

TEST(Tensor, IsAlignedZeroedAndCheckedWhenViewed) {
  Tensor tensor(DType::kF32, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  View<float, 2> view = tensor.view<float, 2>();
  EXPECT_EQ(view(2, 4), 0.0f);
  view(1, 2) = 7.0f;
  EXPECT_EQ((tensor.view<float, 2>().data[7]), 7.0f);
  EXPECT_NE(message_of([&] {
              tensor.view<double, 2>();
            }).find("f32 tensor of shape [3, 5] was viewed as f64"),
            std::string::npos);
  EXPECT_NE(message_of([&] { tensor.view<float, 1>(); }).find("rank 1"), std::string::npos);
  EXPECT_NE(message_of([] { Tensor(DType::kF32, {-1}); }).find("must not be negative"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Tensor(DType::kF32, {1LL << 40, 1LL << 40});
            }).find("more elements"),
            std::string::npos);
}

TEST(Rows, AColumnSliceKeepsTheStride) {
  Tensor tensor(DType::kF32, {2, 6});
  std::iota(tensor.view<float, 2>().data, tensor.view<float, 2>().data + 12, 0.0f);
  const Rows<float> slice = Rows<float>(tensor.view<float, 2>()).columns(2, 3);
  EXPECT_EQ(slice(1, 0), 8.0f);
  EXPECT_EQ(slice.cols, 3);
}

TEST(Workspace, ReusesMemoryAndSaysWhatIsMissing) {
  Workspace workspace(1024);
  std::byte* first = nullptr;
  {
    WorkspaceScope scope(workspace);
    first = reinterpret_cast<std::byte*>(scope.take<float>(10).data);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
    EXPECT_EQ(workspace.used(), 256u);
    EXPECT_NE(
        message_of([&] { scope.take<float>(200); }).find("1024 bytes wanted, 768 of 1024 free"),
        std::string::npos);
    EXPECT_NE(message_of([&] { workspace.reserve(4096); }).find("cannot grow"), std::string::npos);
  }
  WorkspaceScope scope(workspace);
  EXPECT_EQ(reinterpret_cast<std::byte*>(scope.take<float>(256).data), first);
  EXPECT_EQ(workspace.peak(), 1024u);
}

// Known answers of the reference implementation (Random123's kat_vectors).
TEST(Philox, MatchesThePublishedVectors) {
  const std::uint64_t ones = ~std::uint64_t{0};
  const std::array<std::uint32_t, 4> zero = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  const std::array<std::uint32_t, 4> full = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
  EXPECT_EQ(philox(0, 0, 0), zero);
  EXPECT_EQ(philox(ones, ones, ones), full);
}

TEST(Philox, StreamHasTheRightMomentsAndBounds) {
  PhiloxStream random(7);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
    ASSERT_LT(random.below(10), 10u);
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(ThreadPool, VisitsEveryIndexOnceWhateverTheSize) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      parallel_for(pool, count, [&](std::int64_t index, int worker) {
        EXPECT_LT(worker, threads);
        ++visits[static_cast<std::size_t>(index)];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

// Jobs far shorter than it takes to wake a thread, so that helpers come at every moment of them.
TEST(ThreadPool, ManyShortJobsFollowEachOther) {
  for (const int threads : {2, 7}) {
    ThreadPool pool(threads);
    for (std::int64_t job = 0; job < 3000; ++job) {
      std::atomic<std::int64_t> total = 0;
      parallel_for(pool, 4, [&, job](std::int64_t index, int) { total += job + index; });
      ASSERT_EQ(total, 4 * job + 6);
      if (job % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_EQ(message_of([&] {
              parallel_for(pool, 100, [](std::int64_t index, int) {
                TGR_CHECK(index != 42, "index ", index, " is bad");
              });
            }),
            "index 42 is bad");
  std::atomic<int> count = 0;
  parallel_for(pool, 10, [&](std::int64_t, int) { ++count; });
  EXPECT_EQ(count, 10);
}

TEST(ThreadPool, RefusesSizesThatCannotBe) {
  EXPECT_NE(test::message_of([] { ThreadPool pool(-1); }).find("-1 threads"), std::string::npos);
  EXPECT_NE(test::message_of([] { ThreadPool pool(100000); }).find("give 1 to 4096"),
            std::string::npos);
}

TEST(ThreadPool, ANestedCallRunsInPlace) {
  ThreadPool pool(2);
  std::atomic<int> count = 0;
  parallel_for(pool, 4, [&](std::int64_t, int) {
    parallel_for(pool, 5, [&](std::int64_t, int) { ++count; });
  });
  EXPECT_EQ(count, 20);
}

TEST(ThreadPool, RangesCoverWithoutOverlap) {
  ThreadPool pool(2);
  std::vector<int> seen(103, 0);
  parallel_ranges(pool, 103, 10, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST(Context, RefusesWhatTheBuildOrMachineLacks) {
  EXPECT_NE(message_of([] { Context ctx({.device = Device::kCuda}); }).find("no CUDA; set device"),
            std::string::npos);
  EXPECT_NE(message_of([] { Context ctx({.threads = -2}); }).find("-2 threads"), std::string::npos);
}

TEST(Log, RefusesAnUnknownLevel) {
  EXPECT_NE(message_of([] { log::set_up("loud"); }).find("'loud'; use debug"), std::string::npos);
}

TEST(Trace, WritesJsonThatAViewerReads) {
  const std::string path = ::testing::TempDir() + "trace_test.json";
  Trace trace(3, 5);
  trace.name_lane(1, "compute \"main\"");
  {
    TraceScope scope(&trace, "outer", 1);
    TraceScope inner(&trace, "inner", 1);
  }
  for (int i = 0; i < 3; ++i) trace.record("late", 1, 0, 1);
  EXPECT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace.dropped(), 2u);
  trace.write(path);
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  std::set<std::string> names;
  for (const auto& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], 5);
    if (event["ph"] == "X") {
      names.insert(event["name"]);
      EXPECT_GE(event["dur"].get<double>(), 0.0);
      EXPECT_GE(event["ts"].get<double>(), 0.0);
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"inner", "outer", "late"}));
  std::filesystem::remove(path);
}

TEST(Trace, ANullTraceIsFineAndABadPathIsSaid) {
  { TraceScope scope(nullptr, "nothing"); }
  Trace trace(1);
  EXPECT_NE(
      message_of([&] { trace.write("/nonexistent/trace.json"); }).find("/nonexistent/trace.json"),
      std::string::npos);
}

}  // namespace
}  // namespace turbogr
