// The table of kernels: one per instruction-set level, chosen once at run time.
//
// Every level computes the same bits. What fixes them: a vector is 16 lanes wide whatever the registers are;
// output columns are lanes and each output is one chain over k in file order; integers are exact inside a
// block of 32; reductions along a row are 16 lane sums and a written-out tree; multiply-adds are explicit.
// The scalar level is the specification and the twin that tests compare the others with.
//
// This header is included by sources compiled for wider instruction sets: plain data only, no functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer::kernels {

constexpr int kLanes = 16;       // columns of a panel, lanes of a vector
constexpr int kBlock = 32;       // elements of k that share an activation scale
constexpr int kMaxTileRows = 8;  // rows of activations multiplied together
constexpr int kMaxQueries = 8;   // queries that share loads of keys and values
constexpr int kMaxHeadDim = 256;
constexpr int kTileTokens = 16;    // tokens of one key tile
constexpr int kPieceTokens = 256;  // tokens whose softmax has one maximum; pieces are merged in order

// How a product of activations and weights is computed.
enum class Arithmetic : uint8_t {
  kInt8,          // activations int8 per block of 32, weights as stored
  kInt8Residual,  // the same with int16 activations in blocks that hold a large value
  kBf16,          // both bf16, fp32 sums: odd element of each pair first, then the even one
  kFp32,          // both fp32
};
constexpr int kNumArithmetics = 4;

// Packed weights: panels of 16 columns, all of k, block after block (see pack.cc for the byte layout).
enum class PackFormat : uint8_t {
  kNibbleD16,   // w = d * (code - offset), d half; 4-bit codes
  kNibbleDM16,  // w = d * code + m, both half
  kNibbleDM32,  // w = d * code + m, both fp32
  kByteD16,     // the same three with 8-bit codes
  kByteDM16,
  kByteDM32,
  kByteSub16,  // w = d[k / 16] * (code - offset), two fp32 d per block
  kPairBf16,   // bf16, pairs of k interleaved
  kF32,
};
constexpr int kNumPackFormats = 9;

struct PackedView {
  const std::byte* data = nullptr;  // [num_panels][panel_bytes], 64-byte aligned
  int64_t panel_bytes = 0;
  int num_panels = 0;
  int n = 0;  // columns that exist; the last panel may hold padding
  int k = 0;
  PackFormat format = PackFormat::kF32;
  Arithmetic arithmetic = Arithmetic::kFp32;  // of its products
  float offset = 0;                           // of kNibbleD16, kByteD16, kByteSub16

  int64_t num_bytes() const { return num_panels * panel_bytes; }
};

// Activations in the order the multiply loops read them: tiles of rows, then k, then the rows of the tile.
// A tile of r rows starts at element first_row * k. int8: blocks of 32 k; bf16: pairs; fp32: single k.
struct ActivationView {
  Arithmetic arithmetic = Arithmetic::kFp32;
  int num_rows = 0;
  int k = 0;
  int num_tiles = 0;       // tile t has num_rows / num_tiles rows, the first num_rows % num_tiles one more
  void* values = nullptr;  // [num_rows * k] int8, fp32, or bf16 in as many bytes as the level likes
  // kInt8 and kInt8Residual only, [k / 32][rows of the tile] per tile, tile at first_row * (k / 32):
  float* scale = nullptr;
  float* scaled_sum = nullptr;       // scale * sum of the block's codes
  float* scaled_sum_low = nullptr;   // ... of its first 16 codes; null where no weight is kByteSub16
  float* scaled_sum_high = nullptr;  // ... of its last 16; likewise
  // kInt8Residual only. A value is scale * (code + residual / 256); a block of a row has residuals if its
  // largest magnitude is above residual_threshold times the row's root mean square, else they are zeros.
  float residual_threshold = 0;
  int8_t* residuals = nullptr;      // like values
  uint8_t* has_residual = nullptr;  // like scale, and 8 bytes more that are read and ignored
};

struct GemmOutput {
  float* y = nullptr;       // [num_rows, stride]
  int64_t stride = 0;       // elements
  bool accumulate = false;  // y += instead of y =
};

