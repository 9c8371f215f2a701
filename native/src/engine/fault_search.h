// Which request makes a step fail. A failed step is tried again as it was; when it fails again, halves of its
// requests run apart until one request fails alone, twice: that one ends, and nobody else does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace deepinfer {

class FaultSearch {
 public:
  // While it holds, only these requests run; empty = everybody does.
  std::span<const uint64_t> suspects() const { return suspects_; }
  bool is_suspect(uint64_t request) const;

  // The step computed.
  void on_success();
  // The step of these requests (ascending, each once) failed; the one to end, if it is found. Its blame is
  // counted: see num_blamed().
  std::optional<uint64_t> on_failure(std::span<const uint64_t> requests);
  // No suspect could run (their blocks went to somebody else): everybody runs again.
  void give_up();

  // Requests blamed since a step last computed. Many in a row: it is not the requests.
  int num_blamed() const { return num_blamed_; }

 private:
  void narrow(std::span<const uint64_t> requests);

  static constexpr int kTries = 2;

  std::vector<uint64_t> suspects_;  // run now; ascending
  std::vector<uint64_t> rest_;      // run next when the suspects are cleared
  int num_failures_ = 0;            // of the same requests in a row
  int num_blamed_ = 0;
};

}  // namespace deepinfer
