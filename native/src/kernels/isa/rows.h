// Work along one row: normalisation, activation, rotation, and the conversion of activations.
#pragma once

#include "kernels/isa/gemm.h"

namespace deepinfer::kernels::DEEPINFER_ISA {

// e^x, relative error below 1e-7, for x clamped to [-87, 88]: x = n ln 2 + r, then 1 + r q(r) with a minimax
// q of degree 5. exp(0) is exactly 1.
DI_INLINE f32x16 f_exp(f32x16 x) {
  x = f_min(f_max(x, f_set1(-87.0f)), f_set1(88.0f));
  const i32x16 n = f_round(f_mul(x, f_set1(0x1.715476p+0f)));
  const f32x16 whole = i_to_f32(n);
  f32x16 r = f_fma(whole, f_set1(-0x1.63p-1f), x);  // few bits: exact products
  r = f_fma(whole, f_set1(2.12194440e-4f), r);
  f32x16 q = f_set1(0x1.6ae6e0p-10f);
  q = f_fma(q, r, f_set1(0x1.1267d8p-7f));
  q = f_fma(q, r, f_set1(0x1.555824p-5f));
  q = f_fma(q, r, f_set1(0x1.555418p-3f));
  q = f_fma(q, r, f_set1(0x1.fffffcp-2f));
  q = f_fma(q, r, f_set1(1.0f));
  return f_scale2(f_fma(q, r, f_set1(1.0f)), n);
}

static void exp_row(const float* x, int n, float* y) {
  for (int i = 0; i < n; i += kLanes) f_store(y + i, f_exp(f_load(x + i)));
}

static void rms_norm(const float* x, const float* weight, float epsilon, int n, float* y) {
  f32x16 squares = f_zero();
  for (int i = 0; i < n; i += kLanes) {
    const f32x16 v = f_load(x + i);
    squares = f_fma(v, v, squares);
  }
  const float mean = f_sum(squares) / static_cast<float>(n);
  const f32x16 inverse = f_set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for (int i = 0; i < n; i += kLanes)
    f_store(y + i, f_mul(f_mul(f_load(x + i), inverse), f_load(weight + i)));
}

static void swiglu(const float* gate, const float* up, int n, float* y) {
  const f32x16 one = f_set1(1.0f);
  for (int i = 0; i < n; i += kLanes) {
    const f32x16 g = f_load(gate + i);
    const f32x16 silu = f_div(g, f_add(one, f_exp(f_sub(f_zero(), g))));
    f_store(y + i, f_mul(silu, f_load(up + i)));
  }
}

static void rope(float* heads, int num_heads, int head_dim, const float* cosines, const float* sines,
                 float scale) {
  const int half = head_dim / 2;
  for (int h = 0; h < num_heads; ++h) {
    float* first = heads + static_cast<int64_t>(h) * head_dim;
    float* second = first + half;
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const f32x16 a = f_load(first + i), b = f_load(second + i);
      const f32x16 cosine = f_load(cosines + i), sine = f_load(sines + i);
      f_store(first + i, f_mul(f_sub(f_mul(a, cosine), f_mul(b, sine)), f_set1(scale)));
      f_store(second + i, f_mul(f_add(f_mul(b, cosine), f_mul(a, sine)), f_set1(scale)));
    }
    for (; i < half; ++i) {  // lanes are independent, so this gives the same bits
      const float a = first[i], b = second[i];
      first[i] = (a * cosines[i] - b * sines[i]) * scale;
      second[i] = (b * cosines[i] + a * sines[i]) * scale;
    }
  }
}

// Scale and its inverse for codes in [-127, 127]; rows of (almost) zeros get zeros.
struct CodeScale {
  float scale, inverse;
};
DI_INLINE CodeScale code_scale(float largest) {
  if (largest < 1e-30f) return {0.0f, 0.0f};
  return {largest * 0x1.020408p-7f, 127.0f / largest};  // 1 / 127
}

static void prepare_int8(const float* x, TileRange tile, int row, const ActivationView& a) {
  const int num_blocks = a.k / kBlock, in_tile = row - tile.first_row;
  auto* codes = static_cast<int8_t*>(a.values) + static_cast<int64_t>(tile.first_row) * a.k;
  const int64_t scales_at = static_cast<int64_t>(tile.first_row) * num_blocks + in_tile;
  for (int b = 0; b < num_blocks; ++b) {
    const f32x16 low = f_load(x + b * kBlock), high = f_load(x + b * kBlock + kLanes);
    const CodeScale s = code_scale(f_largest(f_max(f_abs(low), f_abs(high))));
    const i32x16 low_codes = f_round(f_mul(low, f_set1(s.inverse)));
    const i32x16 high_codes = f_round(f_mul(high, f_set1(s.inverse)));
    int32_t low_sum, high_sum;
    store_codes(codes + (static_cast<int64_t>(b) * tile.num_rows + in_tile) * kBlock, low_codes, high_codes,
                &low_sum, &high_sum);
    const int64_t at = scales_at + static_cast<int64_t>(b) * tile.num_rows;
    a.scale[at] = s.scale;
    a.scaled_sum[at] = s.scale * static_cast<float>(low_sum + high_sum);
    if (a.scaled_sum_low == nullptr) continue;
    a.scaled_sum_low[at] = s.scale * static_cast<float>(low_sum);
    a.scaled_sum_high[at] = s.scale * static_cast<float>(high_sum);
  }
}

