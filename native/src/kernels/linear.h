// Products of activations with weights, over the pool.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/matrix.h"

namespace deepinfer::kernels {

// One or more weights that share their input: outputs side by side, in order.
struct Linear {
  std::vector<PackedView> parts;
  int n = 0;
  int k = 0;
  float residual_threshold = kDefaultResidualThreshold;  // for parts multiplied as kInt8Residual

  void append(const PackedView& part);
  int64_t num_bytes() const;
};

// Rows of activations, converted for every arithmetic that a Linear's parts need. Memory is planned once.
class Activations {
 public:
  Activations(const KernelTable& kernels, int max_rows, int max_k);

  // Declares the next activations: num_rows rows of `linear.k`. Then set_row() each row, from any thread.
  void begin(int num_rows, const Linear& linear);
  void set_row(int row, const float* values) const;

  const ActivationView& view(Arithmetic arithmetic) const { return views_[static_cast<int>(arithmetic)]; }
  int num_rows() const { return num_rows_; }

 private:
  const KernelTable& kernels_;
  int max_rows_, max_k_;
  int num_rows_ = 0;
  bool active_[kNumArithmetics] = {};
  Pages memory_[kNumArithmetics];  // mapped on first use of the arithmetic
  ActivationView views_[kNumArithmetics];
};

// Other work that a product's threads do bit by bit between their tasks, while memory for it is asked for.
class SideWork {
 public:
  virtual ~SideWork() = default;
  // Called by `worker` before each of its tasks: does what is due, and says what to ask for meanwhile.
  virtual Upcoming& turn(int worker) = 0;
};

// Multiplies on the pool. Owns per-thread scratch.
class Multiplier {
 public:
  Multiplier(const KernelTable& kernels, ThreadPool& pool, int max_k);

  // output[row, column] for the rows of `activations` (which were begun for this linear).
  void run(const Linear& linear, const Activations& activations, const GemmOutput& output,
           SideWork* side = nullptr) const;
  // Blocks that run() goes through, each of which asks for memory of the side work.
  int64_t num_blocks(const Linear& linear, int num_rows) const;

 private:
  const KernelTable& kernels_;
  ThreadPool& pool_;
  int64_t scratch_bytes_;  // per thread
  Pages scratch_;
};

}  // namespace deepinfer::kernels
