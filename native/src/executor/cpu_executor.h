// Runs a model family on the CPU: owns the model and its cache memory, and checks every batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/pages.h"
#include "deepinfer/executor.h"
#include "deepinfer/tensor_file.h"
#include "deepinfer/threads.h"
#include "models/model.h"

namespace deepinfer {

struct CpuExecutorConfig {
  std::string precision = "precise";  // precise, fast, bf16, fp32
  // precise: blocks of activations whose largest value is above this times the row's root mean square are
  // multiplied with 16 bits, the others with 8.
  float residual_threshold = kernels::kDefaultResidualThreshold;
  std::string kv_dtype = "f16";  // f16, bf16, f32, int8
  std::string isa;               // kernel level; empty: DEEPINFER_ISA or the best
  int block_tokens = 32;         // tokens per cache block, multiple of 16
  int two_parts_rows = models::ModelOptions{}.two_parts_rows;  // tests make them small
  int64_t two_parts_bytes = models::ModelOptions{}.two_parts_bytes;
};

class CpuExecutor final : public Executor {
 public:
  // The pool outlives the executor. Throws Error{kBadFile}, {kUnsupported}, {kBadRequest} or {kResource}.
  CpuExecutor(const std::shared_ptr<const TensorFile>& file, ThreadPool& pool,
              const CpuExecutorConfig& config);

  const ModelInfo& info() const override { return model_->info(); }
  std::vector<CacheGroupSpec> cache_groups() const override { return groups_; }
  void allocate_cache(std::span<const int32_t> num_blocks) override;
  void reserve(int32_t max_batch_tokens) override;
  void forward(const Batch& batch, LogitsSink& sink) override;
  void copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) override;

  const char* isa() const { return kernels_.name; }

 private:
  void check(const Batch& batch) const;

  const kernels::KernelTable& kernels_;
  std::unique_ptr<models::Model> model_;
  std::vector<CacheGroupSpec> groups_;
  std::vector<Pages> cache_pages_;           // per group
  std::vector<models::CacheMemory> caches_;  // views into cache_pages_
};

}  // namespace deepinfer
