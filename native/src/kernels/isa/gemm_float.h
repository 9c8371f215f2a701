// Products in bf16 and fp32: one chain over k per output.
#pragma once

#include "kernels/isa/gemm_int8.h"

namespace deepinfer::kernels::DEEPINFER_ISA {

// panels: [k / 2][16 columns][2] bf16 each, `panel_step` bytes apart; a: [k / 2][rows][2].
template <int kRows, int kPanelsWide>
void bf16_tile(const pair_value* a, const std::byte* panels, int64_t panel_step, int k, float* y,
               int64_t stride, int columns, bool accumulate) {
  f32x16 acc[kRows][kPanelsWide];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) acc[r][p] = f_zero();
  }
  for (int pair = 0; pair < k / 2; ++pair, panels += 64, a += 2 * kRows) {
    bf16x32 w[kPanelsWide];
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) w[p] = h_load(panels + p * panel_step);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const half_pair x = pair_load(a + 2 * r);
#pragma GCC unroll 8
      for (int p = 0; p < kPanelsWide; ++p) acc[r][p] = dot_bf16(acc[r][p], w[p], x);
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

// panels: [k][16 columns] fp32; a: [k][rows].
template <int kRows, int kPanelsWide>
void fp32_tile(const float* a, const std::byte* panels, int64_t panel_step, int k, float* y, int64_t stride,
               int columns, bool accumulate) {
  f32x16 acc[kRows][kPanelsWide];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p) acc[r][p] = f_zero();
  }
  for (int i = 0; i < k; ++i, panels += 64, a += kRows) {
    f32x16 w[kPanelsWide];
#pragma GCC unroll 8
    for (int p = 0; p < kPanelsWide; ++p)
      w[p] = f_load(reinterpret_cast<const float*>(panels + p * panel_step));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const f32x16 x = f_set1(a[r]);
#pragma GCC unroll 8
      for (int p = 0; p < kPanelsWide; ++p) acc[r][p] = f_fma(x, w[p], acc[r][p]);
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