// Cache storage of one (layer, block, kv head): keys transposed in tiles of 16 tokens [tile][dim][16], values
// [token][dim], and for kI8 a scale per token for each.
enum class KvType : uint8_t { kF16, kBF16, kF32, kI8 };
constexpr int kNumKvTypes = 4;
struct KvLayout {
  KvType type = KvType::kF16;
  int head_dim = 0;          // multiple of 16
  int block_tokens = 0;      // multiple of 16
  int64_t value_offset = 0;  // bytes from the start of the head's part of a block
  int64_t key_scale_offset = 0;
  int64_t value_scale_offset = 0;
  int64_t head_bytes = 0;
};

// Queries of one kv head over positions [begin, end) of one piece: an unnormalised softmax-weighted sum of
// values, with the running maximum and the sum of weights. Query i sees positions below limits[i].
struct AttendArgs {
  KvLayout layout;
  const std::byte* cache = nullptr;       // block 0 of this layer, at this kv head
  int64_t block_stride = 0;               // bytes from block to block
  const int32_t* blocks = nullptr;        // block ids of the sequence
  const float* const* queries = nullptr;  // [num_queries][head_dim], already scaled
  const int32_t* limits = nullptr;
  int num_queries = 0;       // at most KernelTable::max_queries
  int begin = 0;             // multiple of 16
  int end = 0;               // at most the largest limit, and begin + kPieceTokens
  bool prefetch = false;     // keys and values are probably not in a cache yet
  float* sums = nullptr;     // [num_queries][head_dim]
  float* maxima = nullptr;   // [num_queries]
  float* weights = nullptr;  // [num_queries]
};

// Memory that is asked for, line by line, while something else is multiplied. A product's loops take a few
// lines with each block; a level without prefetches only counts them off.
struct LineRange {
  int64_t first;  // cache line, counted from Upcoming::base
  int64_t count;
};
struct Upcoming {
  const std::byte* base = nullptr;
  const LineRange* next = nullptr;  // ranges not begun
  const LineRange* end = nullptr;
  const std::byte* at = nullptr;  // the next line, and how many of its range are left
  int64_t left = 0;
  int per_block = 0;  // lines with each block; 0: nothing (any more)
};
constexpr int kLineBytes = 64;

struct KernelTable {
  const char* name;
  int max_queries;

  // Rows per tile this level wants for so many rows.
  int (*max_tile_rows)(Arithmetic arithmetic, int num_rows);
  // Converts one row of k values into its place.
  void (*prepare_row)(const float* x, int row, const ActivationView& activations);
  // Columns of panels [panel_begin, panel_end) for all rows. scratch: gemm_scratch_bytes(k), per thread.
  void (*gemm)(const ActivationView& activations, const PackedView& weights, int panel_begin, int panel_end,
               const GemmOutput& output, Upcoming& upcoming, std::byte* scratch);
  // Blocks of 32 that gemm() goes through for all panels, each of which takes lines of `upcoming`.
  int64_t (*gemm_blocks)(const PackedView& weights, int num_rows);
  int64_t (*gemm_scratch_bytes)(int k);

  // y = x / sqrt(mean(x^2) + epsilon) * weight; n is a multiple of 16.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int n, float* y);
  // y = gate / (1 + exp(-gate)) * up; n is a multiple of 16.
  void (*swiglu)(const float* gate, const float* up, int n, float* y);
  // Rotates pairs (i, i + head_dim / 2) of each head, then multiplies by `scale`; head_dim / 2 is a multiple
  // of 8.
  void (*rope)(float* heads, int num_heads, int head_dim, const float* cosines, const float* sines,
               float scale);
  // Writes one token's key and value of one kv head at `slot` of its block.
  void (*store_kv)(const KvLayout& layout, std::byte* block_head, int slot, const float* key,
                   const float* value);
  void (*attend)(const AttendArgs& args);
  // Folds piece (sums, maximum, weight) of one query into the running one.
  void (*merge)(const float* sums, float maximum, float weight, int head_dim, float* into_sums,
                float* into_maximum, float* into_weight);
  // out = sums / weight.
  void (*normalise)(const float* sums, float weight, int head_dim, float* out);
  void (*exp)(const float* x, int n, float* y);  // for tests; n is a multiple of 16
};

}  // namespace deepinfer::kernels
