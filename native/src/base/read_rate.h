// How fast this machine reads memory: the bound of decoding at small batches.
#pragma once

#include "deepinfer/threads.h"

namespace deepinfer {

// Gigabytes (10^9) per second that the pool's threads read together from memory that no cache holds; the
// best piece of the passes that fit into `seconds`, at least one pass. Uses 256 MiB meanwhile.
double dram_read_gbps(double seconds, ThreadPool& pool);

}  // namespace deepinfer
