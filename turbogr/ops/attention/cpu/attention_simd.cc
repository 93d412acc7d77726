#include "turbogr/ops/attention/cpu/attention_simd.h"

#include "turbogr/ops/attention/cpu/attention_weights_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

constexpr std::int64_t round_up(std::int64_t count) {
  return (count + kAttentionPad - 1) / kAttentionPad * kAttentionPad;
}

template <class T>
inline const T* head(const void* matrix, std::int64_t stride, std::int64_t row,
                     std::int64_t column) {
  return static_cast<const T*>(matrix) + row * stride + column;
}
template <class T>
inline T* head(void* matrix, std::int64_t stride, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(matrix) + row * stride + column;
}

// target = scale * sum, in the format of T.
template <class T>
inline void write_rows(const float* sum, std::int64_t sum_stride, float scale, std::int64_t rows,
                       std::int64_t width, T* target, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; c += kLanes) {
      store_row(target + r * stride, c, width, load(sum + r * sum_stride + c) * splat(scale));
    }
  }
}

template <class T>
inline void pack_head_columns(const T* source, std::int64_t stride, std::int64_t rows,
                              std::int64_t width, float* row_scratch, float* columns) {
  pack_rows(source, stride, rows, width, row_scratch, round_up(width));
  pack_columns(row_scratch, round_up(width), rows, words_of<T>(width), columns);
}

// Rows as a left side: where they lie if their elements are already words there, or packed.
template <class T>
inline LeftSide left_rows(const T* source, std::int64_t stride, std::int64_t rows,
                          std::int64_t width, float* row_scratch) {
  if constexpr (sizeof(T) == 4) {
    return {source, stride, 1};
  } else {
    if (kPairs<T> && width % 2 == 0 && stride % 2 == 0) {
      return {reinterpret_cast<const float*>(source), stride / 2, 1};
    }
    pack_rows(source, stride, rows, width, row_scratch, round_up(width));
    return {row_scratch, round_up(width), 1};
  }
}

// Rows of a head lie far apart, which no hardware prefetcher foresees.
template <class T>
inline void prefetch_rows(const T* source, std::int64_t stride, std::int64_t rows,
                          std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const char* row = reinterpret_cast<const char*>(source + r * stride);
    for (std::int64_t byte = 0; byte < width * static_cast<std::int64_t>(sizeof(T)); byte += 64) {
      __builtin_prefetch(row + byte);
    }
  }
}

inline void set_queries(Tile& tile, const AttentionItem& item, std::int64_t block) {
  tile.first_query = block * kTile;
  tile.queries = item.length - tile.first_query < kTile ? item.length - tile.first_query : kTile;
  tile.query_vectors = vectors_of(tile.queries);
}
inline void set_keys(Tile& tile, const AttentionItem& item, std::int64_t block) {
  tile.first_key = block * kTile;
  tile.keys = item.length - tile.first_key < kTile ? item.length - tile.first_key : kTile;
}

inline void clear(float* values, std::int64_t count) {
  std::memset(values, 0, static_cast<std::size_t>(count) * sizeof(float));
}

