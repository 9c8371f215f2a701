// Texts that follow their tokens one step behind: decoded and searched for stop strings while the next step
// is computed. What that step samples after a stop string is never appended to anything.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "deepinfer/text.h"
#include "engine/request_state.h"
#include "engine/side_thread.h"

namespace deepinfer {

class LateTexts {
 public:
  // is_on: otherwise nothing is ever late. From min_rows texts on, they are worth waking another thread.
  LateTexts(const TokenTable& tokens, bool is_on, int32_t min_rows);

  bool is_on() const { return is_on_; }
  bool is_empty() const { return texts_.empty(); }
  void add(Sample& sample, int32_t token, bool can_stop) { texts_.push_back({&sample, token, can_stop}); }

  void start();   // may go on beside the caller until finish()
  void finish();  // every text has its token; starts what was not started
  // After finish(): those whose stop string has come. Nothing is late any more.
  std::vector<Sample*> take_stopped();

 private:
  struct Late {
    Sample* sample;
    int32_t token;
    bool can_stop;
    bool has_stopped = false;
  };
  void push_all();

  const TokenTable& tokens_;
  const bool is_on_;
  const size_t min_rows_;
  std::vector<Late> texts_;
  size_t num_pushed_ = 0;  // leading texts
  bool is_beside_ = false;
  std::unique_ptr<SideThread> side_;  // from the first use on
};

}  // namespace deepinfer
