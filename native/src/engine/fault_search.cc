#include "engine/fault_search.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

bool FaultSearch::is_suspect(uint64_t request) const {
  return std::ranges::binary_search(suspects_, request);
}

void FaultSearch::on_success() {
  num_failures_ = 0;
  num_blamed_ = 0;
  // These are cleared, so it is one of the rest; when there is none, the failure went away by itself.
  narrow(std::exchange(rest_, {}));
}

std::optional<uint64_t> FaultSearch::on_failure(std::span<const uint64_t> requests) {
  if (++num_failures_ < kTries && (suspects_.empty() || requests.size() == 1)) return std::nullopt;
  num_failures_ = 0;
  rest_.clear();
  if (requests.size() > 1) {
    narrow(std::vector<uint64_t>(requests.begin(), requests.end()));
    return std::nullopt;
  }
  suspects_.clear();
  ++num_blamed_;
  return requests.front();
}

void FaultSearch::give_up() {
  suspects_.clear();
  rest_.clear();
  num_failures_ = 0;
}

// The older half runs first.
void FaultSearch::narrow(std::span<const uint64_t> requests) {
  const std::vector<uint64_t> all(requests.begin(), requests.end());
  const auto middle = all.begin() + static_cast<ptrdiff_t>((all.size() + 1) / 2);
  suspects_.assign(all.begin(), middle);
  rest_.assign(middle, all.end());
}

}  // namespace deepinfer
