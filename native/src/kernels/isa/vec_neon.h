// 16 lanes in four registers.
#pragma once

#include <arm_neon.h>

namespace deepinfer::kernels::DEEPINFER_ISA {

struct f32x16 {
  float32x4_t v[4];
};
struct i32x16 {
  int32x4_t v[4];
};
struct u8x64 {
  uint8x16_t v[4];
};
struct bf16x32 {  // register j holds the pairs of columns 4j .. 4j + 3
  uint32x4_t v[4];
};
struct byte_quad {
  int8x16_t v;
};
struct half_pair {
  float even, odd;
};

#define DI_QUARTERS for (int j = 0; j < 4; ++j)

DI_INLINE f32x16 f_set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
DI_INLINE f32x16 f_zero() { return f_set1(0.0f); }
DI_INLINE f32x16 f_load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
DI_INLINE void f_store(float* p, f32x16 a) { DI_QUARTERS vst1q_f32(p + 4 * j, a.v[j]); }
DI_INLINE f32x16 f_add(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vaddq_f32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_sub(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vsubq_f32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_mul(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vmulq_f32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_div(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vdivq_f32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_fma(f32x16 a, f32x16 b, f32x16 c) {
  DI_QUARTERS c.v[j] = vfmaq_f32(c.v[j], a.v[j], b.v[j]);
  return c;
}
// As the specification compares: the second operand when they are equal or one is NaN.
DI_INLINE f32x16 f_max(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vbslq_f32(vcgtq_f32(a.v[j], b.v[j]), a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_min(f32x16 a, f32x16 b) {
  DI_QUARTERS a.v[j] = vbslq_f32(vcltq_f32(a.v[j], b.v[j]), a.v[j], b.v[j]);
  return a;
}
DI_INLINE f32x16 f_abs(f32x16 a) {
  DI_QUARTERS a.v[j] = vabsq_f32(a.v[j]);
  return a;
}
DI_INLINE f32x16 f_first(int count, f32x16 a, f32x16 b) {
  static const int32_t kIndices[4] = {0, 1, 2, 3};
  const int32x4_t indices = vld1q_s32(kIndices);
  DI_QUARTERS a.v[j] = vbslq_f32(vcltq_s32(indices, vdupq_n_s32(count - 4 * j)), a.v[j], b.v[j]);
  return a;
}
DI_INLINE float f_sum(f32x16 a) {
  const float32x4_t s4 = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
  return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
DI_INLINE float f_largest(f32x16 a) {  // no NaN and no sign of zero to tell apart, so any order
  const float32x4_t s4 = vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3]));
  return vmaxvq_f32(s4);
}
DI_INLINE float32x4_t widen_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
DI_INLINE f32x16 f_load_f16(const uint16_t* p) {
  return {{widen_f16(p), widen_f16(p + 4), widen_f16(p + 8), widen_f16(p + 12)}};
}
DI_INLINE void f_store_f16(uint16_t* p, f32x16 a) {
  const f32x16 clamped = f_min(f_set1(65504.0f), f_max(f_set1(-65504.0f), a));
  DI_QUARTERS vst1_u16(p + 4 * j, vreinterpret_u16_f16(vcvt_f16_f32(clamped.v[j])));
}
DI_INLINE float32x4_t widen_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
DI_INLINE f32x16 f_load_bf16(const uint16_t* p) {
  return {{widen_bf16(p), widen_bf16(p + 4), widen_bf16(p + 8), widen_bf16(p + 12)}};
}
DI_INLINE uint16x4_t narrow_bf16(float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a);
  const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(0x7fffffff));
  const uint32x4_t high = vshrq_n_u32(bits, 16);
  const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
  uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
  const uint32x4_t denormal = vcltq_u32(magnitude, vdupq_n_u32(0x00800000));
  const uint32x4_t nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7f800000));
  rounded = vbslq_u32(denormal, vandq_u32(high, vdupq_n_u32(0x8000)), rounded);
  return vmovn_u32(vbslq_u32(nan, vorrq_u32(high, vdupq_n_u32(0x40)), rounded));
}
DI_INLINE void f_store_bf16(uint16_t* p, f32x16 a) { DI_QUARTERS vst1_u16(p + 4 * j, narrow_bf16(a.v[j])); }
DI_INLINE f32x16 f_load_i8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
DI_INLINE i32x16 f_round(f32x16 a) {
  return {{vcvtnq_s32_f32(a.v[0]), vcvtnq_s32_f32(a.v[1]), vcvtnq_s32_f32(a.v[2]), vcvtnq_s32_f32(a.v[3])}};
}
DI_INLINE f32x16 f_scale2(f32x16 a, i32x16 n) {
  DI_QUARTERS {
    const int32x4_t power = vshlq_n_s32(vaddq_s32(n.v[j], vdupq_n_s32(127)), 23);
    a.v[j] = vmulq_f32(a.v[j], vreinterpretq_f32_s32(power));
  }
  return a;
}

DI_INLINE i32x16 i_zero() {
  const int32x4_t v = vdupq_n_s32(0);
  return {{v, v, v, v}};
}
DI_INLINE i32x16 i_add(i32x16 a, i32x16 b) {
  DI_QUARTERS a.v[j] = vaddq_s32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE i32x16 i_sub(i32x16 a, i32x16 b) {
  DI_QUARTERS a.v[j] = vsubq_s32(a.v[j], b.v[j]);
  return a;
}
DI_INLINE i32x16 i_times_256(i32x16 a) {
  DI_QUARTERS a.v[j] = vshlq_n_s32(a.v[j], 8);
  return a;
}
DI_INLINE i32x16 i_high_byte(i32x16 a) {
  DI_QUARTERS a.v[j] = vrshrq_n_s32(a.v[j], 8);  // adds the half
  return a;
}
DI_INLINE f32x16 i_to_f32(i32x16 a) {
  return {{vcvtq_f32_s32(a.v[0]), vcvtq_f32_s32(a.v[1]), vcvtq_f32_s32(a.v[2]), vcvtq_f32_s32(a.v[3])}};
}
DI_INLINE int8x16_t narrow_i8(i32x16 a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}
DI_INLINE void i_store_i8(int8_t* p, i32x16 a) { vst1q_s8(p, narrow_i8(a)); }
DI_INLINE void store_codes(int8_t* p, i32x16 first, i32x16 last, int32_t* first_sum, int32_t* last_sum) {
  const int8x16_t low = narrow_i8(first), high = narrow_i8(last);
  vst1q_s8(p, low);
  vst1q_s8(p + 16, high);
  *first_sum = vaddlvq_s8(low);
  *last_sum = vaddlvq_s8(high);
}

DI_INLINE u8x64 b_load(const std::byte* p) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(p);
  return {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
}
DI_INLINE void b_store(std::byte* p, u8x64 a) {
  DI_QUARTERS vst1q_u8(reinterpret_cast<uint8_t*>(p) + 16 * j, a.v[j]);
}
DI_INLINE u8x64 b_low_nibbles(u8x64 a) {
  DI_QUARTERS a.v[j] = vandq_u8(a.v[j], vdupq_n_u8(15));
  return a;
}
DI_INLINE u8x64 b_high_nibbles(u8x64 a) {
  DI_QUARTERS a.v[j] = vshrq_n_u8(a.v[j], 4);
  return a;
}
DI_INLINE byte_quad quad_load(const int8_t* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof bits);
  return {vreinterpretq_s8_s32(vdupq_n_s32(bits))};
}
#if defined(__ARM_FEATURE_DOTPROD)
DI_INLINE int32x4_t dot_signed(int32x4_t acc, int8x16_t w, int8x16_t a) { return vdotq_s32(acc, w, a); }
#else
DI_INLINE int32x4_t dot_signed(int32x4_t acc, int8x16_t w, int8x16_t a) {
  // Products of codes below 128 with codes of at least -128: a product fits 16 bits.
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  const int16x8_t high = vmull_s8(vget_high_s8(w), vget_high_s8(a));
  return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
#endif
constexpr bool kSplitsWide = true;
template <bool kWide>
DI_INLINE i32x16 dot(i32x16 acc, u8x64 w, byte_quad a) {
  DI_QUARTERS {
    // The instructions multiply signed bytes, so wide codes are split at the top bit.
    const uint8x16_t low = kWide ? vandq_u8(w.v[j], vdupq_n_u8(0x7f)) : w.v[j];
    acc.v[j] = dot_signed(acc.v[j], vreinterpretq_s8_u8(low), a.v);
    if constexpr (kWide) {
      const int8x16_t top = vreinterpretq_s8_u8(vshrq_n_u8(w.v[j], 7));
      acc.v[j] = vaddq_s32(acc.v[j], vshlq_n_s32(dot_signed(vdupq_n_s32(0), top, a.v), 7));
    }
  }
  return acc;
}

DI_INLINE bf16x32 h_load(const std::byte* p) {
  const auto* words = reinterpret_cast<const uint32_t*>(p);
  return {{vld1q_u32(words), vld1q_u32(words + 4), vld1q_u32(words + 8), vld1q_u32(words + 12)}};
}
using pair_value = float;
DI_INLINE half_pair pair_load(const pair_value* p) { return {p[0], p[1]}; }
DI_INLINE f32x16 dot_bf16(f32x16 acc, bf16x32 w, half_pair a) {
  DI_QUARTERS {
    const float32x4_t odd = vreinterpretq_f32_u32(vandq_u32(w.v[j], vdupq_n_u32(0xffff0000)));
    const float32x4_t even = vreinterpretq_f32_u32(vshlq_n_u32(w.v[j], 16));
    acc.v[j] = vfmaq_n_f32(vfmaq_n_f32(acc.v[j], odd, a.odd), even, a.even);
  }
  return acc;
}

DI_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

constexpr int kDirectRows = 2;
constexpr int kDirectLimit = 4;
constexpr int kPanelRows = 3;
constexpr int kFloatRows = 4;
constexpr int kPanels = 1;
constexpr int kQueries = 3;

}  // namespace deepinfer::kernels::DEEPINFER_ISA
