#include "turbogr/ops/attention/cpu/attention_cpu.h"

#include <algorithm>

#include "turbogr/ops/attention/cpu/attention_simd.h"
#include "turbogr/ops/attention/time_bucket.h"
#include "turbogr/ops/dense/elementwise_simd.h"

namespace turbogr::ops {
namespace {

static_assert(kTimeBuckets == kAttentionTimeBuckets);

constexpr std::int64_t kTileWords = kAttentionTile * kAttentionTile;
constexpr std::int64_t kRunWords = kTileWords * sizeof(AttentionTimeRun) / sizeof(float);

std::int64_t round_up(std::int64_t width) {
  return (width + kAttentionPad - 1) / kAttentionPad * kAttentionPad;
}
std::int64_t blocks_of(std::int64_t length) {
  return (length + kAttentionTile - 1) / kAttentionTile;
}

// Hands out parts of a worker's memory; without memory it only counts.
class Layout {
 public:
  explicit Layout(float* base) : base_(base) {}
  float* take(std::int64_t words) {
    float* part = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(words);
    return part;
  }
  float* take_tile() {  // rows with a margin of zeros, also before the first
    float* part = take(kAttentionPad + kAttentionTile * kAttentionTileStride);
    return part == nullptr ? nullptr : part + kAttentionPad;
  }
  std::int64_t used() const { return used_; }

 private:
  float* base_;
  std::int64_t used_ = 0;
};

struct Sizes {
  std::int64_t heads, query_width, value_width, max_length, maps;
};

// Heads that go back through a sequence together: more share the work of a tile's bias, fewer need
// less memory. Measured with 8 heads of 64.
constexpr std::int64_t kHeadsTogether = 4;

void lay_out_tiles(Layout& layout, AttentionScratch& s) {
  s.score = layout.take_tile();
  s.weight_words = layout.take(kTileWords);
  s.bias = layout.take(kTileWords);
  s.map_words = layout.take(kTileWords);
  s.time_map = layout.take(kTileWords);
  s.time_map_words = layout.take(kTileWords);
  s.runs = reinterpret_cast<AttentionTimeRun*>(layout.take(kRunWords));
}

AttentionScratch forward_scratch(Layout& layout, const Sizes& sizes) {
  AttentionScratch s = {};
  lay_out_tiles(layout, s);
  const std::int64_t line = round_up(sizes.value_width);
  s.key_rows = layout.take(kAttentionTile * round_up(sizes.query_width));
  s.q_columns = layout.take(sizes.heads * sizes.query_width * kAttentionTile);
  s.sum = layout.take(sizes.heads * sizes.maps * kAttentionTile * line);
  s.value_lines = layout.take(kAttentionTile * line);
  return s;
}

AttentionScratch backward_scratch(Layout& layout, const Sizes& sizes) {
  AttentionScratch s = {};
  lay_out_tiles(layout, s);
  const std::int64_t heads = std::min<std::int64_t>(sizes.heads, kHeadsTogether);
  const std::int64_t rows = heads * blocks_of(sizes.max_length) * kAttentionTile;
  const std::int64_t key_rows = heads * kAttentionTile;
  const std::int64_t q_line = round_up(sizes.query_width);
  const std::int64_t v_line = round_up(sizes.value_width);
  s.q_columns = layout.take(rows * sizes.query_width);
  s.q_lines = layout.take(rows * q_line);
  s.dout_columns = layout.take(sizes.maps * rows * sizes.value_width);
  s.dout_lines = layout.take(sizes.maps * rows * v_line);
  s.sum = layout.take(rows * q_line);
  s.key_rows = layout.take(key_rows * q_line);
  s.key_lines = layout.take(key_rows * q_line);
  s.value_rows = layout.take(key_rows * v_line);
  s.dkey = layout.take(key_rows * q_line);
  s.dvalue = layout.take(key_rows * v_line);
  s.time_bins = layout.take(heads * kTimeBuckets * kAttentionPad);
  s.dweight = layout.take_tile();
  s.dscore_words = layout.take(kTileWords);
  s.dscore_pairs = layout.take(kTileWords);
  return s;
}

Sizes sizes_of(const AttentionShape& shape, TableRole role) {
  return {shape.heads, shape.query_width, shape.value_width, shape.max_length,
          role == TableRole::kMaps ? 3 : 1};
}

std::int64_t forward_words(const Sizes& sizes) {
  Layout layout(nullptr);
  forward_scratch(layout, sizes);
  return layout.used();
}
std::int64_t backward_words(const Sizes& sizes) {
  Layout layout(nullptr);
  backward_scratch(layout, sizes);
  return layout.used();
}

// A block of queries with all heads, or a whole sequence (block 0) with some.
struct Piece {
  std::int64_t length;  // of the sequence
  std::int64_t sequence;
  std::int64_t block;
  std::int64_t first_head, heads;
};

// Long sequences first, so that the last pieces, which decide how evenly threads end, are small;
// and the pieces of a sequence together, as they read the same keys.
void sort_longest_first(View<Piece, 1> pieces) {
  std::sort(pieces.data, pieces.data + pieces.shape[0], [](const Piece& a, const Piece& b) {
    if (a.length != b.length) return a.length > b.length;
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.block > b.block;
  });
}

// Cuts each sequence into groups of heads: large ones, but towards the end no larger than an even
// share of what is left, so that threads end together. `pieces` holds the non-empty sequences,
// longest first, in its first `count` places, and has room for a piece a head. Returns the number
// of pieces. Heads meet in no sum, so the cut, which depends on the threads, changes no bit.
std::int64_t cut_heads(View<Piece, 1> pieces, std::int64_t count, std::int64_t heads,
                       std::int64_t threads) {
  // Read from the far end, where no piece is written before its sequence has been read.
  const std::int64_t capacity = pieces.shape[0];
  std::copy_backward(pieces.data, pieces.data + count, pieces.data + capacity);
  const Piece* sequences = pieces.data + capacity - count;
  std::int64_t work_left = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    work_left += heads * sequences[i].length * sequences[i].length;
  }
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Piece sequence = sequences[i];
    const std::int64_t work = sequence.length * sequence.length;
    for (std::int64_t head = 0; head < heads;) {
      const std::int64_t share = work_left / (2 * threads * work);
      const std::int64_t most = std::min(kHeadsTogether, heads - head);
      const std::int64_t taken = std::clamp<std::int64_t>(share, 1, most);
      pieces(next++) = {sequence.length, sequence.sequence, 0, head, taken};
      work_left -= taken * work;
      head += taken;
    }
  }
  return next;
}