static void prepare_residual(const float* x, TileRange tile, int row, const ActivationView& a) {
  constexpr float kSmallest = 1e-24f;  // below it scale / 256 times a weight's d could be a denormal
  const int num_blocks = a.k / kBlock, in_tile = row - tile.first_row;
  const int64_t codes_at = static_cast<int64_t>(tile.first_row) * a.k + in_tile * kBlock;
  const int64_t scales_at = static_cast<int64_t>(tile.first_row) * num_blocks + in_tile;
  f32x16 squares = f_zero();
  for (int i = 0; i < a.k; i += kLanes) {
    const f32x16 v = f_load(x + i);
    squares = f_fma(v, v, squares);
  }
  const float limit = a.residual_threshold * __builtin_sqrtf(f_sum(squares) / static_cast<float>(a.k));
  for (int b = 0; b < num_blocks; ++b) {
    const f32x16 low = f_load(x + b * kBlock), high = f_load(x + b * kBlock + kLanes);
    const float largest = f_largest(f_max(f_abs(low), f_abs(high)));
    const CodeScale s = code_scale(largest < kSmallest ? 0.0f : largest);
    const f32x16 inverse = f_set1(256.0f * s.inverse);
    const i32x16 first = f_round(f_mul(low, inverse)), last = f_round(f_mul(high, inverse));
    const i32x16 first_codes = i_high_byte(first), last_codes = i_high_byte(last);
    int32_t low_sum, high_sum;
    const int64_t at = codes_at + static_cast<int64_t>(b) * kBlock * tile.num_rows;
    store_codes(static_cast<int8_t*>(a.values) + at, first_codes, last_codes, &low_sum, &high_sum);
    low_sum *= 256;
    high_sum *= 256;
    const bool has_residual = largest > limit;
    if (has_residual) {
      int32_t low_rest, high_rest;
      store_codes(a.residuals + at, i_sub(first, i_times_256(first_codes)),
                  i_sub(last, i_times_256(last_codes)), &low_rest, &high_rest);
      low_sum += low_rest;
      high_sum += high_rest;
    } else {
      memset(a.residuals + at, 0, kBlock);
    }
    const int64_t scale_at = scales_at + static_cast<int64_t>(b) * tile.num_rows;
    const float unit = s.scale * 0x1p-8f;
    a.has_residual[scale_at] = has_residual ? 1 : 0;
    a.scale[scale_at] = s.scale;
    a.scaled_sum[scale_at] = unit * static_cast<float>(low_sum + high_sum);
    if (a.scaled_sum_low == nullptr) continue;
    a.scaled_sum_low[scale_at] = unit * static_cast<float>(low_sum);
    a.scaled_sum_high[scale_at] = unit * static_cast<float>(high_sum);
  }
}

DI_INLINE void set_pair_value(uint16_t* to, uint16_t half) { *to = half; }
DI_INLINE void set_pair_value(float* to, uint16_t half) { *to = bf16_to_float(half); }

static void prepare_bf16(const float* x, TileRange tile, int row, const ActivationView& a) {
  auto* values = static_cast<pair_value*>(a.values) + static_cast<int64_t>(tile.first_row) * a.k;
  pair_value* to = values + 2 * (row - tile.first_row);
  for (int i = 0; i < a.k; i += kLanes) {
    uint16_t halves[kLanes];
    f_store_bf16(halves, f_load(x + i));
    for (int pair = 0; pair < kLanes / 2; ++pair, to += 2 * tile.num_rows) {
      set_pair_value(to, halves[2 * pair]);
      set_pair_value(to + 1, halves[2 * pair + 1]);
    }
  }
}

static void prepare_fp32(const float* x, TileRange tile, int row, const ActivationView& a) {
  auto* values = static_cast<float*>(a.values) + static_cast<int64_t>(tile.first_row) * a.k;
  float* to = values + (row - tile.first_row);
  for (int i = 0; i < a.k; ++i) to[static_cast<int64_t>(i) * tile.num_rows] = x[i];
}

static void prepare_row(const float* x, int row, const ActivationView& a) {
  const TileRange tile = tile_of_row(a, row);
  switch (a.arithmetic) {
    case Arithmetic::kInt8: return prepare_int8(x, tile, row, a);
    case Arithmetic::kInt8Residual: return prepare_residual(x, tile, row, a);
    case Arithmetic::kBf16: return prepare_bf16(x, tile, row, a);
    case Arithmetic::kFp32: return prepare_fp32(x, tile, row, a);
  }
}

}  // namespace deepinfer::kernels::DEEPINFER_ISA