// One block of queries against every key it sees, head by head: the bias of a tile is made once for
// all heads.
template <class T>
void forward_item(const AttentionArgs& args, const AttentionItem& item, const AttentionScratch& s) {
  const std::int64_t dq = args.query_width;
  const std::int64_t dv = args.value_width;
  const std::int64_t line = round_up(dv);
  const std::int64_t maps = args.separate_maps ? 3 : 1;
  const std::int64_t latent = maps - 1;
  const std::int64_t depth = words_of<T>(dq);
  Tile tile;
  set_queries(tile, item, item.block);
  const std::int64_t first_row = item.begin + tile.first_query;
  for (std::int64_t h = 0; h < item.heads; ++h) {
    pack_head_columns(head<T>(args.q, args.q_stride, first_row, (item.first_head + h) * dq),
                      args.q_stride, tile.queries, dq, s.key_rows, s.q_columns + h * dq * kTile);
  }
  clear(s.sum, item.heads * maps * kTile * line);

  TileRuns runs;
  runs.runs = s.runs;
  for (std::int64_t block = 0; block * kTile < item.length; ++block) {
    set_keys(tile, item, block);
    if (!mask_tile(item, tile)) continue;
    const float* bias = nullptr;
    if (args.separate_maps) {
      if (args.position != nullptr) {
        position_map(args, item, tile, s.bias);
        mask_values(tile, s.bias, kTile);
        map_pairs<T>(tile, s.bias, s.map_words);
      }
      if (args.time != nullptr) {
        time_map(args, item, tile, false, s.time_map, runs);
        mask_values(tile, s.time_map, kTile);
        map_pairs<T>(tile, s.time_map, s.time_map_words);
      }
    } else {
      if (args.position != nullptr) {
        position_map(args, item, tile, s.bias);
        bias = s.bias;
      }
      if (args.time != nullptr) {
        time_map(args, item, tile, bias != nullptr, s.bias, runs);
        bias = s.bias;
      }
    }
    const std::int64_t key_row = item.begin + tile.first_key;
    for (std::int64_t h = 0; h < item.heads; ++h) {
      const std::int64_t column = item.first_head + h;
      // The next head's rows, or the first head's of the next block, while this head multiplies.
      const bool last = h + 1 == item.heads;
      const std::int64_t next_column = last ? item.first_head : column + 1;
      const std::int64_t next_row = last ? key_row + tile.keys : key_row;
      const std::int64_t rows_left = item.begin + item.length - next_row;
      const std::int64_t next_rows = rows_left < kTile ? rows_left : kTile;
      prefetch_rows(head<T>(args.k, args.k_stride, next_row, next_column * dq), args.k_stride,
                    next_rows, dq);
      const LeftSide keys = left_rows(head<T>(args.k, args.k_stride, key_row, column * dq),
                                      args.k_stride, tile.keys, dq, s.key_rows);
      multiply_tile<T, Triangle::kVectorsFromRow, false>(
          tile, {tile.keys, tile.query_vectors, depth, keys.words, keys.row, keys.depth,
                 s.q_columns + h * dq * kTile, kTile, s.score, kStride});
      prefetch_rows(head<T>(args.v, args.v_stride, next_row, next_column * dv), args.v_stride,
                    next_rows, dv);
      weigh_tile<T>(args, tile, s.score, bias, s.weight_words);
      pack_lines(head<T>(args.v, args.v_stride, key_row, column * dv), args.v_stride, tile.keys, dv,
                 s.value_lines, line);
      const auto add_map = [&](std::int64_t map, const LeftSide& left) {
        multiply_tile<T, Triangle::kDepthToRow, true>(
            tile, {tile.queries, vectors_of(dv), words_of<T>(tile.keys), left.words, left.row,
                   left.depth, s.value_lines, line, s.sum + (h * maps + map) * kTile * line, line});
      };
      add_map(latent, by_query<T>(s.score, kStride, s.weight_words));
      if (args.separate_maps) {
        if (args.position != nullptr) add_map(0, by_query<T>(s.bias, kTile, s.map_words));
        if (args.time != nullptr) add_map(1, by_query<T>(s.time_map, kTile, s.time_map_words));
      }
    }
  }
  for (std::int64_t h = 0; h < item.heads; ++h) {
    for (std::int64_t map = 0; map < maps; ++map) {
      const std::int64_t column = ((item.first_head + h) * maps + map) * dv;
      write_rows(s.sum + (h * maps + map) * kTile * line, line,
                 map == latent ? args.inverse_norm : 1.0f, tile.queries, dv,
                 head<T>(args.out, args.out_stride, first_row, column), args.out_stride);
    }
  }
}

// Memory of one of the heads that go through a sequence's tiles together.
struct HeadScratch {
  float *q_columns, *q_lines, *dout_columns, *dout_lines, *dq;  // of all blocks of queries
  float *key_rows, *key_lines, *value_rows, *dkey, *dvalue;     // of one block of keys
  float *dposition, *dtime, *time_bins;
};