std::int64_t max_length_of(Offsets offsets) {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
    longest = std::max(longest, offsets(b + 1) - offsets(b));
  }
  return longest;
}

template <class T>
Sizes sizes_of(const AttentionProblem<T>& p, TableRole role) {
  return {p.heads, p.q.width() / p.heads, p.v.cols / p.heads, max_length_of(p.q.offsets),
          role == TableRole::kMaps ? 3 : 1};
}

template <class T>
AttentionArgs arguments(const AttentionProblem<T>& p, TableRole role) {
  AttentionArgs args = {};
  args.q = p.q.values.data;
  args.k = p.k.data;
  args.v = p.v.data;
  args.q_stride = p.q.values.stride;
  args.k_stride = p.k.stride;
  args.v_stride = p.v.stride;
  args.query_width = p.q.width() / p.heads;
  args.value_width = p.v.cols / p.heads;
  args.alpha = static_cast<float>(p.alpha);
  args.inverse_norm = static_cast<float>(1.0 / p.norm_length);
  args.separate_maps = role == TableRole::kMaps;
  args.position = p.bias.position.empty() ? nullptr : p.bias.position.data;
  args.max_length = (p.bias.position.shape[0] + 1) / 2;
  args.time = p.bias.time.empty() ? nullptr : p.bias.time.data;
  args.key_times = p.bias.key_times.data;
  args.query_times = p.bias.query_times.data;
  args.time_first_gap = kTimeBucketTable.first_gap;
  args.time_first_bucket = kTimeBucketTable.first_bucket;
  return args;
}

template <class T>
AttentionItem sequence_item(const AttentionProblem<T>& p, std::int64_t b) {
  const SequenceMask mask = sequence_mask(p.mask, p.q.offsets, b);
  AttentionItem item = {};
  item.begin = p.q.offsets(b);
  item.length = mask.length;
  item.prefix = mask.prefix;
  item.history_end = mask.history_end;
  item.window = std::min(mask.window, mask.length);  // sums with it must not overflow
  item.last_place = mask.last_place;
  return item;
}

// The per-item gradients of the tables, [B, H] items end to end.
struct TableGradients {
  std::int64_t heads;
  float* position;  // sequence b, head h: 2 * length elements from 2 * (offsets(b) * heads + length
                    // * h)
  float* time;      // [B * H, 129]

  float* position_of(Offsets offsets, std::int64_t b, std::int64_t h) const {
    if (position == nullptr) return nullptr;
    return position + 2 * (offsets(b) * heads + (offsets(b + 1) - offsets(b)) * h);
  }
  float* time_of(std::int64_t b, std::int64_t h) const {
    return time == nullptr ? nullptr : time + (b * heads + h) * kTimeBuckets;
  }
};

