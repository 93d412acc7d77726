#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/attention_case.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::AttentionInputs;
using test::message_of;

// A call that is right, for tests to break in one place.
struct Call {
  AttentionInputs<float> in =
      test::attention_inputs<float>({.lengths = {3, 2}, .heads = 2, .dq = 4, .dv = 3});
  AttentionProblem<float> p = in.problem();
  Tensor out = Tensor(DType::kF32, {5, 6});
  Tensor dout = Tensor(DType::kF32, {5, 6});
  Tensor gradient = Tensor(DType::kF32, {5, 22});
  Tensor dposition = Tensor(DType::kF32, {5});
  Tensor dtime = Tensor(DType::kF32, {129});
  Rows<float> y = out.view<float, 2>();
  Rows<const float> dy = dout.view<const float, 2>();
  Rows<float> dq = Rows<float>(gradient.view<float, 2>()).columns(0, 8);
  Rows<float> dk = Rows<float>(gradient.view<float, 2>()).columns(8, 8);
  Rows<float> dv = Rows<float>(gradient.view<float, 2>()).columns(16, 6);
  AttentionBiasGradient<float> dbias = {dposition.view<float, 1>(), dtime.view<float, 1>()};
  Context ctx{{.threads = 1, .workspace_bytes = 8 << 20}};

  HstuAttentionOptions options() const { return {p.heads, p.alpha, p.norm_length, p.mask}; }
  std::string forward() {
    return message_of([&] { hstu_attention<float>(ctx, p.q, p.k, p.v, p.bias, options(), y); });
  }
  std::string backward() {
    return message_of([&] {
      hstu_attention_backward<float>(ctx, p.q, p.k, p.v, p.bias, options(), dy, dq, dk, dv, dbias);
    });
  }
};

using Change = std::function<void(Call&)>;
std::string forward_message(const Change& change) {
  Call call;
  change(call);
  return call.forward();
}
std::string backward_message(const Change& change) {
  Call call;
  change(call);
  return call.backward();
}

TEST(AttentionErrors, ThereAreNoneWhenAllIsRight) {
  EXPECT_EQ(forward_message([](Call&) {}), "");
  EXPECT_EQ(backward_message([](Call&) {}), "");
}

TEST(AttentionErrors, NameBadScalars) {
  EXPECT_EQ(forward_message([](Call& c) { c.p.heads = 0; }),
            "hstu_attention: 0 heads; wanted 1 or more");
  EXPECT_EQ(forward_message([](Call& c) { c.p.norm_length = 0; }),
            "hstu_attention: norm_length is 0; it must be above 0, for example the longest length "
            "allowed");
  EXPECT_NE(forward_message([](Call& c) { c.p.norm_length = std::nan(""); }).find("norm_length is"),
            std::string::npos);
  EXPECT_EQ(forward_message([](Call& c) { c.p.alpha = INFINITY; }),
            "hstu_attention: alpha is inf; it must be a finite number");
}

TEST(AttentionErrors, NameBadHeads) {
  EXPECT_EQ(forward_message([](Call& c) { c.p.heads = 3; }),
            "hstu_attention: q is 8 wide for 3 heads; the width must be a multiple of the heads");
  EXPECT_EQ(forward_message([](Call& c) { c.p.v.cols = 5; }),
            "hstu_attention: v is 5 wide for 2 heads; the width must be a multiple of the heads");
  EXPECT_EQ(forward_message([](Call& c) {
              c.p.q.values.cols = 514;
              c.p.q.values.stride = 514;
            }),
            "hstu_attention: a head of q is 257 wide; wanted 1 to 256, so change the width or the "
            "number of heads");
  EXPECT_NE(forward_message([](Call& c) { c.p.v.cols = 0; }).find("a head of v is 0 wide"),
            std::string::npos);
}

TEST(AttentionErrors, NameBadShapes) {
  EXPECT_EQ(forward_message([](Call& c) { c.p.k.rows = 4; }),
            "hstu_attention: k is [4, 8]; wanted [5, 8]");
  EXPECT_EQ(forward_message([](Call& c) { c.p.v.rows = 4; }),
            "hstu_attention: v is [4, 6]; wanted [5, 6]");
  EXPECT_EQ(forward_message([](Call& c) { c.y.cols = 5; }),
            "hstu_attention: out is [5, 5]; wanted [5, 6]");
  EXPECT_NE(forward_message([](Call& c) { c.p.q.values.stride = 3; }).find("row stride of 3"),
            std::string::npos);
  const std::vector<std::int64_t> down = {0, 4, 3, 5};
  EXPECT_NE(forward_message([&](Call& c) {
              c.p.q.offsets = test::view_of(down);
            }).find("offsets go down from 4 to 3"),
            std::string::npos);
  EXPECT_EQ(backward_message([](Call& c) { c.dy.cols = 5; }),
            "hstu_attention_backward: dout is [5, 5]; wanted [5, 6]");
  EXPECT_EQ(backward_message([](Call& c) { c.dq.cols = 7; }),
            "hstu_attention_backward: dq is [5, 7]; wanted [5, 8]");
  EXPECT_EQ(backward_message([](Call& c) { c.dk.rows = 6; }),
            "hstu_attention_backward: dk is [6, 8]; wanted [5, 8]");
  EXPECT_EQ(backward_message([](Call& c) { c.dv.cols = 7; }),
            "hstu_attention_backward: dv is [5, 7]; wanted [5, 6]");
}

