// What this machine's cores can do at best: the bound of large batches and of prompts.
#pragma once

#include <string_view>

#include "deepinfer/threads.h"

namespace deepinfer {

// 10^9 operations per second (a multiply-add is two) that the pool's threads do together in registers, by
// wall time; the best of the passes that fit into `seconds`, at least one. kind: "int8", "bf16" or "fp32", on
// the widest instructions of this CPU for it; a CPU without such instructions gets those that replace them.
// 0: not known for this kind of CPU.
double peak_gops(std::string_view kind, double seconds, ThreadPool& pool);

}  // namespace deepinfer
