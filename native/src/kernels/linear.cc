#include "kernels/linear.h"

#include <algorithm>

#include "deepinfer/status.h"

namespace deepinfer::kernels {
namespace {

constexpr int kTasksPerThread = 8;  // enough to even out threads that are interrupted
constexpr int kMinTaskPanels = 2;   // what the widest loop takes at once
constexpr int kSideTaskPanels = 4;  // with side work: some microseconds

bool is_int8(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kInt8 || arithmetic == Arithmetic::kInt8Residual;
}

// Whether a product needs the sums of the halves of a block.
bool has_half_scales(const Linear& linear) {
  for (const PackedView& part : linear.parts) {
    if (part.format == PackFormat::kByteSub16) return true;
  }
  return false;
}

int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A run of panels of one part.
struct Task {
  const PackedView* part;
  int first_column;  // of the part, in the linear's output
  int panel_begin, panel_end;
};

}  // namespace

void Linear::append(const PackedView& part) {
  DI_CHECK(parts.empty() || k == part.k, k, " ", part.k);
  // A part that ends inside a panel would leave the next one's columns unaligned: fine, but never
  // overlapping.
  k = part.k;
  n += part.n;
  parts.push_back(part);
}

int64_t Linear::num_bytes() const {
  int64_t total = 0;
  for (const PackedView& part : parts) total += part.num_bytes();
  return total;
}

Activations::Activations(const KernelTable& kernels, int max_rows, int max_k)
    : kernels_(kernels), max_rows_(max_rows), max_k_(max_k) {}

void Activations::begin(int num_rows, const Linear& linear) {
  DI_CHECK(num_rows >= 1 && num_rows <= max_rows_ && linear.k <= max_k_, num_rows, " ", linear.k);
  num_rows_ = num_rows;
  std::fill(active_, active_ + kNumArithmetics, false);
  for (const PackedView& part : linear.parts) active_[static_cast<int>(part.arithmetic)] = true;
  for (int i = 0; i < kNumArithmetics; ++i) {
    if (!active_[i]) continue;
    const auto arithmetic = static_cast<Arithmetic>(i);
    const bool has_scales = is_int8(arithmetic), has_residuals = arithmetic == Arithmetic::kInt8Residual;
    const int64_t values = align64(int64_t{max_rows_} * max_k_ * (has_scales ? 1 : 4));
    const int64_t blocks = int64_t{max_rows_} * (max_k_ / kBlock);
    const int64_t scales = align64(blocks * 4), flags = align64(blocks + 8);
    if (memory_[i].data() == nullptr) {
      memory_[i] =
          Pages(values + (has_scales ? 4 * scales : 0) + (has_residuals ? values + flags : 0), "activations");
    }
    ActivationView& view = views_[i];
    view.arithmetic = arithmetic;
    view.num_rows = num_rows;
    view.k = linear.k;
    const int tile_rows = kernels_.max_tile_rows(arithmetic, num_rows);
    view.num_tiles = (num_rows + tile_rows - 1) / tile_rows;
    view.values = memory_[i].data();
    if (has_scales) {
      auto* at = reinterpret_cast<float*>(memory_[i].data() + values);
      view.scale = at;
      view.scaled_sum = at + scales / 4;
      const bool halves = has_half_scales(linear);
      view.scaled_sum_low = halves ? at + 2 * scales / 4 : nullptr;
      view.scaled_sum_high = halves ? at + 3 * scales / 4 : nullptr;
    }
    if (has_residuals) {
      std::byte* at = memory_[i].data() + values + 4 * scales;
      view.residual_threshold = linear.residual_threshold;
      view.residuals = reinterpret_cast<int8_t*>(at);
      view.has_residual = reinterpret_cast<uint8_t*>(at + values);
    }
  }
}

void Activations::set_row(int row, const float* values) const {
  for (int i = 0; i < kNumArithmetics; ++i) {
    if (active_[i]) kernels_.prepare_row(values, row, views_[i]);
  }
}

Multiplier::Multiplier(const KernelTable& kernels, ThreadPool& pool, int max_k)
    : kernels_(kernels),
      pool_(pool),
      scratch_bytes_(align64(kernels.gemm_scratch_bytes(max_k))),
      scratch_(scratch_bytes_ * pool.num_threads(), "multiply scratch") {}

int64_t Multiplier::num_blocks(const Linear& linear, int num_rows) const {
  int64_t total = 0;
  for (const PackedView& part : linear.parts) total += kernels_.gemm_blocks(part, num_rows);
  return total;
}

void Multiplier::run(const Linear& linear, const Activations& activations, const GemmOutput& output,
                     SideWork* side) const {
  const int threads = pool_.num_threads();
  int total_panels = 0;
  for (const PackedView& part : linear.parts) total_panels += part.num_panels;
  int per_task = threads == 1 ? total_panels : total_panels / (threads * kTasksPerThread);
  per_task = std::max(kMinTaskPanels, (per_task + 1) / 2 * 2);
  if (side != nullptr) per_task = std::min(per_task, kSideTaskPanels);
  std::vector<Task> tasks;
  int column = 0;
  for (const PackedView& part : linear.parts) {
    for (int panel = 0; panel < part.num_panels; panel += per_task) {
      tasks.push_back({&part, column, panel, std::min(panel + per_task, part.num_panels)});
    }
    column += part.n;
  }
  pool_.parallel_for(static_cast<int>(tasks.size()), 1, [&](int index, int worker) {
    const Task& task = tasks[static_cast<size_t>(index)];
    const PackedView& weights = *task.part;
    GemmOutput shifted = output;
    shifted.y += task.first_column;
    Upcoming nothing;
    kernels_.gemm(activations.view(weights.arithmetic), weights, task.panel_begin, task.panel_end, shifted,
                  side == nullptr ? nothing : side->turn(worker), scratch_.data() + worker * scratch_bytes_);
  });
}

}  // namespace deepinfer::kernels
