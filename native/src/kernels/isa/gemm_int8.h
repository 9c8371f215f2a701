// Products of int8 activations with block-quantised weights.
//
// Per output and block of 32: two multiply-adds onto one fp32 chain,
//   y = fma(float(sum of code * a), d * s, y);  y = fma(m, s * sum of a, y);
// where s is the activation's scale, and m = -offset * d for formats without a minimum of their own. The
// integer sum is exact, so its order is free. kByteSub16 has one d and m per 16 elements: four multiply-adds.
//
// With residuals an activation is s * (a + residual / 256). If a row of the tile has residuals in a block,
// the sums become 256 * (sum of code * a) + (sum of code * residual), at most 32 * 255 * 32640 < 2^31, and s
// / 256 takes the place of s. To a row whose residuals are zero nothing changes: powers of two commute with
// rounding.
#pragma once

#include "kernels/isa/vec.h"

namespace deepinfer::kernels::DEEPINFER_ISA {

// One tile of activation rows, as prepare_row left it.
struct Int8Tile {
  const int8_t* codes;          // [k / 32][rows][32]
  const int8_t* residuals;      // like codes; null: none
  const uint8_t* has_residual;  // [k / 32][rows]
  const float* scale;           // [k / 32][rows]
  const float* sum;             // [k / 32][rows] scale * sum of codes
  const float* sum_low;         // ... of the first 16
  const float* sum_high;
  int num_blocks;
};

struct Scales {
  f32x16 d, m;  // of the block, or of its first 16 elements
  f32x16 d_high, m_high;
};

template <PackFormat F>
struct Int8Format {
  static constexpr bool kNibbles =
      F == PackFormat::kNibbleD16 || F == PackFormat::kNibbleDM16 || F == PackFormat::kNibbleDM32;
  static constexpr bool kSub16 = F == PackFormat::kByteSub16;
  static constexpr bool kWide = kSplitsWide && F == PackFormat::kByteD16;  // codes up to 255
  static constexpr int kCodeBytes = kNibbles ? 256 : 512;
  static constexpr bool kOnlyD = F == PackFormat::kNibbleD16 || F == PackFormat::kByteD16;
  static constexpr bool kHalfScales = kOnlyD || F == PackFormat::kNibbleDM16 || F == PackFormat::kByteDM16;
  static constexpr int kScaleBytes = kOnlyD ? 32 : kHalfScales ? 64 : 128;
  static constexpr int kBytes = kCodeBytes + kScaleBytes;
};

// Whether a row of the tile has residuals in block b.
template <int kRows>
DI_INLINE bool has_residuals(const Int8Tile& tile, int b) {
  static_assert(kRows <= 8);
  if (tile.residuals == nullptr) return false;
  uint64_t flags;
  memcpy(&flags, tile.has_residual + b * kRows, sizeof flags);
  return (flags << (64 - 8 * kRows)) != 0;
}

// Vector g holds elements 4g .. 4g + 3 of the block for the panel's 16 columns.
template <PackFormat F>
DI_INLINE void load_codes(const std::byte* block, u8x64 codes[8]) {
  if constexpr (Int8Format<F>::kNibbles) {
    for (int word = 0; word < 4; ++word) {
      const u8x64 packed = b_load(block + 64 * word);
      codes[2 * word] = b_low_nibbles(packed);
      codes[2 * word + 1] = b_high_nibbles(packed);
    }
  } else {
    for (int g = 0; g < 8; ++g) codes[g] = b_load(block + 64 * g);
  }
}

template <PackFormat F>
DI_INLINE Scales load_scales(const std::byte* block, f32x16 minus_offset) {
  using Format = Int8Format<F>;
  const std::byte* at = block + Format::kCodeBytes;
  const auto* halves = reinterpret_cast<const uint16_t*>(at);
  const auto* floats = reinterpret_cast<const float*>(at);
  Scales s{};
  if constexpr (Format::kHalfScales) {
    s.d = f_load_f16(halves);
    s.m = Format::kOnlyD ? f_mul(s.d, minus_offset) : f_load_f16(halves + 16);
  } else if constexpr (Format::kSub16) {
    s.d = f_load(floats);
    s.d_high = f_load(floats + 16);
    s.m = f_mul(s.d, minus_offset);
    s.m_high = f_mul(s.d_high, minus_offset);
  } else {
    s.d = f_load(floats);
    s.m = f_load(floats + 16);
  }
  return s;
}

// For sums that are 256 times as large.
DI_INLINE Scales residual_scales(Scales s) {
  s.d = f_mul(s.d, f_set1(0x1p-8f));
  s.d_high = f_mul(s.d_high, f_set1(0x1p-8f));
  return s;
}

// Adds one block's contribution for one row; low and high are the integer sums of the block's halves.
template <bool kSub16>
DI_INLINE f32x16 add_block(f32x16 acc, i32x16 low, i32x16 high, const Scales& s, const Int8Tile& tile,
                           int at) {
  const f32x16 scale = f_set1(tile.scale[at]);
  if constexpr (kSub16) {
    acc = f_fma(i_to_f32(low), f_mul(s.d, scale), acc);
    acc = f_fma(i_to_f32(high), f_mul(s.d_high, scale), acc);
    acc = f_fma(s.m, f_set1(tile.sum_low[at]), acc);
    return f_fma(s.m_high, f_set1(tile.sum_high[at]), acc);
  } else {
    acc = f_fma(i_to_f32(i_add(low, high)), f_mul(s.d, scale), acc);
    return f_fma(s.m, f_set1(tile.sum[at]), acc);
  }
}

DI_INLINE void store_columns(float* y, f32x16 acc, int columns, bool accumulate) {
  if (columns >= kLanes) {
    f_store(y, accumulate ? f_add(f_load(y), acc) : acc);
    return;
  }
  float lanes[kLanes];
  f_store(lanes, acc);
  for (int c = 0; c < columns; ++c) y[c] = accumulate ? y[c] + lanes[c] : lanes[c];
}

// Adds the sums of the block's halves for one row.
template <bool kWide>
DI_INLINE void add_dots(const u8x64 codes[8], const int8_t* a, i32x16& low, i32x16& high) {
  for (int g = 0; g < 4; ++g) {
    low = dot<kWide>(low, codes[g], quad_load(a + 4 * g));
    high = dot<kWide>(high, codes[g + 4], quad_load(a + 4 * (g + 4)));
  }
}

// The lines of `upcoming` that belong to one block.
DI_INLINE void ask_ahead(Upcoming& upcoming) {
  for (int i = 0; i < upcoming.per_block; ++i) {
    prefetch(upcoming.at);
    upcoming.at += kLineBytes;
    if (--upcoming.left > 0) continue;
    if (upcoming.next == upcoming.end) {
      upcoming.per_block = 0;
      return;
    }
    upcoming.at = upcoming.base + upcoming.next->first * kLineBytes;
    upcoming.left = upcoming.next->count;
    ++upcoming.next;
  }
}

// Few rows: one panel at a time, weights unpacked in registers, one sequential stream from memory.
template <PackFormat F, int kRows>
void int8_direct(const Int8Tile& tile, const std::byte* panel, float offset, Upcoming& upcoming, float* y,
                 int64_t stride, int columns, bool accumulate) {
  using Format = Int8Format<F>;
  constexpr int kAhead = 2048;  // bytes
  const f32x16 minus_offset = f_set1(-offset);
  f32x16 acc[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r] = f_zero();
  const int8_t* a = tile.codes;
  for (int b = 0; b < tile.num_blocks; ++b, a += kBlock * kRows, panel += Format::kBytes) {
    for (int line = 0; line < Format::kBytes; line += 64) prefetch(panel + kAhead + line);
    ask_ahead(upcoming);
    u8x64 codes[8];
    load_codes<F>(panel, codes);
    const Scales scales = load_scales<F>(panel, minus_offset);
    // Two loops, so that the one without residuals is not disturbed by the other.
    if (!has_residuals<kRows>(tile, b)) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        i32x16 low = i_zero(), high = i_zero();
        add_dots<Format::kWide>(codes, a + kBlock * r, low, high);
        acc[r] = add_block<Format::kSub16>(acc[r], low, high, scales, tile, b * kRows + r);
      }
    } else {
      const Scales smaller = residual_scales(scales);
      const int8_t* residual = tile.residuals + (a - tile.codes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        i32x16 low = i_zero(), high = i_zero();
        add_dots<Format::kWide>(codes, a + kBlock * r, low, high);
        low = i_times_256(low);
        high = i_times_256(high);
        add_dots<Format::kWide>(codes, residual + kBlock * r, low, high);
        acc[r] = add_block<Format::kSub16>(acc[r], low, high, smaller, tile, b * kRows + r);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) store_columns(y + r * stride, acc[r], columns, accumulate);
}

// An expanded block: 512 bytes of codes, then d and m (and d_high, m_high) as fp32.
template <bool kSub16>
constexpr int kExpandedBytes = 512 + 64 * (kSub16 ? 4 : 2);

template <PackFormat F>
void expand_panel(const std::byte* panel, int num_blocks, float offset, std::byte* expanded) {
  using Format = Int8Format<F>;
  const f32x16 minus_offset = f_set1(-offset);
  for (int b = 0; b < num_blocks; ++b) {
    u8x64 codes[8];
    load_codes<F>(panel, codes);
    for (int g = 0; g < 8; ++g) b_store(expanded + 64 * g, codes[g]);
    const Scales s = load_scales<F>(panel, minus_offset);
    auto* floats = reinterpret_cast<float*>(expanded + 512);
    f_store(floats, s.d);
    f_store(floats + 16, s.m);
    if constexpr (Format::kSub16) {
      f_store(floats + 32, s.d_high);
      f_store(floats + 48, s.m_high);
    }
    panel += Format::kBytes;
    expanded += kExpandedBytes<Format::kSub16>;
  }
}

// Lines of memory that are asked for while a tile is multiplied, evenly over its blocks: a burst would fill
// the line buffers that the loads of this tile need.
struct Ahead {
  const std::byte* next;
  int num_lines;
};

// Many rows: kPanelsWide expanded panels, `panel_step` bytes apart, against a tile of rows.
template <bool kSub16, bool kWide, int kRows, int kPanelsWide>
void int8_panel(const Int8Tile& tile, const std::byte* expanded, int64_t panel_step, Ahead ahead,
                Upcoming& upcoming, float* y, int64_t stride, int columns, bool accumulate) {
  f32x16 acc[kRows][kPanelsWide];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) acc[r][p] = f_zero();
  }
  const int8_t* a = tile.codes;
  int due = 0;
  for (int b = 0; b < tile.num_blocks; ++b, a += kBlock * kRows, expanded += kExpandedBytes<kSub16>) {
    for (due += ahead.num_lines; due >= tile.num_blocks; due -= tile.num_blocks, ahead.next += 64) {
      prefetch(ahead.next);
    }
    ask_ahead(upcoming);
    i32x16 sums[kSub16 ? 2 : 1][kRows][kPanelsWide];
#pragma GCC unroll 8
    for (int half = 0; half < (kSub16 ? 2 : 1); ++half) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanelsWide; ++p) sums[half][r][p] = i_zero();
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      u8x64 codes[kPanelsWide];
#pragma GCC unroll 8
      for (int p = 0; p < kPanelsWide; ++p) codes[p] = b_load(expanded + p * panel_step + 64 * g);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const byte_quad quad = quad_load(a + r * kBlock + g * 4);
