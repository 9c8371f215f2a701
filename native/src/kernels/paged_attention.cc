#include "kernels/paged_attention.h"

#include <algorithm>

#include "deepinfer/status.h"

namespace deepinfer::kernels {
namespace {

constexpr int kItemsPerThread = 4;  // fewer items than this, and pieces become tasks of their own
constexpr int64_t kChunkBytes =
    256 << 10;  // a fraction of a second-level cache, the rest of which products use
constexpr int64_t kMaxLinesPerBlock = 8;  // more would crowd out the product's own loads

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

void PagedAttention::plan(const Batch& batch, int group, int first_sequence, int end_sequence) {
  batch_ = &batch;
  tables_ = &batch.groups[static_cast<size_t>(group)];
  items_.clear();
  ranges_.clear();
  item_ranges_.clear();
  num_pieces_ = 0;
  num_lines_ = 0;
  for (int s = first_sequence; s < end_sequence; ++s) {
    const BatchSequence& sequence = batch.sequences[static_cast<size_t>(s)];
    const int num_queries = sequence.num_tokens * group_size_;
    for (int first = 0; first < num_queries; first += kernels_.max_queries) {
      const int count = std::min(kernels_.max_queries, num_queries - first);
      const int end = sequence.num_computed + (first + count - 1) / group_size_ + 1;
      for (int head = 0; head < num_kv_heads_; ++head) {
        item_ranges_.push_back(static_cast<int>(ranges_.size()));
        if (first == 0) add_ranges(sequence, tables_->offsets[static_cast<size_t>(s)], head);
        items_.push_back({s, head, first, count, end, num_pieces_});
        num_pieces_ += num_pieces(end);
      }
    }
  }
  item_ranges_.push_back(static_cast<int>(ranges_.size()));
  const int threads = pool_.num_threads();
  split_ = threads > 1 && static_cast<int>(items_.size()) < threads * kItemsPerThread;
  pieces_.clear();
  chunks_.clear();
  if (split_) {
    for (size_t i = 0; i < items_.size(); ++i) {
      for (int piece = 0; piece < num_pieces(items_[i].end); ++piece)
        pieces_.emplace_back(static_cast<int>(i), piece);
    }
  } else {
    deal_chunks();
  }
  // Split: a state per piece. Otherwise two per thread: the running one and the current piece's.
  const int64_t num_states = split_ ? num_pieces_ : 2 * threads;
  if (scratch_.size() < num_states * state_bytes())
    scratch_ = Pages(num_states * state_bytes(), "attention scratch");
}

// What the cache holds of one sequence before this step, for one head.
void PagedAttention::add_ranges(const BatchSequence& sequence, int first_block, int head) {
  const int64_t token_bytes = layout_.value_offset / layout_.block_tokens;  // of keys; values have as many
  for (int at = 0; at < sequence.num_computed; at += layout_.block_tokens) {
    const int tokens = std::min(layout_.block_tokens,
                                (sequence.num_computed - at + kTileTokens - 1) / kTileTokens * kTileTokens);
    const int block = tables_->blocks[static_cast<size_t>(first_block + at / layout_.block_tokens)];
    const int64_t keys = block * block_bytes() + head * layout_.head_bytes;
    const int64_t count = tokens * token_bytes / kLineBytes;
    ranges_.push_back({keys / kLineBytes, count});
    ranges_.push_back({(keys + layout_.value_offset) / kLineBytes, count});
    num_lines_ += 2 * count;
  }
}

void PagedAttention::deal_chunks() {
  const int num_items = static_cast<int>(items_.size());
  int first = 0;
  int64_t bytes = 0;
  for (int i = 0; i < num_items; ++i) {
    const auto ranges = static_cast<size_t>(item_ranges_[static_cast<size_t>(i)]);
    const auto end_ranges = static_cast<size_t>(item_ranges_[static_cast<size_t>(i) + 1]);
    for (size_t r = ranges; r < end_ranges; ++r) bytes += ranges_[r].count * kLineBytes;
    if (bytes < kChunkBytes && i + 1 < num_items) continue;
    chunks_.push_back(
        {first, i + 1, item_ranges_[static_cast<size_t>(first)], item_ranges_[static_cast<size_t>(i) + 1]});
    first = i + 1;
    bytes = 0;
  }
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

void PagedAttention::attend_piece(const Item& item, int piece, bool is_fetched, State& state) const {
  const auto s = static_cast<size_t>(item.sequence);
  const BatchSequence& sequence = batch_->sequences[s];
  const float* queries[kMaxQueries];
  int32_t limits[kMaxQueries];
  for (int q = 0; q < item.num_queries; ++q) {
    const int token = (item.first_query + q) / group_size_;
    const int head = item.kv_head * group_size_ + (item.first_query + q) % group_size_;
    queries[q] = run_.queries + (sequence.first_token + token) * run_.query_stride + head * layout_.head_dim;
    limits[q] = sequence.num_computed + token + 1;
  }
  AttendArgs args;
  args.layout = layout_;
  args.cache = run_.layer + item.kv_head * layout_.head_bytes;
  args.block_stride = block_bytes();
  args.blocks = tables_->blocks.data() + tables_->offsets[s];
  args.queries = queries;
  args.limits = limits;
  args.num_queries = item.num_queries;
  args.prefetch = item.first_query == 0 && !is_fetched;  // later queries of the sequence find the caches warm
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
                       run_.out + (sequence.first_token + token) * run_.out_stride + head * layout_.head_dim);
  }
}

void PagedAttention::begin(const Run& run, bool is_ready, int64_t num_blocks) {
  run_ = run;
  is_ready_ = is_ready;
  const int64_t blocks = std::max<int64_t>(num_blocks, 1);
  per_block_ =
      static_cast<int>(std::clamp<int64_t>((num_lines_ + blocks - 1) / blocks, 1, kMaxLinesPerBlock));
  next_chunk_ = 0;
  workers_.assign(static_cast<size_t>(pool_.num_threads()), Worker{});
}

void PagedAttention::claim_chunk(Worker& worker) {
  const int index = next_chunk_.fetch_add(1, std::memory_order_relaxed);
  if (index >= static_cast<int>(chunks_.size())) return;
  const Chunk& chunk = chunks_[static_cast<size_t>(index)];
  worker.chunk = index;
  Upcoming& upcoming = worker.upcoming;
  if (chunk.first_range == chunk.end_range) return;  // nothing to wait for
  upcoming.base = run_.layer;
  upcoming.next = ranges_.data() + chunk.first_range + 1;
  upcoming.end = ranges_.data() + chunk.end_range;
  upcoming.at = run_.layer + upcoming.next[-1].first * kLineBytes;
  upcoming.left = upcoming.next[-1].count;
  upcoming.per_block = per_block_;
}

Upcoming& PagedAttention::turn(int worker) {
  Worker& self = workers_[static_cast<size_t>(worker)];
  if (self.chunk < 0) {
    claim_chunk(self);
  } else if (is_ready_ && self.upcoming.per_block == 0) {
    const Chunk& chunk = chunks_[static_cast<size_t>(self.chunk)];
    for (int i = chunk.first_item; i < chunk.end_item; ++i)
      attend_item(items_[static_cast<size_t>(i)], worker, true);
    self.chunk = -1;
    claim_chunk(self);
  }
  return self.upcoming;
}

void PagedAttention::finish() {
  if (split_) return attend_split();
  open_items_.clear();
  const auto reopen = [&](int index) {
    const Chunk& chunk = chunks_[static_cast<size_t>(index)];
    for (int i = chunk.first_item; i < chunk.end_item; ++i) open_items_.push_back(i);
  };
  for (const Worker& worker : workers_) {
    if (worker.chunk >= 0) reopen(worker.chunk);
  }
  for (int index = next_chunk_; index < static_cast<int>(chunks_.size()); ++index) reopen(index);
  pool_.parallel_for(static_cast<int>(open_items_.size()), 1, [&](int index, int worker) {
    attend_item(items_[static_cast<size_t>(open_items_[static_cast<size_t>(index)])], worker, false);
  });
}

void PagedAttention::attend_item(const Item& item, int worker, bool is_fetched) const {
  const int64_t bytes = state_bytes();
  State running = state_at(scratch_.data() + 2 * worker * bytes);
  State current = state_at(scratch_.data() + (2 * worker + 1) * bytes);
  attend_piece(item, 0, is_fetched, running);
  for (int piece = 1; piece < num_pieces(item.end); ++piece) {
    attend_piece(item, piece, is_fetched, current);
    merge_into(item, piece, current, running);
  }
  write_out(item, running);
}

void PagedAttention::attend_split() {
  const int64_t bytes = state_bytes();
  pool_.parallel_for(static_cast<int>(pieces_.size()), 1, [&](int index, int) {
    const auto [item_index, piece] = pieces_[static_cast<size_t>(index)];
    const Item& item = items_[static_cast<size_t>(item_index)];
    State state = state_at(scratch_.data() + (item.first_piece + piece) * bytes);
    attend_piece(item, piece, false, state);
  });
  pool_.parallel_for(static_cast<int>(items_.size()), 1, [&](int index, int) {
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
