#include "sampler/row_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "sampler/fixed_math.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;

// N floats in one native register. Everything below is inlined into functions that allow the instructions.
#define DI_INLINE inline __attribute__((always_inline))
template <int N>
struct Types {
  typedef float F __attribute__((vector_size(N * 4), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(N * 4), aligned(4), may_alias));
  typedef uint32_t U __attribute__((vector_size(N * 4), aligned(4), may_alias));
  typedef int64_t Wide __attribute__((vector_size(N * 4)));
};
template <int N>
using F = typename Types<N>::F;
template <int N>
using I = typename Types<N>::I;
template <int N>
using U = typename Types<N>::U;

template <int N>
DI_INLINE F<N> load(const float* p) {
  return *reinterpret_cast<const F<N>*>(p);
}

template <int N>
DI_INLINE F<N> exp_of(F<N> x) {
  using C = ExpConstants;
  const I<N> in_range = x >= C::kExpMin;
  const F<N> shifted = x * C::kLog2e + C::kRound;
  const F<N> n = shifted - C::kRound;
  const F<N> r = (x - n * C::kLn2High) - n * C::kLn2Low;
  F<N> p = r * C::kC6 + C::kC5;
  p = p * r + C::kC4;
  p = p * r + C::kC3;
  p = p * r + C::kC2;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const I<N> exponent = (reinterpret_cast<I<N>>(shifted) - std::bit_cast<int32_t>(C::kRound)) << 23;
  return reinterpret_cast<F<N>>((reinterpret_cast<I<N>>(p) + exponent) & in_range);
}

template <int N>
DI_INLINE bool any(I<N> mask) {
  const auto wide = reinterpret_cast<typename Types<N>::Wide>(mask);
  int64_t all = 0;
  for (int i = 0; i < N / 2; ++i) all |= wide[i];
  return all != 0;
}

// The maximum of a row as it is read.
template <int N>
struct MaxLanes {
  F<N> best[kLanes / N];
  I<N> bad = {};
  float rest = -kInfinity;
  bool is_rest_good = true;

  DI_INLINE MaxLanes() {
    for (F<N>& b : best) b = F<N>{} - kInfinity;
  }
  DI_INLINE void add(size_t v, F<N> x) {
    best[v] = x > best[v] ? x : best[v];
    bad |= ~(x <= std::numeric_limits<float>::max());
  }
  DI_INLINE void add_one(float x) {
    rest = x > rest ? x : rest;
    is_rest_good = is_rest_good && x <= std::numeric_limits<float>::max();
  }
  DI_INLINE RowMax result() const {
    RowMax all{rest, 0, is_rest_good && !any<N>(bad)};
    for (const F<N>& b : best)
      for (int l = 0; l < N; ++l) all.max = b[l] > all.max ? b[l] : all.max;
    all.is_finite = all.is_finite && all.max > -kInfinity;
    return all;
  }
};

// The lowest id that has the value; 0 when none has.
template <int N>
DI_INLINE int32_t first_of_n(const float* row, size_t size, float value) {
  size_t at = 0;
  for (; at + N <= size; at += N)
    if (any<N>(load<N>(row + at) == value)) break;
  while (at < size && row[at] != value) ++at;
  return at < size ? static_cast<int32_t>(at) : 0;
}

template <int N>
DI_INLINE RowMax find_max_n(const float* row, size_t size) {
  MaxLanes<N> lanes;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (size_t v = 0; v < kLanes / N; ++v) lanes.add(v, load<N>(row + i + v * N));
  for (; i < size; ++i) lanes.add_one(row[i]);
  RowMax result = lanes.result();
  result.index = first_of_n<N>(row, size, result.max);
  return result;
}

template <int N>
DI_INLINE double sum_exp_n(const float* row, size_t size, float max) {
  constexpr size_t kFlush = 64 * kLanes;
  std::array<double, kLanes> sums{};
  for (size_t begin = 0; begin < size; begin += kFlush) {
    const size_t end = begin + kFlush < size ? begin + kFlush : size;
    F<N> partial[kLanes / N] = {};
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (size_t v = 0; v < kLanes / N; ++v) partial[v] += exp_of<N>(load<N>(row + i + v * N) - max);
    for (size_t l = 0; l < kLanes; ++l) {
      const float rest = i + l < end ? fixed_exp(row[i + l] - max) : 0.0f;
      sums[l] += static_cast<double>(partial[l / N][l % N] + rest);
    }
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t l = 0; l < width; ++l) sums[l] += sums[l + width];
  return sums[0];
}

