// Attention over cached keys and values, and the stores that fill the cache.
//
// One query's arithmetic is fixed by positions: scores of 16 tokens at a time, each the sum of an even-dim
// and an odd-dim chain; one maximum per piece of 256 positions, weights summed by lanes of 16, then as a
// tree; weighted values as one chain over the piece's tokens per output. Queries computed together only share
// loads.
#pragma once

#include "kernels/isa/rows.h"

namespace deepinfer::kernels::DEEPINFER_ISA {

template <KvType T>
struct Cached;
template <>
struct Cached<KvType::kF16> {
  using Value = uint16_t;
  DI_INLINE f32x16 load(const Value* p) { return f_load_f16(p); }
  DI_INLINE void store(Value* p, f32x16 a) { f_store_f16(p, a); }
};
template <>
struct Cached<KvType::kBF16> {
  using Value = uint16_t;
  DI_INLINE f32x16 load(const Value* p) { return f_load_bf16(p); }
  DI_INLINE void store(Value* p, f32x16 a) { f_store_bf16(p, a); }
};
template <>
struct Cached<KvType::kF32> {
  using Value = float;
  DI_INLINE f32x16 load(const Value* p) { return f_load(p); }
  DI_INLINE void store(Value* p, f32x16 a) { f_store(p, a); }
};
template <>
struct Cached<KvType::kI8> {
  using Value = int8_t;
  DI_INLINE f32x16 load(const Value* p) { return f_load_i8(p); }
  DI_INLINE void store(Value* p, f32x16 a) { i_store_i8(p, f_round(a)); }
};

// The factor that turns a head into codes, after its scale has been written; 1 for float storage.
template <KvType T>
static float store_scale(const float* head, int head_dim, float* scale_at) {
  if constexpr (T == KvType::kI8) {
    f32x16 largest = f_zero();
    for (int d = 0; d < head_dim; d += kLanes) largest = f_max(f_abs(f_load(head + d)), largest);
    const CodeScale s = code_scale(f_largest(largest));
    *scale_at = s.scale;
    return s.inverse;
  }
  return 1.0f;
}

template <KvType T>
static void store_kv_as(const KvLayout& layout, std::byte* block_head, int slot, const float* key,
                        const float* value) {
  using Value = typename Cached<T>::Value;
  const int dim = layout.head_dim;
  auto* key_scales = reinterpret_cast<float*>(block_head + layout.key_scale_offset);
  auto* value_scales = reinterpret_cast<float*>(block_head + layout.value_scale_offset);
  const float key_factor = store_scale<T>(key, dim, key_scales + slot);
  const float value_factor = store_scale<T>(value, dim, value_scales + slot);
  auto* keys = reinterpret_cast<Value*>(block_head) +
               static_cast<int64_t>(slot / kTileTokens) * dim * kTileTokens + slot % kTileTokens;
  auto* values =
      reinterpret_cast<Value*>(block_head + layout.value_offset) + static_cast<int64_t>(slot) * dim;
  for (int d = 0; d < dim; d += kLanes) {
    Value column[kLanes];
    Cached<T>::store(column, f_mul(f_load(key + d), f_set1(key_factor)));
    for (int i = 0; i < kLanes; ++i) keys[(d + i) * kTileTokens] = column[i];
    Cached<T>::store(values + d, f_mul(f_load(value + d), f_set1(value_factor)));
  }
}

static void store_kv(const KvLayout& layout, std::byte* block_head, int slot, const float* key,
                     const float* value) {
  switch (layout.type) {
    case KvType::kF16: return store_kv_as<KvType::kF16>(layout, block_head, slot, key, value);
    case KvType::kBF16: return store_kv_as<KvType::kBF16>(layout, block_head, slot, key, value);
    case KvType::kF32: return store_kv_as<KvType::kF32>(layout, block_head, slot, key, value);
    case KvType::kI8: return store_kv_as<KvType::kI8>(layout, block_head, slot, key, value);
  }
}

// One piece of kCount queries: its tiles, and the queries' copies laid out for constant-offset loads.
template <int kCount>
struct Piece {
  int num_tiles;
  int num_tokens;                                      // the last tile may be cut short
  const std::byte* heads[kPieceTokens / kTileTokens];  // the block's head that holds each tile ...
  int slots[kPieceTokens / kTileTokens];               // ... and the tile's first slot in it
  float query[kMaxHeadDim][kCount];
  float scores[kCount][kPieceTokens];  // then weights
  float maxima[kCount];
};

template <KvType T>
DI_INLINE const typename Cached<T>::Value* keys_at(const std::byte* head, int slot, int dim) {
  return reinterpret_cast<const typename Cached<T>::Value*>(head) + int64_t{slot} * dim;
}
template <KvType T>
DI_INLINE const typename Cached<T>::Value* values_at(const std::byte* head, const KvLayout& layout,
                                                     int slot) {
  return keys_at<T>(head + layout.value_offset, slot, layout.head_dim);
}

// Blocks lie far apart, where no processor looks ahead by itself: the next tile's keys, and this one's
// values, which are wanted when all scores are there.
template <KvType T, int kCount>
DI_INLINE void prefetch_tile(const Piece<kCount>& piece, const KvLayout& layout, int tile) {
  const int64_t bytes =
      int64_t{kTileTokens} * layout.head_dim * static_cast<int64_t>(sizeof(typename Cached<T>::Value));
  const int next = tile + 1 < piece.num_tiles ? tile + 1 : tile;
  const auto* keys =
      reinterpret_cast<const std::byte*>(keys_at<T>(piece.heads[next], piece.slots[next], layout.head_dim));
  const auto* values =
      reinterpret_cast<const std::byte*>(values_at<T>(piece.heads[tile], layout, piece.slots[tile]));
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(keys + at, 0, 2);
    __builtin_prefetch(values + at, 0, 2);
  }
}