#pragma GCC unroll 8
        for (int p = 0; p < kPanelsWide; ++p) {
          i32x16& sum = sums[kSub16 ? g / 4 : 0][r][p];
          sum = dot<kWide>(sum, codes[p], quad);
        }
      }
    }
    const bool residuals = has_residuals<kRows>(tile, b);
    if (residuals) {
      const int8_t* residual = tile.residuals + (a - tile.codes);
#pragma GCC unroll 2
      for (int half = 0; half < (kSub16 ? 2 : 1); ++half) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
          for (int p = 0; p < kPanelsWide; ++p) sums[half][r][p] = i_times_256(sums[half][r][p]);
        }
        constexpr int kWords = kSub16 ? 4 : 8;
#pragma GCC unroll 1
        for (int g = half * kWords; g < (half + 1) * kWords; ++g) {
          u8x64 codes[kPanelsWide];
#pragma GCC unroll 8
          for (int p = 0; p < kPanelsWide; ++p) codes[p] = b_load(expanded + p * panel_step + 64 * g);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const byte_quad quad = quad_load(residual + r * kBlock + g * 4);
#pragma GCC unroll 8
            for (int p = 0; p < kPanelsWide; ++p)
              sums[half][r][p] = dot<kWide>(sums[half][r][p], codes[p], quad);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) {
      const auto* floats = reinterpret_cast<const float*>(expanded + p * panel_step + 512);
      Scales s{};
      s.d = f_load(floats);
      s.m = f_load(floats + 16);
      if constexpr (kSub16) {
        s.d_high = f_load(floats + 32);
        s.m_high = f_load(floats + 48);
      }
      if (residuals) s = residual_scales(s);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const i32x16 high = kSub16 ? sums[kSub16 ? 1 : 0][r][p] : i_zero();
        acc[r][p] = add_block<kSub16>(acc[r][p], sums[0][r][p], high, s, tile, b * kRows + r);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) {
      store_columns(y + r * stride + p * kLanes, acc[r][p], columns - p * kLanes, accumulate);
    }
  }
}

}  // namespace deepinfer::kernels::DEEPINFER_ISA
