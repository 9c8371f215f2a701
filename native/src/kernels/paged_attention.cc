#include "kernels/paged_attention.h"

#include <algorithm>
#include <cstring>

#include "deepinfer/status.h"

namespace deepinfer::kernels {
namespace {

constexpr int kItemsPerThread = 4;  // fewer items than this, and pieces become tasks of their own

int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int num_pieces(int end) { return (end + kPieceTokens - 1) / kPieceTokens; }

}  // namespace

// Views into one state's memory.
struct PagedAttention::State {
  float* sums;     // [kMaxQueries][head_dim]
  float* maxima;   // [kMaxQueries]
  float* weights;  // [kMaxQueries]
};

KvLayout make_kv_layout(KvType type, int head_dim, int block_tokens) {
  DI_CHECK(head_dim % kLanes == 0 && head_dim <= kMaxHeadDim, head_dim);
  DI_CHECK(block_tokens % kTileTokens == 0 && block_tokens > 0, block_tokens);
  int64_t element = 2;
  if (type == KvType::kF32) element = 4;
  if (type == KvType::kI8) element = 1;
  KvLayout layout;
  layout.type = type;
  layout.head_dim = head_dim;
  layout.block_tokens = block_tokens;
  layout.value_offset = element * head_dim * block_tokens;
  layout.key_scale_offset = 2 * layout.value_offset;
  layout.value_scale_offset = layout.key_scale_offset;
  layout.head_bytes = 2 * layout.value_offset;
  if (type == KvType::kI8) {
    layout.value_scale_offset += 4 * block_tokens;
    layout.head_bytes += 8 * block_tokens;
  }
  layout.head_bytes = align64(layout.head_bytes);
  return layout;
}

PagedAttention::PagedAttention(const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout,
                               int num_heads, int num_kv_heads, int num_layers)
    : kernels_(kernels),
      pool_(pool),
      layout_(layout),
      num_kv_heads_(num_kv_heads),
      group_size_(num_heads / num_kv_heads),
      num_layers_(num_layers) {
  DI_CHECK(num_heads % num_kv_heads == 0, num_heads, " ", num_kv_heads);
}

int64_t PagedAttention::state_bytes() const {
  return align64(int64_t{kMaxQueries} * (layout_.head_dim + 2) * static_cast<int64_t>(sizeof(float)));
}

PagedAttention::State PagedAttention::state_at(std::byte* memory) const {
  auto* sums = reinterpret_cast<float*>(memory);
  float* maxima = sums + kMaxQueries * layout_.head_dim;
  return {sums, maxima, maxima + kMaxQueries};
}

void PagedAttention::plan(const Batch& batch, int group) {
  batch_ = &batch;
  tables_ = &batch.groups[static_cast<size_t>(group)];
  items_.clear();
  num_pieces_ = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    const int num_queries = sequence.num_tokens * group_size_;
    for (int first = 0; first < num_queries; first += kernels_.max_queries) {
      const int count = std::min(kernels_.max_queries, num_queries - first);
      const int end = sequence.num_computed + (first + count - 1) / group_size_ + 1;
      for (int head = 0; head < num_kv_heads_; ++head) {
        items_.push_back({static_cast<int>(s), head, first, count, end, num_pieces_});
        num_pieces_ += num_pieces(end);
      }
    }
  }
  const int threads = pool_.num_threads();
  split_ = threads > 1 && static_cast<int>(items_.size()) < threads * kItemsPerThread;
  pieces_.clear();
  if (split_) {
    for (size_t i = 0; i < items_.size(); ++i) {
      for (int piece = 0; piece < num_pieces(items_[i].end); ++piece)
        pieces_.emplace_back(static_cast<int>(i), piece);
    }
  }
  // Split: a state per piece. Otherwise two per thread: the running one and the current piece's.
  const int64_t num_states = split_ ? num_pieces_ : 2 * threads;
  if (scratch_.size() < num_states * state_bytes())
    scratch_ = Pages(num_states * state_bytes(), "attention scratch");
}

void PagedAttention::store(std::byte* layer, int token, const float* keys, const float* values) const {
  const auto t = static_cast<size_t>(token);
  const int sequence = batch_->token_sequences[t], position = batch_->positions[t];
  const int first_block = tables_->offsets[static_cast<size_t>(sequence)];
  const int block = tables_->blocks[static_cast<size_t>(first_block + position / layout_.block_tokens)];
  std::byte* block_data = layer + block * block_bytes();
  for (int head = 0; head < num_kv_heads_; ++head) {
    kernels_.store_kv(layout_, block_data + head * layout_.head_bytes, position % layout_.block_tokens,
                      keys + head * layout_.head_dim, values + head * layout_.head_dim);
  }
}

