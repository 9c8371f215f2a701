// 16 lanes in two registers.
#pragma once

#include <immintrin.h>

namespace deepinfer::kernels::DEEPINFER_ISA {

struct f32x16 {
  __m256 lo, hi;
};
struct i32x16 {
  __m256i lo, hi;
};
struct u8x64 {
  __m256i lo, hi;
};
struct bf16x32 {
  __m256i lo, hi;
};
struct byte_quad {
  __m256i v;
};
struct half_pair {
  __m256 even, odd;
};

DI_INLINE __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
DI_INLINE __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

DI_INLINE f32x16 f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
DI_INLINE f32x16 f_set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
DI_INLINE f32x16 f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
DI_INLINE void f_store(float* p, f32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
DI_INLINE f32x16 f_add(f32x16 a, f32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_sub(f32x16 a, f32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_mul(f32x16 a, f32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_div(f32x16 a, f32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
DI_INLINE f32x16 f_max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
DI_INLINE f32x16 f_abs(f32x16 a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
DI_INLINE f32x16 f_first(int count, f32x16 a, f32x16 b) {
  const __m256i bound = _mm256_set1_epi32(count);
  const __m256i lo = _mm256_cmpgt_epi32(bound, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i hi = _mm256_cmpgt_epi32(bound, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(hi))};
}
DI_INLINE float f_sum(f32x16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
DI_INLINE float f_largest(f32x16 a) {
  const __m256 s8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
DI_INLINE f32x16 f_load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))};
}
DI_INLINE void f_store_f16(uint16_t* p, f32x16 a) {
  // The bounds come first: min and max return their second operand when one is NaN.
  const f32x16 clamped = f_min(f_set1(65504.0f), f_max(f_set1(-65504.0f), a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(clamped.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(clamped.hi, _MM_FROUND_TO_NEAREST_INT));
}
DI_INLINE __m256 widen_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
}
DI_INLINE f32x16 f_load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
DI_INLINE __m256i narrow_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  rounded = _mm256_srli_epi32(rounded, 16);
  const __m256i denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  rounded = _mm256_blendv_epi8(rounded, _mm256_and_si256(high, _mm256_set1_epi32(0x8000)), denormal);
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
DI_INLINE void f_store_bf16(uint16_t* p, f32x16 a) {
  const __m256i packed = _mm256_packus_epi32(narrow_bf16(a.lo), narrow_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
DI_INLINE f32x16 f_load_i8(const int8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
DI_INLINE i32x16 f_round(f32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
DI_INLINE __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
DI_INLINE f32x16 f_scale2(f32x16 a, i32x16 n) {
  return {_mm256_mul_ps(a.lo, power_of_two(n.lo)), _mm256_mul_ps(a.hi, power_of_two(n.hi))};
}

DI_INLINE i32x16 i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
DI_INLINE i32x16 i_add(i32x16 a, i32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
DI_INLINE i32x16 i_sub(i32x16 a, i32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
DI_INLINE i32x16 i_times_256(i32x16 a) { return {_mm256_slli_epi32(a.lo, 8), _mm256_slli_epi32(a.hi, 8)}; }
DI_INLINE i32x16 i_high_byte(i32x16 a) {
  const __m256i half = _mm256_set1_epi32(128);
  return {_mm256_srai_epi32(_mm256_add_epi32(a.lo, half), 8),
          _mm256_srai_epi32(_mm256_add_epi32(a.hi, half), 8)};
}
DI_INLINE f32x16 i_to_f32(i32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
DI_INLINE void i_store_i8(int8_t* p, i32x16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// The sums come from the register: reading the bytes back would wait for their store.
DI_INLINE void store_codes(int8_t* p, i32x16 first, i32x16 last, int32_t* first_sum, int32_t* last_sum) {
  const __m256i low16 = _mm256_permute4x64_epi64(_mm256_packs_epi32(first.lo, first.hi), 0xd8);
  const __m256i high16 = _mm256_permute4x64_epi64(_mm256_packs_epi32(last.lo, last.hi), 0xd8);
  const __m256i codes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low16, high16), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  // Bytes made unsigned, then summed by eights.
  const __m256i sums =
      _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
  *first_sum = _mm_cvtsi128_si32(_mm_add_epi32(low, _mm_unpackhi_epi64(low, low))) - 16 * 128;
  *last_sum = _mm_cvtsi128_si32(_mm_add_epi32(high, _mm_unpackhi_epi64(high, high))) - 16 * 128;
}

DI_INLINE u8x64 b_load(const std::byte* p) { return {load_256(p), load_256(p + 32)}; }
DI_INLINE void b_store(std::byte* p, u8x64 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
DI_INLINE u8x64 b_low_nibbles(u8x64 a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
DI_INLINE u8x64 b_high_nibbles(u8x64 a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
DI_INLINE byte_quad quad_load(const int8_t* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof bits);
  return {_mm256_set1_epi32(bits)};
}
constexpr bool kSplitsWide = true;
template <bool kWide>
DI_INLINE __m256i dot_half(__m256i acc, __m256i w, __m256i a) {
  // Pairs fit 16 bits as long as codes stay below 128, so wide codes are split at the top bit.
  const __m256i low = kWide ? _mm256_and_si256(w, _mm256_set1_epi8(0x7f)) : w;
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(low, a), _mm256_set1_epi16(1)));
  if constexpr (kWide) {
    const __m256i top = _mm256_and_si256(_mm256_srli_epi16(w, 7), _mm256_set1_epi8(1));
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(top, a), _mm256_set1_epi16(128)));
  }
  return acc;
}
template <bool kWide>
DI_INLINE i32x16 dot(i32x16 acc, u8x64 w, byte_quad a) {
  return {dot_half<kWide>(acc.lo, w.lo, a.v), dot_half<kWide>(acc.hi, w.hi, a.v)};
}

DI_INLINE bf16x32 h_load(const std::byte* p) { return {load_256(p), load_256(p + 32)}; }
using pair_value = float;
DI_INLINE half_pair pair_load(const pair_value* p) { return {_mm256_set1_ps(p[0]), _mm256_set1_ps(p[1])}; }
DI_INLINE __m256 dot_bf16_half(__m256 acc, __m256i w, half_pair a) {
  const __m256 odd =
      _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
  return _mm256_fmadd_ps(even, a.even, _mm256_fmadd_ps(odd, a.odd, acc));
}
DI_INLINE f32x16 dot_bf16(f32x16 acc, bf16x32 w, half_pair a) {
  return {dot_bf16_half(acc.lo, w.lo, a), dot_bf16_half(acc.hi, w.hi, a)};
}

DI_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

constexpr int kDirectRows = 2;
constexpr int kDirectLimit = 4;
constexpr int kPanelRows = 2;
constexpr int kFloatRows = 4;
constexpr int kPanels = 1;
constexpr int kQueries = 3;

}  // namespace deepinfer::kernels::DEEPINFER_ISA
