#include "executor/cpu_executor.h"

#include <cstring>

#include "base/free_memory.h"
#include "deepinfer/status.h"
#include "kernels/dispatch.h"

namespace deepinfer {
namespace {

kernels::KvType parse_kv_type(const std::string& name) {
  if (name == "f16") return kernels::KvType::kF16;
  if (name == "bf16") return kernels::KvType::kBF16;
  if (name == "f32") return kernels::KvType::kF32;
  if (name == "int8") return kernels::KvType::kI8;
  fail(ErrorCode::kBadRequest, "unknown kv_dtype \"", name, "\"; it is one of f16, bf16, f32, int8");
}

models::ModelOptions model_options(const CpuExecutorConfig& config, const kernels::KernelTable& table,
                                   ThreadPool& pool) {
  if (config.block_tokens < kernels::kTileTokens || config.block_tokens % kernels::kTileTokens != 0) {
    fail(ErrorCode::kBadRequest, "kv_block_tokens ", config.block_tokens, " is not a positive multiple of ",
         kernels::kTileTokens);
  }
  models::ModelOptions options;
  options.precision = kernels::parse_precision(config.precision);
  if (!(config.residual_threshold >= 0.0f)) {
    fail(ErrorCode::kBadRequest, "residual_threshold ", config.residual_threshold, " is not at least 0");
  }
  options.residual_threshold = config.residual_threshold;
  options.kv_type = parse_kv_type(config.kv_dtype);
  options.block_tokens = config.block_tokens;
  options.two_parts_rows = config.two_parts_rows;
  options.two_parts_bytes = config.two_parts_bytes;
  options.kernels = &table;
  options.pool = &pool;
  return options;
}

}  // namespace

CpuExecutor::CpuExecutor(const std::shared_ptr<const TensorFile>& file, ThreadPool& pool,
                         const CpuExecutorConfig& config)
    : kernels_(kernels::table_for(config.isa)),
      model_(models::create_model(file, model_options(config, kernels_, pool))),
      groups_(model_->cache_groups()) {}

void CpuExecutor::allocate_cache(std::span<const int32_t> num_blocks) {
  DI_CHECK(num_blocks.size() == groups_.size(), num_blocks.size());
  int64_t total = 0;
  for (size_t g = 0; g < groups_.size(); ++g) total += num_blocks[g] * groups_[g].block_bytes;
  const int64_t available = available_memory_bytes();
  if (total > available) {
    fail(ErrorCode::kResource, "the key-value cache needs ", total / (1 << 20), " MiB and ",
         available / (1 << 20), " MiB of memory are available; kv_cache_bytes makes it smaller");
  }
  cache_pages_.clear();
  caches_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    cache_pages_.emplace_back(num_blocks[g] * groups_[g].block_bytes, "the key-value cache");
    caches_.push_back({cache_pages_.back().data(), num_blocks[g]});
  }
}

void CpuExecutor::reserve(int32_t max_batch_tokens) {
  DI_CHECK(max_batch_tokens >= 1, max_batch_tokens);
  model_->reserve(max_batch_tokens);
}

void CpuExecutor::forward(const Batch& batch, LogitsSink& sink) {
  DI_CHECK(caches_.size() == groups_.size(), "allocate_cache() comes first");
  check(batch);
  model_->forward(batch, caches_, sink);
}

// The engine's promises, recounted: a wrong index here would read or write foreign memory.
void CpuExecutor::check(const Batch& batch) const {
  const size_t num_tokens = batch.tokens.size();
  DI_CHECK(batch.positions.size() == num_tokens && batch.token_sequences.size() == num_tokens);
  DI_CHECK(batch.groups.size() == groups_.size());
  for (const int32_t token : batch.tokens) DI_CHECK(token >= 0 && token < info().vocab_size, token);
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    DI_CHECK(sequence.first_token >= 0 && sequence.num_tokens >= 1 && sequence.num_computed >= 0);
    DI_CHECK(static_cast<size_t>(sequence.first_token) + static_cast<size_t>(sequence.num_tokens) <=
             num_tokens);
    const int64_t end = int64_t{sequence.num_computed} + sequence.num_tokens;
    DI_CHECK(end <= info().max_positions, end);
    for (int32_t i = 0; i < sequence.num_tokens; ++i) {
      const auto t = static_cast<size_t>(sequence.first_token + i);
      DI_CHECK(batch.positions[t] == sequence.num_computed + i &&
               batch.token_sequences[t] == static_cast<int32_t>(s));
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      const BlockTables& tables = batch.groups[g];
      DI_CHECK(tables.offsets.size() == batch.sequences.size() + 1);
      const int64_t num_blocks = tables.offsets[s + 1] - tables.offsets[s];
      if (groups_[g].kind == CacheKind::kPaged) DI_CHECK(num_blocks * groups_[g].block_tokens >= end);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int32_t block : batch.groups[g].blocks)
      DI_CHECK(block >= 0 && block < caches_[g].num_blocks, block);
  }
  for (const int32_t token : batch.logit_tokens)
    DI_CHECK(token >= 0 && static_cast<size_t>(token) < num_tokens);
}

void CpuExecutor::copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) {
  const auto g = static_cast<size_t>(group);
  DI_CHECK(g < caches_.size(), group);
  const int64_t bytes = groups_[g].block_bytes;
  for (const auto& [source, destination] : pairs) {
    DI_CHECK(source >= 0 && source < caches_[g].num_blocks && destination >= 0 &&
             destination < caches_[g].num_blocks);
    if (source == destination) continue;
    std::memcpy(caches_[g].data + destination * bytes, caches_[g].data + source * bytes,
                static_cast<size_t>(bytes));
  }
}

}  // namespace deepinfer