// Some heads of one sequence in one pass over its tiles, keys outside: dk and dv of a block of keys
// are complete when its queries are through, dq is summed in scratch. The heads share a tile's
// mask, bias and time runs; no sum of one meets another's.
template <class T>
void backward_item(const AttentionArgs& args, const AttentionItem& item,
                   const AttentionScratch& s) {
  const std::int64_t dq = args.query_width;
  const std::int64_t dv = args.value_width;
  const std::int64_t q_line = round_up(dq);
  const std::int64_t v_line = round_up(dv);
  const std::int64_t blocks = (item.length + kTile - 1) / kTile;
  const std::int64_t maps = args.separate_maps ? 3 : 1;
  const std::int64_t latent = maps - 1;
  const bool map_used[3] = {maps == 1 || args.position != nullptr, args.time != nullptr, true};
  const bool bias_gradients =
      !args.separate_maps && (item.dposition != nullptr || item.dtime != nullptr);
  Tile tile;

  const auto scratch_of = [&](std::int64_t h) {
    const std::int64_t rows = blocks * kTile;
    HeadScratch part;
    part.q_columns = s.q_columns + h * rows * dq;
    part.q_lines = s.q_lines + h * rows * q_line;
    part.dout_columns = s.dout_columns + h * maps * rows * dv;
    part.dout_lines = s.dout_lines + h * maps * rows * v_line;
    part.dq = s.sum + h * rows * q_line;
    part.key_rows = s.key_rows + h * kTile * q_line;
    part.key_lines = s.key_lines + h * kTile * q_line;
    part.value_rows = s.value_rows + h * kTile * v_line;
    part.dkey = s.dkey + h * kTile * q_line;
    part.dvalue = s.dvalue + h * kTile * v_line;
    part.dposition = item.dposition == nullptr ? nullptr : item.dposition + h * 2 * item.length;
    part.dtime = item.dtime == nullptr ? nullptr : item.dtime + h * kAttentionTimeBuckets;
    part.time_bins = s.time_bins + h * kAttentionTimeBuckets * kAttentionPad;
    return part;
  };
  const auto dout_columns = [&](const HeadScratch& part, std::int64_t map, std::int64_t block) {
    return part.dout_columns + (map * blocks + block) * dv * kTile;
  };
  const auto dout_lines = [&](const HeadScratch& part, std::int64_t map, std::int64_t block) {
    return part.dout_lines + (map * blocks + block) * kTile * v_line;
  };
  for (std::int64_t h = 0; h < item.heads; ++h) {
    const HeadScratch part = scratch_of(h);
    const std::int64_t column = item.first_head + h;
    for (std::int64_t block = 0; block < blocks; ++block) {
      set_queries(tile, item, block);
      const std::int64_t row = item.begin + tile.first_query;
      const T* q = head<T>(args.q, args.q_stride, row, column * dq);
      pack_head_columns(q, args.q_stride, tile.queries, dq, s.key_rows,
                        part.q_columns + block * dq * kTile);
      pack_lines(q, args.q_stride, tile.queries, dq, part.q_lines + block * kTile * q_line, q_line);
      for (std::int64_t map = 0; map < maps; ++map) {
        if (!map_used[map]) continue;
        const T* dout = head<T>(args.dout, args.out_stride, row, (column * maps + map) * dv);
        pack_head_columns(dout, args.out_stride, tile.queries, dv, s.value_rows,
                          dout_columns(part, map, block));
        pack_lines(dout, args.out_stride, tile.queries, dv, dout_lines(part, map, block), v_line);
      }
    }
    clear(part.dq, blocks * kTile * q_line);
    clear(part.time_bins, kAttentionTimeBuckets * kAttentionPad);
    if (part.dposition != nullptr) clear(part.dposition, 2 * item.length - 1);
  }
  for (std::int64_t r = -1; r < kTile; ++r) {
    clear(s.dweight + r * kStride + kTile, kStride - kTile);
  }

  TileRuns runs;
  runs.runs = s.runs;
  for (std::int64_t key_block = 0; key_block < blocks; ++key_block) {
    set_keys(tile, item, key_block);
    const std::int64_t key_row = item.begin + tile.first_key;
    for (std::int64_t h = 0; h < item.heads; ++h) {
      const HeadScratch part = scratch_of(h);
      const T* k = head<T>(args.k, args.k_stride, key_row, (item.first_head + h) * dq);
      const T* v = head<T>(args.v, args.v_stride, key_row, (item.first_head + h) * dv);
      pack_rows(k, args.k_stride, tile.keys, dq, part.key_rows, q_line);
      pack_lines(k, args.k_stride, tile.keys, dq, part.key_lines, q_line);
      pack_rows(v, args.v_stride, tile.keys, dv, part.value_rows, v_line);
      clear(part.dkey, kTile * q_line);
      clear(part.dvalue, kTile * v_line);
    }

    for (std::int64_t block = 0; block < blocks; ++block) {
      set_queries(tile, item, block);
      if (!mask_tile(item, tile)) continue;
      const std::int64_t depth = words_of<T>(tile.queries);
      const float* bias = nullptr;
      if (args.separate_maps) {
        if (args.position != nullptr) {
          position_map(args, item, tile, s.bias);
          mask_values(tile, s.bias, kTile);
          map_rows<T>(tile, s.bias, s.map_words);
        }
        if (args.time != nullptr) {
          time_map(args, item, tile, false, s.time_map, runs);
          mask_values(tile, s.time_map, kTile);
          map_rows<T>(tile, s.time_map, s.time_map_words);
        }
      } else {
        if (args.position != nullptr) {
          position_map(args, item, tile, s.bias);
          bias = s.bias;
        }
        if (args.time != nullptr) {
          time_map(args, item, tile, bias != nullptr, s.bias, runs);
          bias = s.bias;
        }
      }

      for (std::int64_t h = 0; h < item.heads; ++h) {
        const HeadScratch part = scratch_of(h);
        const auto add_dvalue = [&](std::int64_t map, const LeftSide& left) {
          multiply_tile<T, Triangle::kDepthFromRow, true>(
              tile, {tile.keys, vectors_of(dv), depth, left.words, left.row, left.depth,
                     dout_lines(part, map, block), v_line, part.dvalue, v_line});
        };
        const auto make_dweight = [&](std::int64_t map) {
          multiply_tile<T, Triangle::kVectorsFromRow, false>(
              tile, {tile.keys, tile.query_vectors, words_of<T>(dv), part.value_rows, v_line, 1,
                     dout_columns(part, map, block), kTile, s.dweight, kStride});
        };
        const auto add_bias_gradients = [&](float* position, const float* time) {
          if (time != nullptr) add_time_runs(tile, s.dweight, runs, part.time_bins);
          if (position == nullptr) return;
          take_last_place(item, tile, s.dweight, position);
          add_diagonals(tile, s.dweight,
                        position + item.length - 1 + tile.first_query - tile.first_key);
        };
        if (args.separate_maps && args.position != nullptr) {
          add_dvalue(0, by_key<T>(s.bias, kTile, s.map_words));
          if (part.dposition != nullptr) {
            make_dweight(0);
            mask_values(tile, s.dweight, kStride);
            add_bias_gradients(part.dposition, nullptr);
          }
        }
        if (args.separate_maps && args.time != nullptr) {
          add_dvalue(1, by_key<T>(s.time_map, kTile, s.time_map_words));
          if (part.dtime != nullptr) {
            make_dweight(1);
            mask_values(tile, s.dweight, kStride);
            add_bias_gradients(nullptr, part.dtime);
          }
        }
        multiply_tile<T, Triangle::kVectorsFromRow, false>(
            tile, {tile.keys, tile.query_vectors, words_of<T>(dq), part.key_rows, q_line, 1,
                   part.q_columns + block * dq * kTile, kTile, s.score, kStride});
        make_dweight(latent);
        weigh_tile_back<T>(
            args, tile,
            {s.score, s.dweight, bias, s.weight_words, s.dscore_words, s.dscore_pairs,
             args.separate_maps ? args.inverse_norm : 1.0f, bias_gradients});
        add_dvalue(latent, by_key<T>(s.score, kStride, s.weight_words));
        const LeftSide dscore_rows = by_key<T>(s.dweight, kStride, s.dscore_words);
        multiply_tile<T, Triangle::kDepthFromRow, true>(
            tile,
            {tile.keys, vectors_of(dq), depth, dscore_rows.words, dscore_rows.row,
             dscore_rows.depth, part.q_lines + block * kTile * q_line, q_line, part.dkey, q_line});
        const LeftSide dscore_pairs = by_query<T>(s.dweight, kStride, s.dscore_pairs);
        multiply_tile<T, Triangle::kDepthToRow, true>(
            tile, {tile.queries, vectors_of(dq), words_of<T>(tile.keys), dscore_pairs.words,
                   dscore_pairs.row, dscore_pairs.depth, part.key_lines, q_line,
                   part.dq + block * kTile * q_line, q_line});
        if (bias_gradients) add_bias_gradients(part.dposition, part.dtime);
      }
    }
    for (std::int64_t h = 0; h < item.heads; ++h) {
      const HeadScratch part = scratch_of(h);
      const std::int64_t column = item.first_head + h;
      write_rows(part.dkey, q_line, args.alpha * args.inverse_norm, tile.keys, dq,
                 head<T>(args.dk, args.dk_stride, key_row, column * dq), args.dk_stride);
      write_rows(part.dvalue, v_line, args.separate_maps ? 1.0f : args.inverse_norm, tile.keys, dv,
                 head<T>(args.dv, args.dv_stride, key_row, column * dv), args.dv_stride);
    }
  }
  for (std::int64_t h = 0; h < item.heads; ++h) {
    const HeadScratch part = scratch_of(h);
    write_rows(part.dq, q_line, args.alpha * args.inverse_norm, item.length, dq,
               head<T>(args.dq, args.dq_stride, item.begin, (item.first_head + h) * dq),
               args.dq_stride);
    if (part.dtime == nullptr) continue;
    for (int bucket = 0; bucket < kAttentionTimeBuckets; ++bucket) {
      part.dtime[bucket] = sum(load(part.time_bins + bucket * kAttentionPad));
    }
  }
}

constexpr AttentionTable kTable = {forward_item<float>, forward_item<bf16>, backward_item<float>,
                                   backward_item<bf16>};

}  // namespace

const AttentionTable& attention_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
