// Block-granular cache bookkeeping. Memory belongs to the executor; this side owns numbers only.
//
// A model declares cache groups: kinds of state that are allocated together for a run of
// `block_tokens` tokens. A llama has one group. A model with window rings, compressed rows and index
// keys has several, each with its own pool and its own block table per sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer {

enum class CacheKind : uint8_t {
  kPaged,     // grows with the context: one block per block_tokens tokens; shareable by content
  kSequence,  // constant size per sequence (rings, pending rows): one block per sequence
};

struct CacheGroupSpec {
  std::string name;
  CacheKind kind = CacheKind::kPaged;
  int block_tokens = 32;    // tokens per block (kPaged)
  int64_t block_bytes = 0;  // bytes per block, all layers together
};

}  // namespace deepinfer
