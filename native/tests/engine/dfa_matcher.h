// A constraint for tests: a table of transitions over token ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deepinfer/constraint.h"
#include "deepinfer/status.h"

namespace deepinfer::testing {

struct Dfa {
  std::map<std::pair<int, int32_t>, int> next;  // (state, token) -> state
  std::set<int> accepting;                      // end-of-sequence is allowed here
  int32_t eos = 0;
  int fail_after = -1;  // tokens after which the matcher reports an error; -1 = never
};

class DfaMatcher : public ConstraintMatcher {
 public:
  explicit DfaMatcher(std::shared_ptr<const Dfa> dfa) : dfa_(std::move(dfa)) {}

  bool fill_mask(std::span<uint32_t> mask) override {
    if (!error().empty()) return false;
    for (uint32_t& word : mask) word = 0;
    const auto allow = [&](int32_t token) { mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32); };
    for (const auto& [from, to] : dfa_->next)
      if (from.first == states_.back()) allow(from.second);
    if (dfa_->accepting.contains(states_.back())) allow(dfa_->eos);
    return true;
  }
  bool accept(int32_t token) override {
    const auto it = dfa_->next.find({states_.back(), token});
    if (it == dfa_->next.end()) return false;
    states_.push_back(it->second);
    return true;
  }
  int validate(std::span<const int32_t> tokens) override {
    DfaMatcher copy = *this;
    int num = 0;
    while (num < static_cast<int>(tokens.size()) && copy.accept(tokens[static_cast<size_t>(num)])) ++num;
    const bool can_end = num < static_cast<int>(tokens.size()) && copy.is_accepting();
    return can_end && tokens[static_cast<size_t>(num)] == dfa_->eos ? num + 1 : num;
  }
  bool can_ask() override { return error().empty() && states_.back() % 3 != 2; }  // sometimes
  bool rollback(int num_tokens) override {
    if (num_tokens >= static_cast<int>(states_.size())) return false;
    states_.resize(states_.size() - static_cast<size_t>(num_tokens));
    return true;
  }
  bool is_accepting() override { return dfa_->accepting.contains(states_.back()); }
  bool done() override {
    const auto it = dfa_->next.lower_bound({states_.back(), 0});
    return dfa_->accepting.contains(states_.back()) &&
           (it == dfa_->next.end() || it->first.first != states_.back());
  }
  std::string error() const override {
    const bool failed = dfa_->fail_after >= 0 && static_cast<int>(states_.size()) > dfa_->fail_after;
    return failed ? "the automaton broke" : "";
  }

 private:
  std::shared_ptr<const Dfa> dfa_;
  std::vector<int> states_ = {0};
};

// Answers calls for many by asking each, and checks that it is used as it wants to be.
class DfaGroup : public MatcherGroup {
 public:
  void in_one_go(const std::function<void()>& work) override {
    is_held = true;
    work();
    is_held = false;
    ++num_goes;
  }
  void accept(std::span<MatcherCall> calls) override {
    DI_CHECK(is_held && !calls.empty());
    for (MatcherCall& call : calls) call.is_ok = call.matcher->accept(call.token);
  }
  void fill_masks(std::span<MatcherCall> calls) override {
    DI_CHECK(is_held && !calls.empty());
    for (MatcherCall& call : calls) call.is_ok = call.matcher->fill_mask(call.mask);
  }

  bool is_held = false;
  int num_goes = 0;
};

class DfaTemplate : public ConstraintTemplate {
 public:
  explicit DfaTemplate(Dfa dfa, std::shared_ptr<DfaGroup> group = nullptr)
      : dfa_(std::make_shared<Dfa>(std::move(dfa))), group_(std::move(group)) {}
  std::unique_ptr<ConstraintMatcher> clone() const override {
    DI_CHECK(!group_ || group_->is_held);
    return std::make_unique<DfaMatcher>(dfa_);
  }
  MatcherGroup* group() const override { return group_.get(); }

 private:
  std::shared_ptr<const Dfa> dfa_;
  std::shared_ptr<DfaGroup> group_;
};

}  // namespace deepinfer::testing