// target[S - 1 - distance] += scale * sum over items of their gradient at that query - key
// distance.
void add_position(Cpu cpu, const TableGradients& items, Offsets offsets, double scale,
                  View<float, 1> target) {
  constexpr std::int64_t kGrain = 64;
  const std::int64_t middle = (target.shape[0] - 1) / 2;
  parallel_ranges(cpu.pool, target.shape[0], kGrain,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    double sums[kGrain] = {};
                    for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
                      const std::int64_t length = offsets(b + 1) - offsets(b);
                      // Entry p is distance middle - p, and element length - 1 + middle - p of the
                      // item.
                      const std::int64_t from = std::max(begin, middle - (length - 1));
                      const std::int64_t to = std::min(end, middle + length);
                      for (std::int64_t h = 0; h < items.heads; ++h) {
                        const float* gradient = items.position_of(offsets, b, h);
                        for (std::int64_t p = from; p < to; ++p) {
                          sums[p - begin] += gradient[length - 1 + middle - p];
                        }
                      }
                    }
                    for (std::int64_t p = begin; p < end; ++p) {
                      target(p) += static_cast<float>(scale * sums[p - begin]);
                    }
                  });
}

void add_time(Cpu cpu, const TableGradients& items, Offsets offsets, double scale,
              View<float, 1> target) {
  constexpr std::int64_t kGrain = 16;
  parallel_ranges(cpu.pool, kTimeBuckets, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    double sums[kGrain] = {};
    for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
      if (offsets(b) == offsets(b + 1)) continue;  // no item has written its part
      for (std::int64_t h = 0; h < items.heads; ++h) {
        const float* gradient = items.time_of(b, h);
        for (std::int64_t bucket = begin; bucket < end; ++bucket) {
          sums[bucket - begin] += gradient[bucket];
        }
      }
    }
    for (std::int64_t bucket = begin; bucket < end; ++bucket) {
      target(bucket) += static_cast<float>(scale * sums[bucket - begin]);
    }
  });
}

// Turns what an item has just written, rows [begin, end) of some heads, into gradients before SiLU.
template <class T>
void bring_in_silu(SimdLevel simd, const Piece& piece, std::int64_t all_heads, std::int64_t begin,
                   std::int64_t end, Rows<const T> before, Rows<T> gradient) {
  if (before.data == nullptr) return;
  const auto row = elementwise_table(simd).of<T>().silu_backward;
  const std::int64_t width = gradient.cols / all_heads;
  const std::int64_t column = piece.first_head * width, cols = piece.heads * width;
  for (std::int64_t r = begin; r < end; ++r) {
    T* at = gradient.row(r) + column;
    row(cols, before.row(r) + column, at, at);
  }
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionShape& shape, TableRole role) {
  return workspace_bytes_of<Piece>(shape.tokens / kAttentionTile + shape.batch) +
         workspace_bytes_of<float>(shape.threads * forward_words(sizes_of(shape, role)));
}

std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, TableRole role) {
  return workspace_bytes_of<Piece>(shape.batch * shape.heads) +
         workspace_bytes_of<float>(shape.threads * backward_words(sizes_of(shape, role))) +
         workspace_bytes_of<float>(2 * shape.tokens * shape.heads) +
         workspace_bytes_of<float>(shape.batch * shape.heads * kTimeBuckets);
}

template <class T>
void run_attention(Cpu cpu, const AttentionProblem<T>& p, TableRole role, Rows<T> out) {
  WorkspaceScope scratch(cpu.workspace);
  const Offsets offsets = p.q.offsets;
  std::int64_t num_pieces = 0;
  for (std::int64_t b = 0; b < p.q.batch(); ++b) {
    num_pieces += blocks_of(offsets(b + 1) - offsets(b));
  }
  const View<Piece, 1> pieces = scratch.take<Piece>(num_pieces);
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < p.q.batch(); ++b) {
    const std::int64_t length = offsets(b + 1) - offsets(b);
    for (std::int64_t block = 0; block < blocks_of(length); ++block) {
      pieces(next++) = {length, b, block, 0, p.heads};
    }
  }
  sort_longest_first(pieces);

  const Sizes sizes = sizes_of(p, role);
  const std::int64_t words = forward_words(sizes);
  const View<float, 1> memory = scratch.take<float>(cpu.pool.size() * words);
  AttentionArgs args = arguments(p, role);
  args.out = out.data;
  args.out_stride = out.stride;
  const AttentionTable& table = attention_table(cpu.simd);
  const auto function = sizeof(T) == 2 ? table.forward_bf16 : table.forward_f32;
  // Heads stay together, as they share a tile's bias, unless that leaves threads without work.
  // Heads do not meet in any sum, so the split changes no bit.
  const std::int64_t wanted = 4 * cpu.pool.size();
  const std::int64_t groups =
      num_pieces == 0 ? 1 : std::clamp<std::int64_t>(wanted / num_pieces, 1, p.heads);
  const std::int64_t heads_a_group = (p.heads + groups - 1) / groups;
  const std::int64_t num_groups = (p.heads + heads_a_group - 1) / heads_a_group;
  parallel_for(cpu.pool, num_pieces * num_groups, [&](std::int64_t index, int worker) {
    const Piece& piece = pieces(index / num_groups);
    AttentionItem item = sequence_item(p, piece.sequence);
    item.block = piece.block;
    item.first_head = index % num_groups * heads_a_group;
    item.heads = std::min<std::int64_t>(heads_a_group, p.heads - item.first_head);
    Layout layout(memory.data + worker * words);
    function(args, item, forward_scratch(layout, sizes));
  });
}

