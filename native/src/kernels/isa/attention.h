// Attention over cached keys and values, and the stores that fill the cache.
//
// One query's arithmetic is fixed by positions: scores of 16 tokens at a time, each the sum of an even-dim
// and an odd-dim chain; an online softmax step per 16 tokens, counted from the start of the piece; weighted
// values as one chain over tokens per output. Queries computed together only share loads.
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

// The running state of kCount queries, and their copies laid out for constant-offset loads.
template <int kCount>
struct QueryGroup {
  float query[kMaxHeadDim][kCount];
  float sums[kMaxHeadDim / kLanes][kCount][kLanes];
  float weights[kCount][kLanes];  // of the current 16 tokens
  float correction[kCount];
  float maximum[kCount];
  float total[kCount];
};

// Scores of 16 tokens become weights: exp(score - new maximum), zero beyond the query's limit.
template <int kCount>
DI_INLINE void softmax_step(QueryGroup<kCount>& group, int q, f32x16 scores, int visible,
                            const float* value_scales) {
  const f32x16 lowest = f_set1(-__builtin_inff());
  scores = f_first(visible, scores, lowest);
  const float old_maximum = group.maximum[q], tile_maximum = f_largest(scores);
  const float maximum = tile_maximum > old_maximum ? tile_maximum : old_maximum;
  f32x16 weights = f_first(visible, f_exp(f_sub(scores, f_set1(maximum))), f_zero());
  float correction = 1.0f;
  if (maximum != old_maximum) {
    float lanes[kLanes];
    f_store(lanes, f_exp(f_set1(old_maximum - maximum)));
    correction = lanes[0];
  }
  group.maximum[q] = maximum;
  group.correction[q] = correction;
  group.total[q] = __builtin_fmaf(group.total[q], correction, f_sum(weights));
  if (value_scales != nullptr) weights = f_mul(weights, f_load(value_scales));
  f_store(group.weights[q], weights);
}

template <KvType T, int kCount>
DI_INLINE void attend_tile(QueryGroup<kCount>& group, const AttendArgs& args, const std::byte* block_head,
                           int slot, int position) {
  using Value = typename Cached<T>::Value;
  const int dim = args.layout.head_dim;
  const auto* keys = reinterpret_cast<const Value*>(block_head) +
                     static_cast<int64_t>(slot / kTileTokens) * dim * kTileTokens;
  f32x16 even[kCount], odd[kCount];
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) even[q] = odd[q] = f_zero();
  for (int d = 0; d < dim; d += 2) {
    const f32x16 k_even = Cached<T>::load(keys + d * kTileTokens);
    const f32x16 k_odd = Cached<T>::load(keys + (d + 1) * kTileTokens);
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) {
      even[q] = f_fma(f_set1(group.query[d][q]), k_even, even[q]);
      odd[q] = f_fma(f_set1(group.query[d + 1][q]), k_odd, odd[q]);
    }
  }
  const float* value_scales = nullptr;
  f32x16 key_scale = f_set1(1.0f);
  if constexpr (T == KvType::kI8) {
    key_scale = f_load(reinterpret_cast<const float*>(block_head + args.layout.key_scale_offset) + slot);
    value_scales = reinterpret_cast<const float*>(block_head + args.layout.value_scale_offset) + slot;
  }
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) {
    f32x16 scores = f_add(even[q], odd[q]);
    if constexpr (T == KvType::kI8) scores = f_mul(scores, key_scale);
    softmax_step<kCount>(group, q, scores, args.limits[q] - position, value_scales);
  }
  const auto* values = reinterpret_cast<const Value*>(block_head + args.layout.value_offset) +
                       static_cast<int64_t>(slot) * dim;
  // Tokens past the end have never been written: their values must not be touched, not even times zero.
  const int num_tokens = args.end - position < kTileTokens ? args.end - position : kTileTokens;
  for (int d = 0; d < dim; d += kLanes) {
    f32x16 acc[kCount];
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) {
      acc[q] = f_mul(f_load(group.sums[d / kLanes][q]), f_set1(group.correction[q]));
    }
    for (int t = 0; t < num_tokens; ++t) {
      const f32x16 v = Cached<T>::load(values + t * dim + d);
#pragma GCC unroll 8
      for (int q = 0; q < kCount; ++q) acc[q] = f_fma(f_set1(group.weights[q][t]), v, acc[q]);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) f_store(group.sums[d / kLanes][q], acc[q]);
  }
}

// Blocks lie far apart, where no processor looks ahead by itself.
template <KvType T>
DI_INLINE void prefetch_tile(const KvLayout& layout, const std::byte* block_head, int slot) {
  const int64_t row_bytes =
      int64_t{layout.head_dim} * static_cast<int64_t>(sizeof(typename Cached<T>::Value));
  const std::byte* keys = block_head + slot * row_bytes;
  const std::byte* values = keys + layout.value_offset;
  for (int64_t at = 0; at < kTileTokens * row_bytes; at += 64) {
    __builtin_prefetch(keys + at, 0, 2);
    __builtin_prefetch(values + at, 0, 2);
  }
}

template <KvType T, int kCount>
static void attend_group(const AttendArgs& args) {
  const int dim = args.layout.head_dim, block_tokens = args.layout.block_tokens;
  QueryGroup<kCount> group;
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) {
    for (int d = 0; d < dim; ++d) group.query[d][q] = args.queries[q][d];
    for (int d = 0; d < dim; d += kLanes) f_store(group.sums[d / kLanes][q], f_zero());
    group.maximum[q] = -__builtin_inff();
    group.total[q] = 0;
  }
  const auto head_at = [&](int position) {
    return args.cache + args.blocks[position / block_tokens] * args.block_stride;
  };
  for (int position = args.begin; position < args.end; position += kTileTokens) {
    const int next = position + kTileTokens;
    if (args.prefetch && next < args.end) prefetch_tile<T>(args.layout, head_at(next), next % block_tokens);
    attend_tile<T, kCount>(group, args, head_at(position), position % block_tokens, position);
  }
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) {
    for (int d = 0; d < dim; d += kLanes) f_store(args.sums + q * dim + d, f_load(group.sums[d / kLanes][q]));
    args.maxima[q] = group.maximum[q];
    args.weights[q] = group.total[q];
  }
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
