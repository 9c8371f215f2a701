// Row tiles, groups of panels, and the choice among the loops of gemm_int8.h and gemm_float.h. Which loop and
// tile shape computes an output never changes its bits.
#pragma once

#include "kernels/isa/gemm_float.h"

namespace deepinfer::kernels::DEEPINFER_ISA {

static int max_tile_rows(Arithmetic arithmetic, int num_rows) {
  if (arithmetic == Arithmetic::kBf16 || arithmetic == Arithmetic::kFp32) return kFloatRows;
  return num_rows <= kDirectLimit ? kDirectRows : kPanelRows;
}

static int64_t gemm_blocks(const PackedView& w, int num_rows) {
  const int tile_rows = max_tile_rows(w.arithmetic, num_rows);
  const bool is_float = w.arithmetic == Arithmetic::kBf16 || w.arithmetic == Arithmetic::kFp32;
  const int wide = !is_float && num_rows <= kDirectLimit ? 1 : kPanels;
  return int64_t{(num_rows + tile_rows - 1) / tile_rows} * ((w.num_panels + wide - 1) / wide) *
         (w.k / kBlock);
}

static int64_t gemm_scratch_bytes(int k) {
  return static_cast<int64_t>(kPanels) * ((k + kBlock - 1) / kBlock) * kExpandedBytes<true>;
}

struct TileRange {
  int first_row, num_rows;
};
static TileRange tile_range(const ActivationView& a, int tile) {
  const int base = a.num_rows / a.num_tiles, longer = a.num_rows % a.num_tiles;
  return {tile * base + (tile < longer ? tile : longer), base + (tile < longer ? 1 : 0)};
}

// The tile that holds `row`.
static TileRange tile_of_row(const ActivationView& a, int row) {
  const int base = a.num_rows / a.num_tiles, longer = a.num_rows % a.num_tiles;
  const int in_longer = longer * (base + 1);
  const int tile = row < in_longer ? row / (base + 1) : longer + (row - in_longer) / base;
  return tile_range(a, tile);
}

static Int8Tile int8_tile(const ActivationView& a, TileRange range) {
  const int num_blocks = a.k / kBlock;
  const int64_t codes_at = static_cast<int64_t>(range.first_row) * a.k;
  const int64_t scales_at = static_cast<int64_t>(range.first_row) * num_blocks;
  const bool has_residuals = a.arithmetic == Arithmetic::kInt8Residual;
  return {static_cast<const int8_t*>(a.values) + codes_at,
          has_residuals ? a.residuals + codes_at : nullptr,
          has_residuals ? a.has_residual + scales_at : nullptr,
          a.scale + scales_at,
          a.scaled_sum + scales_at,
          a.scaled_sum_low != nullptr ? a.scaled_sum_low + scales_at : nullptr,
          a.scaled_sum_high != nullptr ? a.scaled_sum_high + scales_at : nullptr,
          num_blocks};
}

// Tables indexed by rows - 1, filled for the tile sizes that this level uses.
using DirectFn = void (*)(const Int8Tile&, const std::byte*, float, Upcoming&, float*, int64_t, int, bool);
using PanelFn = void (*)(const Int8Tile&, const std::byte*, int64_t, Ahead, Upcoming&, float*, int64_t, int,
                         bool);
using Bf16Fn = void (*)(const pair_value*, const std::byte*, int64_t, int, float*, int64_t, int, bool);
using Fp32Fn = void (*)(const float*, const std::byte*, int64_t, int, float*, int64_t, int, bool);

template <PackFormat F, int kRows>
constexpr DirectFn direct_entry() {
  if constexpr (kRows <= kDirectRows) return int8_direct<F, kRows>;
  return nullptr;
}
template <PackFormat F>
constexpr DirectFn kDirectTable[kMaxTileRows] = {
    direct_entry<F, 1>(), direct_entry<F, 2>(), direct_entry<F, 3>(), direct_entry<F, 4>(),
    direct_entry<F, 5>(), direct_entry<F, 6>(), direct_entry<F, 7>(), direct_entry<F, 8>()};

template <bool kSub16, bool kWide, int kRows, int kPanelsWide>
constexpr PanelFn panel_entry() {
  if constexpr (kRows <= kPanelRows) return int8_panel<kSub16, kWide, kRows, kPanelsWide>;
  return nullptr;
}
template <bool kSub16, bool kWide, int kPanelsWide>
constexpr PanelFn kPanelTable[6] = {
    panel_entry<kSub16, kWide, 1, kPanelsWide>(), panel_entry<kSub16, kWide, 2, kPanelsWide>(),
    panel_entry<kSub16, kWide, 3, kPanelsWide>(), panel_entry<kSub16, kWide, 4, kPanelsWide>(),
    panel_entry<kSub16, kWide, 5, kPanelsWide>(), panel_entry<kSub16, kWide, 6, kPanelsWide>()};

template <int kRows, int kPanelsWide>
constexpr Bf16Fn bf16_entry() {
  if constexpr (kRows <= kFloatRows) return bf16_tile<kRows, kPanelsWide>;
  return nullptr;
}
template <int kPanelsWide>
constexpr Bf16Fn kBf16Table[6] = {bf16_entry<1, kPanelsWide>(), bf16_entry<2, kPanelsWide>(),
                                  bf16_entry<3, kPanelsWide>(), bf16_entry<4, kPanelsWide>(),
                                  bf16_entry<5, kPanelsWide>(), bf16_entry<6, kPanelsWide>()};
template <int kRows, int kPanelsWide>
constexpr Fp32Fn fp32_entry() {
  if constexpr (kRows <= kFloatRows) return fp32_tile<kRows, kPanelsWide>;
  return nullptr;
}
template <int kPanelsWide>
constexpr Fp32Fn kFp32Table[6] = {fp32_entry<1, kPanelsWide>(), fp32_entry<2, kPanelsWide>(),
                                  fp32_entry<3, kPanelsWide>(), fp32_entry<4, kPanelsWide>(),
                                  fp32_entry<5, kPanelsWide>(), fp32_entry<6, kPanelsWide>()};

struct Columns {
  float* y;
  int count;
};
static Columns columns_at(const PackedView& w, const GemmOutput& out, int panel) {
  return {out.y + static_cast<int64_t>(panel) * kLanes, w.n - panel * kLanes};
}

template <PackFormat F>
static void gemm_direct(const ActivationView& a, const PackedView& w, int panel_begin, int panel_end,
                        const GemmOutput& out, Upcoming& upcoming) {
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const Columns columns = columns_at(w, out, panel);
    for (int t = 0; t < a.num_tiles; ++t) {
      const TileRange range = tile_range(a, t);
      kDirectTable<F>[range.num_rows - 1](int8_tile(a, range), w.data + panel* w.panel_bytes, w.offset,
                                          upcoming, columns.y + range.first_row* out.stride, out.stride,
                                          columns.count, out.accumulate);
    }
  }
}