// Two halves of 15 bits in 32-bit lanes: no lane overflows within kFlush steps.
template <int N, size_t kSteps>
DI_INLINE void sum_weights_n(const float* row, size_t size, float max, float scale, const float* thresholds,
                             uint64_t* sums) {
  constexpr size_t kFlush = size_t{1} << 15;
  for (size_t j = 0; j < kSteps; ++j) sums[j] = 0;
  size_t i = 0;
  while (i + N <= size) {
    I<N> high[kSteps] = {}, low[kSteps] = {};
    const size_t steps = (size - i) / N < kFlush ? (size - i) / N : kFlush;
    for (size_t s = 0; s < steps; ++s, i += N) {
      const F<N> x = load<N>(row + i);
      const I<N> w = __builtin_convertvector(exp_of<N>((x - max) * scale) * kWeightScale, I<N>);
      const I<N> w_high = w >> 15, w_low = w & 0x7FFF;
      for (size_t j = 0; j < kSteps; ++j) {
        const I<N> counts = x >= thresholds[j];
        high[j] += w_high & counts;
        low[j] += w_low & counts;
      }
    }
    for (size_t j = 0; j < kSteps; ++j)
      for (int l = 0; l < N; ++l)
        sums[j] += (static_cast<uint64_t>(static_cast<uint32_t>(high[j][l])) << 15) +
                   static_cast<uint32_t>(low[j][l]);
  }
  for (; i < size; ++i)
    for (size_t j = 0; j < kSteps; ++j)
      if (row[i] >= thresholds[j]) sums[j] += weight_of((row[i] - max) * scale);
}

template <int N>
DI_INLINE void collect_n(const float* row, size_t size, float low, float high, std::vector<int32_t>& ids) {
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    I<N> hits = {};
    for (size_t v = 0; v < kLanes / N; ++v) {
      const F<N> x = load<N>(row + i + v * N);
      hits |= (x >= low) & (x < high);
    }
    if (!any<N>(hits)) continue;
    for (size_t l = i; l < i + kLanes; ++l)
      if (row[l] >= low && row[l] < high) ids.push_back(static_cast<int32_t>(l));
  }
  for (; i < size; ++i)
    if (row[i] >= low && row[i] < high) ids.push_back(static_cast<int32_t>(i));
}

template <int N>
DI_INLINE int32_t count_better_n(const float* row, size_t size, float value, int32_t id) {
  const auto count = [&](size_t begin, size_t end, bool with_equal) __attribute__((always_inline)) {
    I<N> lanes = {};
    int32_t total = 0;
    size_t i = begin;
    for (; i + N <= end; i += N) {
      const F<N> x = load<N>(row + i);
      lanes -= with_equal ? x >= value : x > value;
    }
    for (; i < end; ++i) total += with_equal ? row[i] >= value : row[i] > value;
    for (int l = 0; l < N; ++l) total += lanes[l];
    return total;
  };
  return count(0, static_cast<size_t>(id), true) + count(static_cast<size_t>(id), size, false);
}

template <int N>
DI_INLINE void strided_maxima_n(const float* row, size_t size, float* maxima, size_t num_maxima) {
  for (size_t j = 0; j < num_maxima; ++j) maxima[j] = -kInfinity;
  size_t i = 0;
  for (; i + num_maxima <= size; i += num_maxima)
    for (size_t j = 0; j < num_maxima; j += N) {
      const F<N> x = load<N>(row + i + j), old = load<N>(maxima + j);
      *reinterpret_cast<F<N>*>(maxima + j) = x > old ? x : old;
    }
  for (size_t j = 0; i + j < size; ++j) maxima[j] = row[i + j] > maxima[j] ? row[i + j] : maxima[j];
}

