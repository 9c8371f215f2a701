// From "so many tokens of these sequences" to flat arrays.
#pragma once

#include <cstdint>
#include <span>

#include "deepinfer/batch.h"
#include "kv/kv_manager.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

// Fills everything but logit_tokens, whose meaning the engine knows. Keeps the capacity of `batch`.
void build_batch(std::span<const ScheduledWork> work, const KvManager& kv, Batch& batch);

}  // namespace deepinfer
