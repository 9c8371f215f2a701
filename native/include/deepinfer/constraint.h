// What the engine needs of a constrained-decoding matcher, and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace deepinfer {

// Mutable state of one constrained sequence. Not thread-safe; one owner. Its answers depend on the tokens it
// has accepted and on nothing else: not on what was asked or rolled back before, nor on its neighbours.
class ConstraintMatcher {
 public:
  virtual ~ConstraintMatcher() = default;
  // mask: [ceil(vocab_size / 32)] words, bit set = token allowed. Returns false when error() is set.
  virtual bool fill_mask(std::span<uint32_t> mask) = 0;
  virtual bool accept(int32_t token) = 0;                     // a token that is refused changes nothing
  virtual int validate(std::span<const int32_t> tokens) = 0;  // how many of them would be accepted
  // Whether validate() of a single token says just what the next mask would say of it. It may where the mask
  // asks for one spelling of several. False also where it would take long to find out.
  virtual bool can_ask() { return false; }
  virtual bool rollback(int num_tokens) = 0;
  virtual bool done() = 0;                // the text is complete; only end-of-sequence may follow
  virtual bool is_accepting() = 0;        // the text may end here, or go on
  virtual std::string error() const = 0;  // empty while healthy
};

// One matcher's part in a call for many.
struct MatcherCall {
  ConstraintMatcher* matcher = nullptr;
  int32_t token = -1;        // of accept()
  std::span<uint32_t> mask;  // of fill_masks()
  bool is_ok = false;        // the answer
};

// Matchers that are cheaper together than one by one, because they share a lock.
class MatcherGroup {
 public:
  virtual ~MatcherGroup() = default;
  // Calls `work` with the lock held; every other call on the group, its templates and their matchers comes
  // from inside, but for the ends of matchers and questions to a single one.
  virtual void in_one_go(const std::function<void()>& work) = 0;
  // As by each matcher itself.
  virtual void accept(std::span<MatcherCall> calls) = 0;
  virtual void fill_masks(std::span<MatcherCall> calls) = 0;
};

// A compiled constraint: immutable, shared by requests, cheap to clone.
class ConstraintTemplate {
 public:
  virtual ~ConstraintTemplate() = default;
  virtual std::unique_ptr<ConstraintMatcher> clone() const = 0;
  // Of its matchers; null = each may be used alone, by whatever thread.
  virtual MatcherGroup* group() const { return nullptr; }
};

}  // namespace deepinfer