void PagedAttention::attend_piece(const Item& item, int piece, const std::byte* layer, State& state) const {
  const auto s = static_cast<size_t>(item.sequence);
  const BatchSequence& sequence = batch_->sequences[s];
  const float* queries[kMaxQueries];
  int32_t limits[kMaxQueries];
  for (int q = 0; q < item.num_queries; ++q) {
    const int token = (item.first_query + q) / group_size_;
    const int head = item.kv_head * group_size_ + (item.first_query + q) % group_size_;
    queries[q] = queries_ + (sequence.first_token + token) * query_stride_ + head * layout_.head_dim;
    limits[q] = sequence.num_computed + token + 1;
  }
  AttendArgs args;
  args.layout = layout_;
  args.cache = layer + item.kv_head * layout_.head_bytes;
  args.block_stride = block_bytes();
  args.blocks = tables_->blocks.data() + tables_->offsets[s];
  args.queries = queries;
  args.limits = limits;
  args.num_queries = item.num_queries;
  args.prefetch = item.first_query == 0;  // later queries of the sequence find the caches warm
  args.begin = piece * kPieceTokens;
  args.end = std::min(args.begin + kPieceTokens, item.end);
  args.sums = state.sums;
  args.maxima = state.maxima;
  args.weights = state.weights;
  kernels_.attend(args);
}

void PagedAttention::merge_into(const Item& item, int piece, const State& state, State& into) const {
  const BatchSequence& sequence = batch_->sequences[static_cast<size_t>(item.sequence)];
  const int dim = layout_.head_dim;
  for (int q = 0; q < item.num_queries; ++q) {
    const int limit = sequence.num_computed + (item.first_query + q) / group_size_ + 1;
    if (limit <= piece * kPieceTokens) continue;  // this query sees nothing of the piece
    kernels_.merge(state.sums + q * dim, state.maxima[q], state.weights[q], dim, into.sums + q * dim,
                   into.maxima + q, into.weights + q);
  }
}

void PagedAttention::write_out(const Item& item, const State& state) const {
  const BatchSequence& sequence = batch_->sequences[static_cast<size_t>(item.sequence)];
  for (int q = 0; q < item.num_queries; ++q) {
    const int token = (item.first_query + q) / group_size_;
    const int head = item.kv_head * group_size_ + (item.first_query + q) % group_size_;
    kernels_.normalise(state.sums + q * layout_.head_dim, state.weights[q], layout_.head_dim,
                       out_ + (sequence.first_token + token) * out_stride_ + head * layout_.head_dim);
  }
}

void PagedAttention::run(const std::byte* layer, const float* queries, int64_t query_stride, float* out,
                         int64_t out_stride) {
  queries_ = queries;
  query_stride_ = query_stride;
  out_ = out;
  out_stride_ = out_stride;
  const int num_items = static_cast<int>(items_.size());
  const int64_t bytes = state_bytes();
  if (!split_) {
    pool_.parallel_for(num_items, 1, [&](int index, int worker) {
      const Item& item = items_[static_cast<size_t>(index)];
      State running = state_at(scratch_.data() + 2 * worker * bytes);
      State current = state_at(scratch_.data() + (2 * worker + 1) * bytes);
      attend_piece(item, 0, layer, running);
      for (int piece = 1; piece < num_pieces(item.end); ++piece) {
        attend_piece(item, piece, layer, current);
        merge_into(item, piece, current, running);
      }
      write_out(item, running);
    });
    return;
  }
  pool_.parallel_for(static_cast<int>(pieces_.size()), 1, [&](int index, int) {
    const auto [item_index, piece] = pieces_[static_cast<size_t>(index)];
    const Item& item = items_[static_cast<size_t>(item_index)];
    State state = state_at(scratch_.data() + (item.first_piece + piece) * bytes);
    attend_piece(item, piece, layer, state);
  });
  pool_.parallel_for(num_items, 1, [&](int index, int) {
    const Item& item = items_[static_cast<size_t>(index)];
    State running = state_at(scratch_.data() + item.first_piece * bytes);
    for (int piece = 1; piece < num_pieces(item.end); ++piece) {
      const State current = state_at(scratch_.data() + (item.first_piece + piece) * bytes);
      merge_into(item, piece, current, running);
    }
    write_out(item, running);
  });
}

}  // namespace deepinfer::kernels
