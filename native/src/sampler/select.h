// Which tokens top_k and top_p keep, without sorting the row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deepinfer/request.h"
#include "deepinfer/sampling.h"
#include "sampler/row_ops.h"

namespace deepinfer {

// The order of every tie: higher logit first, then the lower id.
inline bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The `k` first tokens of the row in that order, themselves in no particular order. ids is scratch memory.
void select_top_k(const RowOps& ops, std::span<const float> row, int32_t k, std::vector<int32_t>& ids,
                  std::vector<Candidate>& best);

// The last token of the shortest leading part of the order whose weight, with `before` ahead of it, reaches
// `target`. Reorders `candidates`, which together reach it.
Candidate find_border(std::span<Candidate> candidates, float max, float scale, uint64_t before,
                      uint64_t target);

// What top_p keeps of the whole row.
struct TopP {
  Border border;
  bool has_all;  // `candidates` hold every token inside the border, and some more
};
TopP select_top_p(const RowOps& ops, std::span<const float> row, float max, float scale, float top_p,
                  std::vector<int32_t>& ids, std::vector<Candidate>& candidates);

// What top_p keeps of the tokens that top_k has left.
void cut_top_p(std::vector<Candidate>& candidates, float max, float scale, float top_p);

// The raw row's log-probability of `token` and of the `num_top` best, with the row's maximum known.
TokenLogprobs score_token(const RowOps& ops, std::span<const float> row, float max, int32_t token,
                          int32_t num_top);

}  // namespace deepinfer
