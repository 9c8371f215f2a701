// 16 lanes as a plain array: the meaning of every vector operation.
#pragma once

namespace deepinfer::kernels::DEEPINFER_ISA {

struct f32x16 {
  float lane[16];
};
struct i32x16 {
  int32_t lane[16];
};
struct u8x64 {  // byte 4 * c + t belongs to column c
  uint8_t byte[64];
};
struct bf16x32 {  // elements 2 * c and 2 * c + 1 belong to column c
  uint16_t half[32];
};
struct byte_quad {  // 4 signed bytes, for every column
  int8_t byte[4];
};
struct half_pair {  // 2 bf16, for every column
  float even, odd;
};

#define DI_LANES for (int i = 0; i < 16; ++i)

DI_INLINE f32x16 f_zero() { return {}; }
DI_INLINE f32x16 f_set1(float x) {
  f32x16 r;
  DI_LANES r.lane[i] = x;
  return r;
}
DI_INLINE f32x16 f_load(const float* p) {
  f32x16 r;
  memcpy(&r, p, sizeof r);
  return r;
}
DI_INLINE void f_store(float* p, f32x16 a) { memcpy(p, &a, sizeof a); }
DI_INLINE f32x16 f_add(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] += b.lane[i];
  return a;
}
DI_INLINE f32x16 f_sub(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] -= b.lane[i];
  return a;
}
DI_INLINE f32x16 f_mul(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] *= b.lane[i];
  return a;
}
DI_INLINE f32x16 f_div(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] /= b.lane[i];
  return a;
}
DI_INLINE f32x16 f_fma(f32x16 a, f32x16 b, f32x16 c) {  // a * b + c, rounded once
  DI_LANES c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
DI_INLINE f32x16 f_max(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
DI_INLINE f32x16 f_min(f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
DI_INLINE f32x16 f_abs(f32x16 a) {
  DI_LANES a.lane[i] = __builtin_fabsf(a.lane[i]);
  return a;
}
// Lanes below `count` from a, the others from b.
DI_INLINE f32x16 f_first(int count, f32x16 a, f32x16 b) {
  DI_LANES a.lane[i] = i < count ? a.lane[i] : b.lane[i];
  return a;
}
DI_INLINE float f_sum(f32x16 a) {  // the tree: lanes 8 apart, then 4, 2, 1
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] += a.lane[i + step];
  }
  return a.lane[0];
}
DI_INLINE float f_largest(f32x16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
  }
  return a.lane[0];
}
DI_INLINE f32x16 f_load_f16(const uint16_t* p) {
  f32x16 r;
  DI_LANES r.lane[i] = f16_to_float(p[i]);
  return r;
}
DI_INLINE void f_store_f16(uint16_t* p, f32x16 a) {  // saturates
  DI_LANES p[i] = float_to_f16_saturating(a.lane[i]);
}
DI_INLINE f32x16 f_load_bf16(const uint16_t* p) {
  f32x16 r;
  DI_LANES r.lane[i] = bf16_to_float(p[i]);
  return r;
}
DI_INLINE void f_store_bf16(uint16_t* p, f32x16 a) { DI_LANES p[i] = float_to_bf16(a.lane[i]); }
DI_INLINE f32x16 f_load_i8(const int8_t* p) {
  f32x16 r;
  DI_LANES r.lane[i] = static_cast<float>(p[i]);
  return r;
}
DI_INLINE i32x16 f_round(f32x16 a) {  // to nearest even
  i32x16 r;
  DI_LANES r.lane[i] = static_cast<int32_t>(__builtin_rintf(a.lane[i]));
  return r;
}
DI_INLINE f32x16 f_scale2(f32x16 a, i32x16 n) {  // a * 2^n, n in [-126, 127]
  DI_LANES a.lane[i] *= bits_to_float(static_cast<uint32_t>(n.lane[i] + 127) << 23);
  return a;
}