// gumbel_bound() of many tokens.
template <int N>
DI_INLINE F<N> noise_bound(U<N> tokens, const TokenNoise& noise) {
  U<N> x = tokens * TokenNoise::kSpread + noise.add;
  x = (x ^ (x >> 15)) * TokenNoise::kFirst;
  x ^= noise.flip;
  x = (x ^ (x >> 13)) * TokenNoise::kSecond;
  x ^= x >> 16;
  const F<N> v = __builtin_convertvector(reinterpret_cast<I<N>>(x >> 1), F<N>);
  return __builtin_convertvector(reinterpret_cast<I<N>>(v), F<N>) * kBoundScale + kBoundOffset;
}

template <int N>
DI_INLINE int32_t gumbel_argmax_n(const float* row, size_t size, float max, float scale, const Border& border,
                                  const TokenNoise& noise, int32_t first) {
  constexpr size_t kBlock = 4 * kLanes;
  const auto score = [&](size_t i) __attribute__((always_inline)) {
    return static_cast<double>((row[i] - max) * scale) + fixed_gumbel(noise.bits(static_cast<uint32_t>(i)));
  };
  int32_t winner = first;
  double best = score(static_cast<size_t>(first));
  float bound = static_cast<float>(best) - 1e-3f;  // below `best` whatever the rounding
  const auto challenge = [&](size_t i) __attribute__((always_inline)) {
    if (!border.includes(row[i], static_cast<int32_t>(i))) return;
    const double s = score(i);
    if (s < best || (s == best && static_cast<int32_t>(i) >= winner)) return;
    best = s;
    winner = static_cast<int32_t>(i);
    bound = static_cast<float>(best) - 1e-3f;
  };
  U<N> tokens;
  for (int l = 0; l < N; ++l) tokens[l] = static_cast<uint32_t>(l);
  size_t i = 0;
  for (; i + kBlock <= size; i += kBlock) {
    F<N> highest[kBlock / N];
    I<N> hits = {};
    for (size_t v = 0; v < kBlock / N; ++v) {
      highest[v] = (load<N>(row + i + v * N) - max) * scale + noise_bound<N>(tokens, noise);
      hits |= highest[v] > bound;
      tokens += static_cast<uint32_t>(N);
    }
    if (!any<N>(hits)) continue;
    for (size_t l = 0; l < kBlock; ++l)
      if (highest[l / N][l % N] > bound) challenge(i + l);
  }
  for (; i < size; ++i) challenge(i);
  return winner;
}

template <int N>
DI_INLINE RowMax mask_row_n(const float* from, float* to, size_t size, const uint32_t* mask, RowMax& raw) {
  MaxLanes<N> before, after;
  I<N> bits;
  for (int l = 0; l < N; ++l) bits[l] = 1 << l;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const uint32_t word = mask[i / 32] >> (i % 32);
    for (size_t v = 0; v < kLanes / N; ++v) {
      const F<N> x = load<N>(from + i + v * N);
      const I<N> here = I<N>{} + static_cast<int32_t>(word >> (v * N));
      const F<N> kept = (here & bits) != 0 ? x : F<N>{} - kInfinity;
      *reinterpret_cast<F<N>*>(to + i + v * N) = kept;
      before.add(v, x);
      after.add(v, kept);
    }
  }
  for (; i < size; ++i) {
    before.add_one(from[i]);
    to[i] = mask[i / 32] >> (i % 32) & 1 ? from[i] : -kInfinity;
    after.add_one(to[i]);
  }
  raw = before.result();
  RowMax result = after.result();
  result.index = first_of_n<N>(to, size, result.max);
  return result;
}

#if defined(__x86_64__)
#define DI_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
// Flat rows have thousands of candidates: their ids are packed 16 at a time.
DI_AVX512 void collect_avx512(const float* row, size_t size, float low, float high,
                              std::vector<int32_t>& ids) {
  constexpr size_t kRoom = 512;
  int32_t found[kRoom + kLanes];
  size_t num_found = 0;
  const __m512 lows = _mm512_set1_ps(low), highs = _mm512_set1_ps(high);
  __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const __m512 x = _mm512_loadu_ps(row + i);
    const __mmask16 hits =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(x, lows, _CMP_GE_OQ), x, highs, _CMP_LT_OQ);
    if (hits != 0) {
      _mm512_storeu_si512(found + num_found, _mm512_maskz_compress_epi32(hits, at));
      num_found += static_cast<size_t>(std::popcount(static_cast<uint32_t>(hits)));
      if (num_found >= kRoom) {
        ids.insert(ids.end(), found, found + num_found);
        num_found = 0;
      }
    }
    at = _mm512_add_epi32(at, _mm512_set1_epi32(kLanes));
  }
  ids.insert(ids.end(), found, found + num_found);
  for (; i < size; ++i)
    if (row[i] >= low && row[i] < high) ids.push_back(static_cast<int32_t>(i));
}
#endif