// Scores of every tile, -infinity beyond a query's limit, and the largest of each query.
template <KvType T, int kCount>
DI_INLINE void score_tiles(Piece<kCount>& piece, const AttendArgs& args) {
  const int dim = args.layout.head_dim;
  int least_limit = args.limits[0];
  f32x16 largest[kCount];
  for (int q = 0; q < kCount; ++q) {
    least_limit = args.limits[q] < least_limit ? args.limits[q] : least_limit;
    largest[q] = f_set1(-__builtin_inff());
  }
  for (int tile = 0; tile < piece.num_tiles; ++tile) {
    if (args.prefetch) prefetch_tile<T, kCount>(piece, args.layout, tile);
    const auto* keys = keys_at<T>(piece.heads[tile], piece.slots[tile], dim);
    f32x16 even[kCount], odd[kCount];
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) even[q] = odd[q] = f_zero();
    for (int d = 0; d < dim; d += 2) {
      const f32x16 k_even = Cached<T>::load(keys + d * kTileTokens);
      const f32x16 k_odd = Cached<T>::load(keys + (d + 1) * kTileTokens);
#pragma GCC unroll 8
      for (int q = 0; q < kCount; ++q) {
        even[q] = f_fma(f_set1(piece.query[d][q]), k_even, even[q]);
        odd[q] = f_fma(f_set1(piece.query[d + 1][q]), k_odd, odd[q]);
      }
    }
    f32x16 key_scale = f_set1(1.0f);
    if constexpr (T == KvType::kI8)
      key_scale = f_load(reinterpret_cast<const float*>(piece.heads[tile] + args.layout.key_scale_offset) +
                         piece.slots[tile]);
    const int position = args.begin + tile * kTileTokens;
    const bool all_visible = least_limit - position >= kTileTokens;
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) {
      f32x16 scores = f_add(even[q], odd[q]);
      if constexpr (T == KvType::kI8) scores = f_mul(scores, key_scale);
      if (!all_visible) scores = f_first(args.limits[q] - position, scores, f_set1(-__builtin_inff()));
      largest[q] = f_max(scores, largest[q]);
      f_store(piece.scores[q] + tile * kTileTokens, scores);
    }
  }
  for (int q = 0; q < kCount; ++q) piece.maxima[q] = f_largest(largest[q]);
}

// Scores become weights: exp(score - maximum), zero beyond the query's limit. Returns their sum.
template <KvType T, int kCount>
DI_INLINE float weigh(Piece<kCount>& piece, const AttendArgs& args, int q) {
  const f32x16 maximum = f_set1(piece.maxima[q]);
  f32x16 total = f_zero();
  for (int tile = 0; tile < piece.num_tiles; ++tile) {
    float* at = piece.scores[q] + tile * kTileTokens;
    const int visible = args.limits[q] - args.begin - tile * kTileTokens;
    f32x16 weights = f_first(visible, f_exp(f_sub(f_load(at), maximum)), f_zero());
    total = f_add(total, weights);
    if constexpr (T == KvType::kI8) {
      const auto* scales = reinterpret_cast<const float*>(piece.heads[tile] + args.layout.value_scale_offset);
      weights = f_mul(weights, f_load(scales + piece.slots[tile]));
    }
    f_store(at, weights);
  }
  return f_sum(total);
}

