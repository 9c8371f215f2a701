#include "batch/batch_builder.h"

namespace deepinfer {
namespace {

// Only the blocks that the step reads or writes: those held in advance for later tokens stay out.
size_t num_blocks_in_use(const CacheGroupSpec& group, int32_t num_tokens) {
  if (group.kind == CacheKind::kSequence) return 1;
  return static_cast<size_t>((num_tokens + group.block_tokens - 1) / group.block_tokens);
}

}  // namespace

void build_batch(std::span<const ScheduledWork> work, const KvManager& kv, Batch& batch) {
  batch.tokens.clear();
  batch.positions.clear();
  batch.token_sequences.clear();
  batch.sequences.clear();
  batch.logit_tokens.clear();
  batch.groups.resize(kv.groups().size());
  for (BlockTables& tables : batch.groups) {
    tables.blocks.clear();
    tables.offsets.assign(1, 0);
  }
  for (const auto& [sequence, num_tokens] : work) {
    const int32_t begin = sequence->num_computed, end = begin + num_tokens;
    const int32_t index = static_cast<int32_t>(batch.sequences.size());
    batch.sequences.push_back({batch.num_tokens(), num_tokens, begin});
    for (int32_t position = begin; position < end; ++position) {
      batch.tokens.push_back(sequence->tokens[static_cast<size_t>(position)]);
      batch.positions.push_back(position);
      batch.token_sequences.push_back(index);
    }
    for (size_t g = 0; g < batch.groups.size(); ++g) {
      const std::vector<int32_t>& held = sequence->blocks.groups[g].blocks;
      BlockTables& tables = batch.groups[g];
      const auto used = static_cast<std::ptrdiff_t>(num_blocks_in_use(kv.groups()[g], end));
      tables.blocks.insert(tables.blocks.end(), held.begin(), held.begin() + used);
      tables.offsets.push_back(static_cast<int32_t>(tables.blocks.size()));
    }
  }
}

}  // namespace deepinfer