template <class T>
void run_attention_backward(Cpu cpu, const AttentionProblem<T>& p, TableRole role,
                            Rows<const T> dout, const AttentionGradients<T>& gradients) {
  WorkspaceScope scratch(cpu.workspace);
  const Offsets offsets = p.q.offsets;
  const std::int64_t batch = p.q.batch();
  const View<Piece, 1> pieces = scratch.take<Piece>(batch * p.heads);
  std::int64_t sequences = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = offsets(b + 1) - offsets(b);
    if (length > 0) pieces(sequences++) = {length, b, 0, 0, p.heads};
  }
  sort_longest_first({pieces.data, {sequences}});
  const std::int64_t num_pieces = cut_heads(pieces, sequences, p.heads, cpu.pool.size());

  TableGradients items = {p.heads, nullptr, nullptr};
  const bool want_position = !gradients.dbias.position.empty();
  const bool want_time = !gradients.dbias.time.empty();
  if (want_position) items.position = scratch.take<float>(2 * p.q.tokens() * p.heads).data;
  if (want_time) items.time = scratch.take<float>(batch * p.heads * kTimeBuckets).data;

  const Sizes sizes = sizes_of(p, role);
  const std::int64_t words = backward_words(sizes);
  const View<float, 1> memory = scratch.take<float>(cpu.pool.size() * words);
  AttentionArgs args = arguments(p, role);
  args.dout = dout.data;
  args.out_stride = dout.stride;
  args.dq = gradients.dq.data;
  args.dk = gradients.dk.data;
  args.dv = gradients.dv.data;
  args.dq_stride = gradients.dq.stride;
  args.dk_stride = gradients.dk.stride;
  args.dv_stride = gradients.dv.stride;
  const AttentionTable& table = attention_table(cpu.simd);
  const auto function = sizeof(T) == 2 ? table.backward_bf16 : table.backward_f32;
  parallel_for(cpu.pool, num_pieces, [&](std::int64_t index, int worker) {
    const Piece& piece = pieces(index);
    AttentionItem item = sequence_item(p, piece.sequence);
    item.first_head = piece.first_head;
    item.heads = piece.heads;
    item.dposition = items.position_of(offsets, piece.sequence, item.first_head);
    item.dtime = items.time_of(piece.sequence, item.first_head);
    Layout layout(memory.data + worker * words);
    function(args, item, backward_scratch(layout, sizes));
    const std::int64_t begin = offsets(piece.sequence), end = offsets(piece.sequence + 1);
    bring_in_silu(cpu.simd, piece, p.heads, begin, end, gradients.q_before, gradients.dq);
    bring_in_silu(cpu.simd, piece, p.heads, begin, end, gradients.k_before, gradients.dk);
    bring_in_silu(cpu.simd, piece, p.heads, begin, end, gradients.v_before, gradients.dv);
  });
  // A bias is inside the 1 / norm_length, a map is not.
  const double scale = role == TableRole::kBias ? 1.0 / p.norm_length : 1.0;
  if (want_position) add_position(cpu, items, offsets, scale, gradients.dbias.position);
  if (want_time) add_time(cpu, items, offsets, scale, gradients.dbias.time);
}

#define TGR_INSTANTIATE(T)                                                             \
  template void run_attention<T>(Cpu, const AttentionProblem<T>&, TableRole, Rows<T>); \
  template void run_attention_backward<T>(Cpu, const AttentionProblem<T>&, TableRole,  \
                                          Rows<const T>, const AttentionGradients<T>&);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
