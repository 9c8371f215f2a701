#include "executor/fake_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr int64_t kSequenceCells = 3;  // hash low, hash high, number of tokens
constexpr uint64_t kNanHistory = std::numeric_limits<uint64_t>::max();

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

uint64_t extend(uint64_t hash, int32_t token) {
  return mix(hash + 0x9E3779B97F4A7C15ull + static_cast<uint32_t>(token));
}

}  // namespace

FakeExecutor::FakeExecutor(FakeExecutorConfig config) : config_(std::move(config)) {
  if (config_.groups.empty()) config_.groups.push_back({"fake", CacheKind::kPaged, config_.block_tokens, 0});
  for (size_t g = 0; g < config_.groups.size(); ++g) config_.groups[g].block_bytes = cells_per_block(g) * 4;
  info_.family = info_.name = "fake";
  info_.vocab_size = config_.vocab_size;
  info_.max_positions = config_.max_positions;
}

int64_t FakeExecutor::cells_per_block(size_t group) const {
  const CacheGroupSpec& spec = config_.groups[group];
  return spec.kind == CacheKind::kPaged ? spec.block_tokens : kSequenceCells;
}

void FakeExecutor::allocate_cache(std::span<const int32_t> num_blocks) {
  DI_CHECK(num_blocks.size() == config_.groups.size() && cells_.empty());
  for (size_t g = 0; g < num_blocks.size(); ++g)
    cells_.emplace_back(static_cast<size_t>(num_blocks[g] * cells_per_block(g)), kUnwritten);
}

int64_t FakeExecutor::cell(const Batch& batch, size_t group, int32_t sequence, int32_t position) const {
  const BlockTables& tables = batch.groups[group];
  const CacheGroupSpec& spec = config_.groups[group];
  const bool is_paged = spec.kind == CacheKind::kPaged;
  const int32_t slot =
      tables.offsets[static_cast<size_t>(sequence)] + (is_paged ? position / spec.block_tokens : 0);
  DI_CHECK(slot < tables.offsets[static_cast<size_t>(sequence) + 1], "position ", position, " has no block");
  return tables.blocks[static_cast<size_t>(slot)] * cells_per_block(group) +
         (is_paged ? position % spec.block_tokens : 0);
}

void FakeExecutor::write_token(const Batch& batch, int32_t token_index) {
  const size_t t = static_cast<size_t>(token_index);
  const int32_t sequence = batch.token_sequences[t], position = batch.positions[t];
  for (size_t g = 0; g < cells_.size(); ++g) {
    int32_t* at = &cells_[g].at(static_cast<size_t>(cell(batch, g, sequence, position)));
    if (config_.groups[g].kind == CacheKind::kPaged) {
      *at = batch.tokens[t];
      continue;
    }
    if (position == 0) std::fill(at, at + kSequenceCells, 0);
    DI_CHECK(at[2] == position, "per-sequence state after ", at[2], " tokens meets position ", position);
    const uint64_t old = static_cast<uint32_t>(at[0]) | static_cast<uint64_t>(static_cast<uint32_t>(at[1]))
                                                            << 32;
    const uint64_t hash = extend(old, batch.tokens[t]);
    at[0] = static_cast<int32_t>(hash);
    at[1] = static_cast<int32_t>(hash >> 32);
    at[2] = position + 1;
  }
}

// Every group contributes, so that an error in any of them shows.
uint64_t FakeExecutor::history(const Batch& batch, int32_t token_index) const {
  const int32_t sequence = batch.token_sequences[static_cast<size_t>(token_index)];
  const int32_t last = batch.positions[static_cast<size_t>(token_index)];
  uint64_t hash = mix(config_.seed + 1);
  for (size_t g = 0; g < cells_.size(); ++g) {
    if (config_.groups[g].kind == CacheKind::kSequence) {
      const int32_t* at = &cells_[g].at(static_cast<size_t>(cell(batch, g, sequence, last)));
      hash = extend(extend(hash, at[0]), at[1]);
      continue;
    }
    for (int32_t position = 0; position <= last; ++position) {
      const int32_t token = cells_[g][static_cast<size_t>(cell(batch, g, sequence, position))];
      if (token == config_.nan_token && token >= 0) return kNanHistory;
      hash = extend(hash, token);
    }
  }
  return hash;
}

void FakeExecutor::fill_logits(uint64_t history, float* logits) const {
  if (history == kNanHistory) {
    std::fill(logits, logits + config_.vocab_size, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  for (int32_t v = 0; v < config_.vocab_size; ++v) {
    // The sum of two uniform numbers: a few tokens stand out, as with a real model.
    const uint64_t bits = mix(history ^ (static_cast<uint64_t>(v) * 0x9E3779B97F4A7C15ull));
    const auto sum = static_cast<int32_t>(bits >> 40) + static_cast<int32_t>((bits >> 16) & 0xFFFFFF);
    logits[v] = (static_cast<float>(sum) * 0x1p-24f - 1.0f) * config_.logit_scale;
  }
  for (const int32_t eos : config_.eos_token_ids) logits[eos] += config_.eos_bias;
}

void FakeExecutor::forward(const Batch& batch, LogitsSink& sink) {
  DI_CHECK(batch.num_tokens() > 0 && batch.num_tokens() <= max_batch_tokens_);
  const int64_t step = num_steps_++;
  if (config_.seconds_per_token > 0)
    std::this_thread::sleep_for(
        std::chrono::duration<double>(config_.seconds_per_token * batch.num_tokens()));
  if (config_.fail_at_step >= 0 && step >= config_.fail_at_step &&
      step < config_.fail_at_step + config_.num_failing_steps)
    fail(ErrorCode::kResource, "the device failed at step ", step);
  // Token by token: the running state of a per-sequence group is right only at its own token.
  std::vector<uint64_t> histories;
  size_t next_row = 0;
  for (int32_t t = 0; t < batch.num_tokens(); ++t) {
    write_token(batch, t);
    if (next_row < batch.logit_tokens.size() && batch.logit_tokens[next_row] == t) {
      histories.push_back(history(batch, t));
      ++next_row;
    }
  }
  DI_CHECK(next_row == batch.logit_tokens.size(), "logit_tokens must be ascending indices of tokens");
  const int num_rows = batch.num_logit_rows(), vocab = config_.vocab_size;
  logits_.resize(static_cast<size_t>(config_.strip_rows) * static_cast<size_t>(vocab));
  for (int first = 0; first < num_rows; first += config_.strip_rows) {
    const int count = std::min(config_.strip_rows, num_rows - first);
    for (int i = 0; i < count; ++i)
      fill_logits(histories[static_cast<size_t>(first + i)],
                  logits_.data() + static_cast<size_t>(i) * static_cast<size_t>(vocab));
    sink.consume(first, count, logits_.data());
  }
}

void FakeExecutor::copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) {
  const int64_t size = cells_per_block(static_cast<size_t>(group));
  std::vector<int32_t>& cells = cells_[static_cast<size_t>(group)];
  for (const auto& [source, destination] : pairs)
    std::copy_n(cells.begin() + source * size, size, cells.begin() + destination * size);
}

}  // namespace deepinfer
