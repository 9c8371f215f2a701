// What the CPU executor needs of a model family. A family is a folder that implements this and a line in
// registry.cc; nothing else knows it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/batch.h"
#include "deepinfer/executor.h"
#include "deepinfer/kv_cache.h"
#include "deepinfer/tensor_file.h"
#include "deepinfer/threads.h"
#include "kernels/kernels.h"
#include "kernels/matrix.h"

namespace deepinfer::models {

struct ModelOptions {
  kernels::Precision precision = kernels::Precision::kPrecise;
  float residual_threshold = kernels::kDefaultResidualThreshold;  // of kPrecise
  kernels::KvType kv_type = kernels::KvType::kF16;
  int block_tokens = 32;  // multiple of 16
  // A batch of at least so many rows whose attention reads at least so many bytes in a layer goes through the
  // layers in two parts: one attends while the other multiplies. Never changes results.
  int two_parts_rows = 48;
  int64_t two_parts_bytes = 2 << 20;
  const kernels::KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
};

// The memory of one cache group. All layers of a block lie together: a new row touches one range of memory
// (clearing fresh pages is a good part of a short run), and copying a block is one copy.
struct CacheMemory {
  std::byte* data = nullptr;  // [num_blocks][CacheGroupSpec::block_bytes]
  int num_blocks = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::vector<CacheGroupSpec> cache_groups() const = 0;
  // Plans buffers for batches of up to this many tokens.
  virtual void reserve(int max_tokens) = 0;
  // caches: one per group. The batch has been checked by the executor.
  virtual void forward(const Batch& batch, std::span<const CacheMemory> caches, LogitsSink& sink) = 0;
};

// Binds and packs the weights of `file`. Throws Error{kBadFile} or Error{kUnsupported}, one sentence.
std::unique_ptr<Model> create_model(const std::shared_ptr<const TensorFile>& file,
                                    const ModelOptions& options);

// Architectures that create_model accepts, as the files name them.
std::vector<std::string> supported_architectures();

// The architecture that a file names, "" when it names none.
std::string architecture_of(const TensorFile& file);

}  // namespace deepinfer::models