// The next panels come from memory while these are multiplied: each row tile asks for its share of them.
static Ahead share_of(const std::byte* next, int64_t bytes, int tile, int num_tiles) {
  const int64_t lines = (bytes + 63) / 64, begin = lines * tile / num_tiles;
  return {next + 64 * begin, static_cast<int>(lines * (tile + 1) / num_tiles - begin)};
}

static void prefetch_share(const std::byte* next, int64_t bytes, int tile, int num_tiles) {
  const int64_t lines = (bytes + 63) / 64;
  for (int64_t line = lines * tile / num_tiles; line < lines * (tile + 1) / num_tiles; ++line) {
    prefetch(next + 64 * line);
  }
}

template <PackFormat F>
static void gemm_expanded(const ActivationView& a, const PackedView& w, int panel_begin, int panel_end,
                          const GemmOutput& out, Upcoming& upcoming, std::byte* scratch) {
  using Format = Int8Format<F>;
  const int num_blocks = w.k / kBlock;
  const int64_t step = static_cast<int64_t>(num_blocks) * kExpandedBytes<Format::kSub16>;
  for (int panel = panel_begin; panel < panel_end; panel += kPanels) {
    const int width = panel_end - panel < kPanels ? panel_end - panel : kPanels;
    for (int p = 0; p < width; ++p) {
      expand_panel<F>(w.data + (panel + p) * w.panel_bytes, num_blocks, w.offset, scratch + p * step);
    }
    const int next = panel + width;
    const int num_next = w.num_panels - next < kPanels ? w.num_panels - next : kPanels;
    const Columns columns = columns_at(w, out, panel);
    for (int t = 0; t < a.num_tiles; ++t) {
      const TileRange range = tile_range(a, t);
      const PanelFn* table = width == kPanels ? kPanelTable<Format::kSub16, Format::kWide, kPanels>
                                              : kPanelTable<Format::kSub16, Format::kWide, 1>;
      table[range.num_rows - 1](
          int8_tile(a, range), scratch, step,
          share_of(w.data + next * w.panel_bytes, num_next * w.panel_bytes, t, a.num_tiles), upcoming,
          columns.y + range.first_row * out.stride, out.stride, columns.count, out.accumulate);
    }
  }
}