DI_INLINE i32x16 i_zero() { return {}; }
DI_INLINE i32x16 i_add(i32x16 a, i32x16 b) {
  DI_LANES a.lane[i] += b.lane[i];
  return a;
}
DI_INLINE i32x16 i_sub(i32x16 a, i32x16 b) {
  DI_LANES a.lane[i] -= b.lane[i];
  return a;
}
DI_INLINE i32x16 i_times_256(i32x16 a) {  // in range
  DI_LANES a.lane[i] *= 256;
  return a;
}
DI_INLINE i32x16 i_high_byte(i32x16 a) {  // floor((a + 128) / 256)
  DI_LANES a.lane[i] = (a.lane[i] + 128) >> 8;
  return a;
}
DI_INLINE f32x16 i_to_f32(i32x16 a) {
  f32x16 r;
  DI_LANES r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}
DI_INLINE void i_store_i8(int8_t* p, i32x16 a) {  // values fit
  DI_LANES p[i] = static_cast<int8_t>(a.lane[i]);
}

// Stores 32 codes (values fit) and sums the first and the last 16 of them.
DI_INLINE void store_codes(int8_t* p, i32x16 first, i32x16 last, int32_t* first_sum, int32_t* last_sum) {
  *first_sum = *last_sum = 0;
  DI_LANES {
    *first_sum += first.lane[i];
    *last_sum += last.lane[i];
  }
  i_store_i8(p, first);
  i_store_i8(p + 16, last);
}

DI_INLINE u8x64 b_load(const std::byte* p) {
  u8x64 r;
  memcpy(&r, p, sizeof r);
  return r;
}
DI_INLINE void b_store(std::byte* p, u8x64 a) { memcpy(p, &a, sizeof a); }
DI_INLINE u8x64 b_low_nibbles(u8x64 a) {
  for (int i = 0; i < 64; ++i) a.byte[i] &= 15;
  return a;
}
DI_INLINE u8x64 b_high_nibbles(u8x64 a) {
  for (int i = 0; i < 64; ++i) a.byte[i] = static_cast<uint8_t>(a.byte[i] >> 4);
  return a;
}
DI_INLINE byte_quad quad_load(const int8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
// acc += sum over t of w[column, t] * a[t], exact. kWide: codes of w may exceed 127.
constexpr bool kSplitsWide = false;  // whether dot<true> differs from dot<false>
template <bool kWide>
DI_INLINE i32x16 dot(i32x16 acc, u8x64 w, byte_quad a) {
  for (int c = 0; c < 16; ++c) {
    for (int t = 0; t < 4; ++t) acc.lane[c] += static_cast<int32_t>(w.byte[4 * c + t]) * a.byte[t];
  }
  return acc;
}

DI_INLINE bf16x32 h_load(const std::byte* p) {
  bf16x32 r;
  memcpy(&r, p, sizeof r);
  return r;
}
using pair_value = float;  // how bf16 activations are kept: rounded to bf16, in the width that loads fastest
DI_INLINE half_pair pair_load(const pair_value* p) { return {p[0], p[1]}; }
DI_INLINE f32x16 dot_bf16(f32x16 acc, bf16x32 w, half_pair a) {
  DI_LANES {
    acc.lane[i] = __builtin_fmaf(bf16_to_float(w.half[2 * i + 1]), a.odd, acc.lane[i]);
    acc.lane[i] = __builtin_fmaf(bf16_to_float(w.half[2 * i]), a.even, acc.lane[i]);
  }
  return acc;
}

DI_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

// Tile shapes: they change speed, never bits.
constexpr int kDirectRows = 2;    // int8, weights unpacked in registers
constexpr int kDirectLimit = 16;  // most rows done that way
constexpr int kPanelRows = 2;     // int8, from an expanded panel
constexpr int kFloatRows = 2;     // bf16 and fp32
constexpr int kPanels = 1;        // panels side by side
constexpr int kQueries = 2;

}  // namespace deepinfer::kernels::DEEPINFER_ISA
