// What the engine needs of a constrained-decoding matcher, and no more.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace deepinfer {

// Mutable state of one constrained sequence. Not thread-safe; one owner.
class ConstraintMatcher {
 public:
  virtual ~ConstraintMatcher() = default;
  // mask: [ceil(vocab_size / 32)] words, bit set = token allowed. Returns false when error() is set.
  virtual bool fill_mask(std::span<uint32_t> mask) = 0;
  virtual bool accept(int32_t token) = 0;
  virtual int validate(std::span<const int32_t> tokens) = 0;  // how many of them would be accepted
  virtual bool rollback(int num_tokens) = 0;
  virtual bool done() = 0;                // the text is complete; only end-of-sequence may follow
  virtual bool is_accepting() = 0;        // the text may end here, or go on
  virtual std::string error() const = 0;  // empty while healthy
};

// A compiled constraint: immutable, shared by requests, cheap to clone.
class ConstraintTemplate {
 public:
  virtual ~ConstraintTemplate() = default;
  virtual std::unique_ptr<ConstraintMatcher> clone() const = 0;
};

}  // namespace deepinfer