TEST(AttentionErrors, NameBadMasks) {
  EXPECT_EQ(forward_message([](Call& c) { c.p.mask.window = -1; }),
            "hstu_attention: window is -1; it must be 0 (unlimited) or the number of tokens to "
            "look back");
  const std::vector<std::int64_t> one = {1};
  const std::vector<std::int64_t> negative = {0, -1};
  const std::vector<std::int64_t> two = {2, 0};
  const std::vector<std::int64_t> large = {std::numeric_limits<std::int64_t>::max(), 0};
  EXPECT_EQ(forward_message([&](Call& c) { c.p.mask.num_prefix = test::view_of(one); }),
            "hstu_attention: num_prefix has 1 elements; wanted 2");
  EXPECT_EQ(forward_message([&](Call& c) { c.p.mask.num_targets = test::view_of(negative); }),
            "hstu_attention: num_targets of sequence 1 is -1; it must not be negative");
  EXPECT_EQ(forward_message([&](Call& c) {
              c.p.mask.num_prefix = test::view_of(two);
              c.p.mask.num_targets = test::view_of(two);
            }),
            "hstu_attention: sequence 0 has 3 tokens but a prefix of 2 and 2 targets; together "
            "they must fit in it");
  EXPECT_NE(forward_message([&](Call& c) {
              c.p.mask.num_prefix = test::view_of(two);
              c.p.mask.num_targets = test::view_of(large);
            }).find("together they must fit"),
            std::string::npos);
}

TEST(AttentionErrors, NameBadTables) {
  EXPECT_EQ(forward_message([](Call& c) { c.p.bias.position.shape[0] = 4; }),
            "hstu_attention: the position table has 4 weights; sequences of up to S tokens need 2 "
            "* S - 1, an odd number");
  EXPECT_EQ(forward_message([](Call& c) { c.p.bias.position.shape[0] = 3; }),
            "hstu_attention: sequence 0 has 3 tokens and the position table serves 2; cut the "
            "sequence or give a table of 5 weights");
  EXPECT_EQ(forward_message([](Call& c) { c.p.bias.time.shape[0] = 128; }),
            "hstu_attention: the time table has 128 elements; wanted 129");
  EXPECT_EQ(forward_message([](Call& c) { c.p.bias.key_times = {}; }),
            "hstu_attention: a time table with 0 key times and 5 query times for 5 tokens; give "
            "one of each a token, or no time table");
  EXPECT_NE(forward_message([](Call& c) {
              c.p.bias.query_times.data = nullptr;
            }).find("query_times has no memory"),
            std::string::npos);
  EXPECT_EQ(backward_message([](Call& c) { c.dbias.position.shape[0] = 3; }),
            "hstu_attention_backward: the position table's gradient has 3 elements; wanted 5");
  EXPECT_EQ(backward_message([](Call& c) { c.p.bias.time = {}; }),
            "hstu_attention_backward: the time table's gradient has 129 elements; wanted 0");
}

TEST(AttentionErrors, AreFuxisOwnToo) {
  Call c;
  Tensor wide(DType::kF32, {5, 18});
  const auto forward = [&](int heads, Rows<float> out) {
    return message_of([&] {
      fuxi_attention<float>(c.ctx, c.p.q, c.p.k, c.p.v, c.p.bias, {.heads = heads}, out);
    });
  };
  EXPECT_EQ(forward(2, wide.view<float, 2>()), "");
  EXPECT_EQ(forward(2, c.y), "fuxi_attention: out is [5, 6]; wanted [5, 18]");
  EXPECT_EQ(forward(0, wide.view<float, 2>()), "fuxi_attention: 0 heads; wanted 1 or more");
  const auto backward = [&](Rows<const float> dy, Rows<float> dq) {
    return message_of([&] {
      fuxi_attention_backward<float>(c.ctx, c.p.q, c.p.k, c.p.v, c.p.bias, {.heads = 2}, dy, dq,
                                     c.dk, c.dv, c.dbias);
    });
  };
  EXPECT_EQ(backward(wide.view<float, 2>(), c.dq), "");
  EXPECT_EQ(backward(c.dy, c.dq), "fuxi_attention_backward: dout is [5, 6]; wanted [5, 18]");
  EXPECT_EQ(backward(wide.view<float, 2>(), c.dv),
            "fuxi_attention_backward: dq is [5, 6]; wanted [5, 8]");
}

TEST(AttentionErrors, AskForScratchMemoryByName) {
  Call c;
  const Context bare({.threads = 1});
  const std::string message = message_of(
      [&] { hstu_attention<float>(bare, c.p.q, c.p.k, c.p.v, c.p.bias, c.options(), c.y); });
  EXPECT_NE(message.find("_workspace_bytes"), std::string::npos);
}

}  // namespace
}  // namespace turbogr::ops
