#include "executor/faulty_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

void sleep(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

// Passes rows on one by one, spoils some, and may throw between two of them.
class FaultyExecutor::Sink : public LogitsSink {
 public:
  Sink(FaultyExecutor& owner, LogitsSink& inner, bool throws)
      : owner_(owner), inner_(inner), throws_(throws) {}

  void consume(int first_row, int num_rows, const float* logits) override {
    const auto vocab = static_cast<size_t>(owner_.info().vocab_size);
    for (int i = 0; i < num_rows; ++i) {
      if (throws_ && owner_.happens(0.3)) owner_.throw_something();
      const float* row = logits + static_cast<size_t>(i) * vocab;
      if (owner_.happens(owner_.config_.nan_rate)) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        owner_.bad_row_.assign(row, row + vocab);
        owner_.bad_row_[owner_.rng_() % vocab] =
            owner_.happens(0.5) ? kInfinity : std::numeric_limits<float>::quiet_NaN();
        row = owner_.bad_row_.data();
      }
      inner_.consume(first_row + i, 1, row);
    }
  }

 private:
  FaultyExecutor& owner_;
  LogitsSink& inner_;
  const bool throws_;
};

FaultyExecutor::FaultyExecutor(Executor& inner, const FaultConfig& config)
    : inner_(inner), config_(config), rng_(config.seed) {}

bool FaultyExecutor::happens(double rate) {
  return rate > 0 && static_cast<double>(rng_() >> 11) * 0x1p-53 < rate;
}

void FaultyExecutor::throw_something() {
  switch (rng_() % 3) {
    case 0: throw std::bad_alloc();
    case 1: throw std::runtime_error("the device went away");
    default: fail(ErrorCode::kResource, "the device ran out of memory");
  }
}

void FaultyExecutor::forward(const Batch& batch, LogitsSink& sink) {
  const int64_t step = num_steps_++;
  if (step == config_.hang_at_step) sleep(config_.hang_seconds);
  if (happens(config_.slow_rate)) sleep(config_.slow_seconds);
  if (config_.poison_token >= 0 &&
      std::ranges::find(batch.tokens, config_.poison_token) != batch.tokens.end())
    fail(ErrorCode::kResource, "token ", config_.poison_token, " breaks the device");
  const bool throws = happens(config_.throw_rate);
  if (throws && happens(0.3)) throw_something();
  Sink between(*this, sink, throws);
  inner_.forward(batch, between);
  if (throws) throw_something();
}

void FaultyExecutor::copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) {
  if (happens(config_.copy_rate)) throw_something();
  inner_.copy_blocks(group, pairs);
}

}  // namespace deepinfer
