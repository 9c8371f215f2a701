// Causal attention of a batch over one paged cache group, split over the pool.
//
// Work is cut into (sequence, kv head, few queries) and, when that is too little for the threads, into pieces
// of 256 positions. Pieces are merged in order either way, so the cut never changes a bit.
#pragma once

#include <vector>

#include "base/pages.h"
#include "deepinfer/batch.h"
#include "deepinfer/threads.h"
#include "kernels/kernels.h"

namespace deepinfer::kernels {

// Byte layout of one kv head inside one block of one layer.
KvLayout make_kv_layout(KvType type, int head_dim, int block_tokens);

class PagedAttention {
 public:
  PagedAttention(const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout, int num_heads,
                 int num_kv_heads, int num_layers);

  // A block is [num_layers][num_kv_heads] of `layout`.
  int64_t layer_bytes() const { return layout_.head_bytes * num_kv_heads_; }
  int64_t block_bytes() const { return layer_bytes() * num_layers_; }

  // Cuts the batch's work; valid for all layers of one forward().
  void plan(const Batch& batch, int group);

  // Writes keys and values of token `token`: [num_kv_heads][head_dim] each. layer: its part of block 0.
  void store(std::byte* layer, int token, const float* keys, const float* values) const;

  // queries: [num_tokens] rows of [num_heads][head_dim], scaled, `query_stride` apart; out: the same with
  // `out_stride`. layer: its part of block 0.
  void run(const std::byte* layer, const float* queries, int64_t query_stride, float* out,
           int64_t out_stride);

 private:
  struct Item {
    int sequence;
    int kv_head;
    int first_query;  // counts (token of the sequence's chunk, head of the group)
    int num_queries;
    int end;          // positions that its last query sees
    int first_piece;  // index of its first piece in the scratch, when split
  };
  struct State;  // what one piece leaves behind

  void attend_piece(const Item& item, int piece, const std::byte* layer, State& state) const;
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
  Pages scratch_;

  const float* queries_ = nullptr;  // of the run in progress
  int64_t query_stride_ = 0;
  float* out_ = nullptr;
  int64_t out_stride_ = 0;
};

}  // namespace deepinfer::kernels