// The weighted sums of kVectors vectors of values from dim d on.
template <KvType T, int kCount, int kVectors>
DI_INLINE void sum_values(const Piece<kCount>& piece, const AttendArgs& args, int d) {
  const int dim = args.layout.head_dim;
  f32x16 sums[kCount][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[q][v] = f_zero();
  }
  for (int tile = 0; tile < piece.num_tiles; ++tile) {
    const auto* values = values_at<T>(piece.heads[tile], args.layout, piece.slots[tile]) + d;
    // Tokens past the end have never been written: their values must not be touched, not even times zero.
    const int rest = piece.num_tokens - tile * kTileTokens;
    const int num_tokens = rest < kTileTokens ? rest : kTileTokens;
    for (int t = 0; t < num_tokens; ++t) {
      f32x16 value[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) value[v] = Cached<T>::load(values + t * dim + v * kLanes);
#pragma GCC unroll 8
      for (int q = 0; q < kCount; ++q) {
        const f32x16 weight = f_set1(piece.scores[q][tile * kTileTokens + t]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[q][v] = f_fma(weight, value[v], sums[q][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f_store(args.sums + q * dim + d + v * kLanes, sums[q][v]);
  }
}

template <KvType T, int kCount>
static void attend_group(const AttendArgs& args) {
  // Sums that fit into the registers: two dozen where a vector is one of 32.
  constexpr int kVectors = kQueries < 8 ? 1 : kCount <= 6 ? 4 : 2;
  const int dim = args.layout.head_dim, block_tokens = args.layout.block_tokens;
  Piece<kCount> piece;
  piece.num_tokens = args.end - args.begin;
  piece.num_tiles = (piece.num_tokens + kTileTokens - 1) / kTileTokens;
  for (int tile = 0; tile < piece.num_tiles; ++tile) {
    const int position = args.begin + tile * kTileTokens;
    piece.heads[tile] = args.cache + args.blocks[position / block_tokens] * args.block_stride;
    piece.slots[tile] = position % block_tokens;
  }
  for (int q = 0; q < kCount; ++q) {
    for (int d = 0; d < dim; ++d) piece.query[d][q] = args.queries[q][d];
  }
  score_tiles<T, kCount>(piece, args);
  for (int q = 0; q < kCount; ++q) {
    args.maxima[q] = piece.maxima[q];
    args.weights[q] = weigh<T, kCount>(piece, args, q);
  }
  int d = 0;
  for (; d + kVectors * kLanes <= dim; d += kVectors * kLanes)
    sum_values<T, kCount, kVectors>(piece, args, d);
  for (; d < dim; d += kLanes) sum_values<T, kCount, 1>(piece, args, d);
}

template <KvType T, int kCount>
constexpr void (*attend_entry())(const AttendArgs&) {
  if constexpr (kCount <= kQueries) return attend_group<T, kCount>;
  return nullptr;
}
template <KvType T>
constexpr void (*kAttendTable[kMaxQueries])(const AttendArgs&) = {
    attend_entry<T, 1>(), attend_entry<T, 2>(), attend_entry<T, 3>(), attend_entry<T, 4>(),
    attend_entry<T, 5>(), attend_entry<T, 6>(), attend_entry<T, 7>(), attend_entry<T, 8>()};

static void attend(const AttendArgs& args) {
  switch (args.layout.type) {
    case KvType::kF16: return kAttendTable<KvType::kF16>[args.num_queries - 1](args);
    case KvType::kBF16: return kAttendTable<KvType::kBF16>[args.num_queries - 1](args);
    case KvType::kF32: return kAttendTable<KvType::kF32>[args.num_queries - 1](args);
    case KvType::kI8: return kAttendTable<KvType::kI8>[args.num_queries - 1](args);
  }
}

static void merge(const float* sums, float maximum, float weight, int head_dim, float* into_sums,
                  float* into_maximum, float* into_weight) {
  const float larger = maximum > *into_maximum ? maximum : *into_maximum;
  float factors[kLanes];
  f_store(factors, f_exp(f_set1(maximum - larger)));
  const float theirs = factors[0];
  f_store(factors, f_exp(f_set1(*into_maximum - larger)));
  const float ours = factors[0];
  for (int d = 0; d < head_dim; d += kLanes) {
    const f32x16 kept = f_mul(f_load(into_sums + d), f_set1(ours));
    f_store(into_sums + d, f_fma(f_load(sums + d), f_set1(theirs), kept));
  }
  *into_weight = __builtin_fmaf(weight, theirs, *into_weight * ours);
  *into_maximum = larger;
}

static void normalise(const float* sums, float weight, int head_dim, float* out) {
  for (int d = 0; d < head_dim; d += kLanes) f_store(out + d, f_div(f_load(sums + d), f_set1(weight)));
}

}  // namespace deepinfer::kernels::DEEPINFER_ISA