// N lanes at a time; searches have their own width, because integer multiplications and mask registers of
// 512 bits cost more than they bring (measured: three times slower).
#define DI_ROW_OPS(NAME, N, SEARCH_N, COLLECT, TARGET)                                                       \
  struct Ops_##NAME {                                                                                        \
    TARGET static RowMax find_max(const float* r, size_t s) { return find_max_n<N>(r, s); }                  \
    TARGET static double sum_exp(const float* r, size_t s, float m) { return sum_exp_n<N>(r, s, m); }        \
    TARGET static void sum_two_weights(const float* r, size_t s, float m, float scale, const float* t,       \
                                       uint64_t* sums) {                                                     \
      sum_weights_n<N, 2>(r, s, m, scale, t, sums);                                                          \
    }                                                                                                        \
    TARGET static void sum_weights(const float* r, size_t s, float m, float scale, const float* t,           \
                                   uint64_t* sums) {                                                         \
      sum_weights_n<N, RowOps::kNumSteps>(r, s, m, scale, t, sums);                                          \
    }                                                                                                        \
    TARGET static void collect(const float* r, size_t s, float low, float high, std::vector<int32_t>& ids) { \
      COLLECT(r, s, low, high, ids);                                                                         \
    }                                                                                                        \
    TARGET static int32_t count_better(const float* r, size_t s, float value, int32_t id) {                  \
      return count_better_n<N>(r, s, value, id);                                                             \
    }                                                                                                        \
    TARGET static void strided_maxima(const float* r, size_t s, float* maxima, size_t n) {                   \
      strided_maxima_n<N>(r, s, maxima, n);                                                                  \
    }                                                                                                        \
    TARGET static int32_t gumbel_argmax(const float* r, size_t s, float m, float scale, const Border& b,     \
                                        const TokenNoise& noise, int32_t first) {                            \
      return gumbel_argmax_n<SEARCH_N>(r, s, m, scale, b, noise, first);                                     \
    }                                                                                                        \
    TARGET static RowMax mask_row(const float* f, float* t, size_t s, const uint32_t* mask, RowMax& raw) {   \
      return mask_row_n<N>(f, t, s, mask, raw);                                                              \
    }                                                                                                        \
  };                                                                                                         \
  constexpr RowOps k_##NAME = {#NAME,                                                                        \
                               Ops_##NAME::find_max,                                                         \
                               Ops_##NAME::sum_exp,                                                          \
                               Ops_##NAME::sum_two_weights,                                                  \
                               Ops_##NAME::sum_weights,                                                      \
                               Ops_##NAME::collect,                                                          \
                               Ops_##NAME::count_better,                                                     \
                               Ops_##NAME::strided_maxima,                                                   \
                               Ops_##NAME::gumbel_argmax,                                                    \
                               Ops_##NAME::mask_row};

DI_ROW_OPS(base, 4, 4, collect_n<4>, )
#if defined(__x86_64__)
DI_ROW_OPS(avx2, 8, 8, collect_n<8>, __attribute__((target("avx2"))))
DI_ROW_OPS(avx512, 16, 8, collect_avx512, DI_AVX512)
#endif

}  // namespace

uint32_t weight_of(float x) {
  return static_cast<uint32_t>(static_cast<int32_t>(fixed_exp(x) * kWeightScale));
}

std::vector<const RowOps*> all_row_ops() {
  std::vector<const RowOps*> all = {&k_base};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) all.push_back(&k_avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all.push_back(&k_avx512);
#endif
  return all;
}

const RowOps& row_ops() {
  static const RowOps& best = *all_row_ops().back();
  return best;
}

}  // namespace deepinfer