template <PackFormat F>
static void gemm_int8(const ActivationView& a, const PackedView& w, int panel_begin, int panel_end,
                      const GemmOutput& out, Upcoming& upcoming, std::byte* scratch) {
  if (a.num_rows <= kDirectLimit) {
    gemm_direct<F>(a, w, panel_begin, panel_end, out, upcoming);
  } else {
    gemm_expanded<F>(a, w, panel_begin, panel_end, out, upcoming, scratch);
  }
}

template <typename Value, typename Fn>
static void gemm_float(const ActivationView& a, const PackedView& w, int panel_begin, int panel_end,
                       const GemmOutput& out, Upcoming& upcoming, const Fn* full_table,
                       const Fn* single_table) {
  for (int panel = panel_begin; panel < panel_end; panel += kPanels) {
    const int width = panel_end - panel < kPanels ? 1 : kPanels;
    const std::byte* data = w.data + panel * w.panel_bytes;
    const int num_next = w.num_panels - panel - width < width ? w.num_panels - panel - width : width;
    const Columns columns = columns_at(w, out, panel);
    for (int t = 0; t < a.num_tiles; ++t) {
      const TileRange range = tile_range(a, t);
      if (a.num_tiles > 1)
        prefetch_share(data + width * w.panel_bytes, num_next * w.panel_bytes, t, a.num_tiles);
      for (int block = 0; block < w.k / kBlock; ++block) ask_ahead(upcoming);
      const auto* values = static_cast<const Value*>(a.values) + static_cast<int64_t>(range.first_row) * a.k;
      const Fn* table = width == kPanels ? full_table : single_table;
      table[range.num_rows - 1](values, data, w.panel_bytes, w.k, columns.y + range.first_row * out.stride,
                                out.stride, columns.count, out.accumulate);
    }
  }
}

static void gemm(const ActivationView& a, const PackedView& w, int panel_begin, int panel_end,
                 const GemmOutput& out, Upcoming& upcoming, std::byte* scratch) {
  switch (w.format) {
    case PackFormat::kNibbleD16:
      return gemm_int8<PackFormat::kNibbleD16>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kNibbleDM16:
      return gemm_int8<PackFormat::kNibbleDM16>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kNibbleDM32:
      return gemm_int8<PackFormat::kNibbleDM32>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kByteD16:
      return gemm_int8<PackFormat::kByteD16>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kByteDM16:
      return gemm_int8<PackFormat::kByteDM16>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kByteDM32:
      return gemm_int8<PackFormat::kByteDM32>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kByteSub16:
      return gemm_int8<PackFormat::kByteSub16>(a, w, panel_begin, panel_end, out, upcoming, scratch);
    case PackFormat::kPairBf16:
      return gemm_float<pair_value>(a, w, panel_begin, panel_end, out, upcoming, kBf16Table<kPanels>,
                                    kBf16Table<1>);
    case PackFormat::kF32:
      return gemm_float<float>(a, w, panel_begin, panel_end, out, upcoming, kFp32Table<kPanels>,
                               kFp32Table<1>);
  }
}

}  // namespace deepinfer::kernels::DEEPINFER_ISA
