#include "turbogr/model/ranking_inputs.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::model {
namespace {

bool wants_token_times(const RankingOptions& model) { return layer_options(model).time_bias(); }

// A CPU reads the batch where it is, but for the offsets of parts and the times of tokens.
std::size_t feed_bytes(const Context& ctx, const RankingOptions& model,
                       const RankingBatchSize& size) {
  constexpr auto kParts = static_cast<std::size_t>(RankingInputs::kMostParts);
  const auto sequences = static_cast<std::size_t>(size.sequences);
  const auto tokens = static_cast<std::size_t>(size.tokens);
  const auto numbers = static_cast<std::size_t>(size.targets * model.tasks);
  std::size_t made =
      Feed::room<std::int64_t>(sequences + kParts) + kParts * Feed::room<std::int64_t>(1);
  if (wants_token_times(model)) made += 2 * Feed::room<std::int64_t>(tokens);
  if (ctx.device() == Device::kCpu) return made;
  return made + Feed::room<std::int64_t>(sequences) + 2 * Feed::room<std::int64_t>(tokens) +
         Feed::room<std::uint32_t>(tokens) + (model.bases ? 3 : 2) * Feed::room<float>(numbers);
}

template <class T>
View<const T, 1> some_of(View<const T, 1> all, std::int64_t first, std::int64_t count) {
  return {all.shape[0] == 0 ? all.data : all.data + first, {all.shape[0] == 0 ? 0 : count}};
}

View<const float, 1> values_of(Rows<const float> rows) {
  TGR_CHECK(rows.stride == rows.cols || rows.rows <= 1, "labels or weights of ", rows.cols,
            " tasks in rows ", rows.stride, " apart; they must lie close together");
  return {rows.data, {rows.rows * rows.cols}};
}

}  // namespace

RankingInputs::RankingInputs(const Context& ctx, const RankingOptions& model,
                             const RankingMemory& memory, const RankingBatchSize& size)
    : max_length_(model.max_length),
      token_times_(wants_token_times(model)),
      memory_(memory),
      size_(size),
      feed_(ctx, feed_bytes(ctx, model, size)) {
  parts_.reserve(kMostParts);
}

// As many sequences as fit, and one where none does: the model says what is wrong with it.
std::int64_t RankingInputs::end_of_part(const ops::EventSequences& s, std::int64_t first) const {
  std::int64_t end = first, tokens = 0, targets = 0;
  while (end < s.batch() && end - first < memory_.layers.sequences) {
    tokens += s.offsets(end + 1) - s.offsets(end);
    targets += s.num_targets(end);
    if (tokens > memory_.layers.capacity || targets > memory_.targets) break;
    ++end;
  }
  return std::max(end, first + 1);
}

std::span<const RankingPart> RankingInputs::send(const Context& ctx, const RankingBatch& batch) {
  const ops::EventSequences& s = batch.sequences;
  TGR_CHECK(s.batch() <= size_.sequences && s.num_tokens() <= size_.tokens &&
                batch.num_targets() <= size_.targets,
            "a batch of ", s.batch(), " sequences, ", s.num_tokens(), " tokens and ",
            batch.num_targets(), " targets where ", size_.sequences, ", ", size_.tokens, " and ",
            size_.targets, " were planned; plan for more or make the batch smaller");
  check_lengths(s, max_length_);
  parts_.clear();
  feed_.begin();
  const View<const std::int64_t, 1> times = feed_.put(ctx, s.times);
  const View<const std::int64_t, 1> num_targets = feed_.put(ctx, s.num_targets);
  const View<const std::uint32_t, 1> actions = feed_.put(ctx, batch.actions);
  const View<const std::uint64_t, 1> row_keys = feed_.put(ctx, batch.row_keys);
  const View<const float, 1> labels = feed_.put(ctx, values_of(batch.labels));
  const View<const float, 1> weights = feed_.put(ctx, values_of(batch.weights));
  const View<const float, 1> bases = feed_.put(ctx, values_of(batch.bases));
  View<const std::int64_t, 1> key_times, query_times;
  if (token_times_) {
    const View<std::int64_t, 1> keys = feed_.take<std::int64_t>(s.num_tokens());
    const View<std::int64_t, 1> queries = feed_.take<std::int64_t>(s.num_tokens());
    fill_token_times(s, keys, queries);
    key_times = feed_.send(ctx, keys);
    query_times = feed_.send(ctx, queries);
  }
  const std::int64_t tasks = batch.labels.cols;
  std::int64_t target = 0;
  for (std::int64_t first = 0; first < s.batch();) {
    TGR_CHECK(std::ssize(parts_) < kMostParts, "a batch of ", s.num_tokens(),
              " tokens falls into more than ", kMostParts, " parts of up to ",
              memory_.layers.capacity, "; plan for larger parts or make the batch smaller");
    const std::int64_t end = end_of_part(s, first), token = s.offsets(first);
    const std::int64_t event = token - first * s.num_prefix;
    const View<std::int64_t, 1> offsets = feed_.take<std::int64_t>(end - first + 1);
    RankingPart part;
    part.first_sequence = first;
    part.first_event = event;
    part.first_target = target;
    offsets(0) = 0;
    for (std::int64_t b = first; b < end; ++b) {
      offsets(b - first + 1) = s.offsets(b + 1) - token;
      part.step.num_targets += s.num_targets(b);
      part.step.most_targets = std::max(part.step.most_targets, s.num_targets(b));
    }
    const std::int64_t tokens = offsets(end - first);
    const std::int64_t events = tokens - (end - first) * s.num_prefix;
    part.step.sequences = {.offsets = feed_.send(ctx, offsets),
                           .num_prefix = s.num_prefix,
                           .num_targets = some_of(num_targets, first, end - first),
                           .times = some_of(times, event, events)};
    part.step.actions = some_of(actions, event, events);
    part.step.row_keys = some_of(row_keys, token, tokens);
    part.step.key_times = some_of(key_times, token, tokens);
    part.step.query_times = some_of(query_times, token, tokens);
    const std::int64_t m = part.step.num_targets;
    part.labels = {labels.data + target * tasks, m, tasks, tasks};
    part.weights = {weights.data + target * tasks, m, tasks, tasks};
    part.step.bases = some_of(bases, target * tasks, m * tasks);
    parts_.push_back(part);
    target += m;
    first = end;
  }
  feed_.end(ctx);
  return parts_;
}

}  // namespace turbogr::model
