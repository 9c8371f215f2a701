// 16 lanes in one register. The VNNI and BF16 levels replace the two dot products.
#pragma once

#include <immintrin.h>

namespace deepinfer::kernels::DEEPINFER_ISA {

struct f32x16 {
  __m512 v;
};
struct i32x16 {
  __m512i v;
};
struct u8x64 {
  __m512i v;
};
struct bf16x32 {
  __m512i v;
};
struct byte_quad {
  __m512i v;
};

DI_INLINE f32x16 f_zero() { return {_mm512_setzero_ps()}; }
DI_INLINE f32x16 f_set1(float x) { return {_mm512_set1_ps(x)}; }
DI_INLINE f32x16 f_load(const float* p) { return {_mm512_loadu_ps(p)}; }
DI_INLINE void f_store(float* p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
DI_INLINE f32x16 f_add(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_sub(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_mul(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_div(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
DI_INLINE f32x16 f_max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
DI_INLINE f32x16 f_abs(f32x16 a) { return {_mm512_abs_ps(a.v)}; }
DI_INLINE f32x16 f_first(int count, f32x16 a, f32x16 b) {
  const uint32_t mask = count >= 16 ? 0xffffu : (1u << (count > 0 ? count : 0)) - 1;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), b.v, a.v)};
}
DI_INLINE float f_sum(f32x16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
DI_INLINE float f_largest(f32x16 a) {
  const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
DI_INLINE f32x16 f_load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
DI_INLINE void f_store_f16(uint16_t* p, f32x16 a) {
  // The bounds come first: min and max return their second operand when one is NaN.
  const __m512 low = _mm512_max_ps(_mm512_set1_ps(-65504.0f), a.v);
  const __m512 clamped = _mm512_min_ps(_mm512_set1_ps(65504.0f), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT));
}
DI_INLINE f32x16 f_load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
DI_INLINE void f_store_bf16(uint16_t* p, f32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __mmask16 denormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
  rounded = _mm512_mask_and_epi32(rounded, denormal, high, _mm512_set1_epi32(0x8000));
  rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
DI_INLINE f32x16 f_load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
DI_INLINE i32x16 f_round(f32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
DI_INLINE f32x16 f_scale2(f32x16 a, i32x16 n) {
  const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23);
  return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(power))};
}

DI_INLINE i32x16 i_zero() { return {_mm512_setzero_si512()}; }
DI_INLINE i32x16 i_add(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
DI_INLINE i32x16 i_sub(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
DI_INLINE i32x16 i_times_256(i32x16 a) { return {_mm512_slli_epi32(a.v, 8)}; }
DI_INLINE i32x16 i_high_byte(i32x16 a) {
  return {_mm512_srai_epi32(_mm512_add_epi32(a.v, _mm512_set1_epi32(128)), 8)};
}
DI_INLINE f32x16 i_to_f32(i32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
DI_INLINE void i_store_i8(int8_t* p, i32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

// The sums come from the register: reading the bytes back would wait for their store.
DI_INLINE void store_codes(int8_t* p, i32x16 first, i32x16 last, int32_t* first_sum, int32_t* last_sum) {
  const __m256i codes = _mm256_set_m128i(_mm512_cvtepi32_epi8(last.v), _mm512_cvtepi32_epi8(first.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  // Bytes made unsigned, then summed by eights.
  const __m256i sums =
      _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
  *first_sum = _mm_cvtsi128_si32(_mm_add_epi32(low, _mm_unpackhi_epi64(low, low))) - 16 * 128;
  *last_sum = _mm_cvtsi128_si32(_mm_add_epi32(high, _mm_unpackhi_epi64(high, high))) - 16 * 128;
}

DI_INLINE u8x64 b_load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
DI_INLINE void b_store(std::byte* p, u8x64 a) { _mm512_storeu_si512(p, a.v); }
DI_INLINE u8x64 b_low_nibbles(u8x64 a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
DI_INLINE u8x64 b_high_nibbles(u8x64 a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
DI_INLINE byte_quad quad_load(const int8_t* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof bits);
  return {_mm512_set1_epi32(bits)};
}

#if defined(__AVX512VNNI__)
constexpr bool kSplitsWide = false;
template <bool kWide>
DI_INLINE i32x16 dot(i32x16 acc, u8x64 w, byte_quad a) {
  // As assembly, so that the broadcast stays in a register and the sum is not moved about.
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(a.v));
  return acc;
}
#else
constexpr bool kSplitsWide = true;
template <bool kWide>
DI_INLINE i32x16 dot(i32x16 acc, u8x64 w, byte_quad a) {
  // Pairs fit 16 bits as long as codes stay below 128, so wide codes are split at the top bit.
  const __m512i low = kWide ? _mm512_and_si512(w.v, _mm512_set1_epi8(0x7f)) : w.v;
  acc.v = _mm512_add_epi32(acc.v, _mm512_madd_epi16(_mm512_maddubs_epi16(low, a.v), _mm512_set1_epi16(1)));
  if constexpr (kWide) {
    const __m512i top = _mm512_and_si512(_mm512_srli_epi16(w.v, 7), _mm512_set1_epi8(1));
    acc.v =
        _mm512_add_epi32(acc.v, _mm512_madd_epi16(_mm512_maddubs_epi16(top, a.v), _mm512_set1_epi16(128)));
  }
  return acc;
}
#endif

DI_INLINE bf16x32 h_load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
#if defined(__AVX512BF16__)
struct half_pair {
  __m512i v;
};
using pair_value = uint16_t;
DI_INLINE half_pair pair_load(const pair_value* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof bits);
  return {_mm512_set1_epi32(bits)};
}
DI_INLINE f32x16 dot_bf16(f32x16 acc, bf16x32 w, half_pair a) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(a.v));
  return acc;
}
#else
struct half_pair {
  __m512 even, odd;
};
using pair_value = float;
DI_INLINE half_pair pair_load(const pair_value* p) { return {_mm512_set1_ps(p[0]), _mm512_set1_ps(p[1])}; }
DI_INLINE f32x16 dot_bf16(f32x16 acc, bf16x32 w, half_pair a) {
  const __m512 odd =
      _mm512_castsi512_ps(_mm512_and_si512(w.v, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(w.v, 16));
  return {_mm512_fmadd_ps(even, a.even, _mm512_fmadd_ps(odd, a.odd, acc.v))};
}
#endif

DI_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

constexpr int kDirectRows = 8;
constexpr int kDirectLimit = 8;  // with more, one expansion costs less than unpacking for each tile
constexpr int kPanelRows = 6;
constexpr int kFloatRows = 6;
constexpr int kPanels = 2;
constexpr int kQueries = 8;

}  // namespace deepinfer::kernels::DEEPINFER_ISA
