// Causal attention of a batch over one paged cache group, split over the pool.
//
// Work is cut into (sequence, kv head, few queries) and, when that is too little for the threads, into pieces
// of 256 positions. Pieces are merged in order either way, so the cut never changes a bit.
//
// Keys and values of many sequences come from memory, more slowly than they are used, while products hardly
// need memory. So a run can be side work of products: its items are dealt in chunks whose keys and values fit
// into a second-level cache; a thread asks for those of one chunk while it multiplies, then attends to it.
#pragma once

#include <atomic>
#include <vector>

#include "base/pages.h"
#include "deepinfer/batch.h"
#include "deepinfer/threads.h"
#include "kernels/linear.h"

namespace deepinfer::kernels {

// Byte layout of one kv head inside one block of one layer.
KvLayout make_kv_layout(KvType type, int head_dim, int block_tokens);

class PagedAttention final : public SideWork {
 public:
  PagedAttention(const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout, int num_heads,
                 int num_kv_heads, int num_layers);

  // A block is [num_layers][num_kv_heads] of `layout`.
  int64_t layer_bytes() const { return layout_.head_bytes * num_kv_heads_; }
  int64_t block_bytes() const { return layer_bytes() * num_layers_; }

  // Cuts the work of these sequences of the batch; valid for all layers of one forward().
  void plan(const Batch& batch, int group, int first_sequence, int end_sequence);

  // Writes keys and values of token `token`: [num_kv_heads][head_dim] each. layer: its part of block 0.
  void store(std::byte* layer, int token, const float* keys, const float* values) const;

  // queries: [num_tokens] rows of [num_heads][head_dim], scaled, `query_stride` apart; out: the same with
  // `out_stride`. layer: its part of block 0.
  struct Run {
    const std::byte* layer;
    const float* queries;
    int64_t query_stride;
    float* out;
    int64_t out_stride;
  };
  // Begins a run whose chunks, once `is_ready`, are done between products of so many blocks; before it, the
  // first chunks are only asked for. finish() does what is left.
  void begin(const Run& run, bool is_ready, int64_t num_blocks);
  Upcoming& turn(int worker) override;
  void finish();

 private:
  struct Item {
    int sequence;
    int kv_head;
    int first_query;  // counts (token of the sequence's chunk, head of the group)
    int num_queries;
    int end;          // positions that its last query sees
    int first_piece;  // index of its first piece in the scratch, when split
  };
  struct Chunk {
    int first_item, end_item;
    int first_range, end_range;
  };
  struct alignas(64) Worker {
    int chunk = -1;  // claimed, not done
    Upcoming upcoming;
  };
  struct State;  // what one piece leaves behind

  void add_ranges(const BatchSequence& sequence, int first_block, int head);
  void deal_chunks();
  void claim_chunk(Worker& worker);
  void attend_item(const Item& item, int worker, bool is_fetched) const;
  void attend_split();
  void attend_piece(const Item& item, int piece, bool is_fetched, State& state) const;
  void merge_into(const Item& item, int piece, const State& state, State& into) const;
  void write_out(const Item& item, const State& state) const;
  State state_at(std::byte* memory) const;
  int64_t state_bytes() const;

  const KernelTable& kernels_;
  ThreadPool& pool_;
  KvLayout layout_;
  int num_kv_heads_, group_size_, num_layers_;

  const Batch* batch_ = nullptr;
  const BlockTables* tables_ = nullptr;
  std::vector<Item> items_;
  int num_pieces_ = 0;  // over all items
  bool split_ = false;
  std::vector<std::pair<int, int>> pieces_;  // (item, piece), when split
  std::vector<Chunk> chunks_;                // none when split
  std::vector<LineRange> ranges_;            // keys and values, from the layer's part of block 0
  std::vector<int> item_ranges_;             // [items + 1] where each item's ranges begin
  int64_t num_lines_ = 0;                    // of all ranges
  Pages scratch_;

  Run run_ = {};  // in progress
  bool is_ready_ = false;
  int per_block_ = 0;
  std::atomic<int> next_chunk_ = 0;
  std::vector<Worker> workers_;
  std::vector<int> open_items_;  // of finish()
};

}  // namespace deepinfer::kernels
