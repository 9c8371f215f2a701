#include "engine/late_texts.h"

namespace deepinfer {

LateTexts::LateTexts(const TokenTable& tokens, bool is_on, int32_t min_rows)
    : tokens_(tokens), is_on_(is_on), min_rows_(static_cast<size_t>(min_rows)) {}

void LateTexts::push_all() {
  for (; num_pushed_ < texts_.size(); ++num_pushed_) {
    Late& late = texts_[num_pushed_];
    late.has_stopped = late.sample->text.push(tokens_.bytes(late.token), late.can_stop);
  }
}

void LateTexts::start() {
  if (texts_.size() < min_rows_ || num_pushed_ > 0) return;
  if (side_ == nullptr) side_ = std::make_unique<SideThread>();
  is_beside_ = true;
  side_->start([this] { push_all(); });
}

void LateTexts::finish() {
  if (is_beside_) {
    is_beside_ = false;
    side_->join();
  }
  push_all();
}

std::vector<Sample*> LateTexts::take_stopped() {
  std::vector<Sample*> stopped;
  for (const Late& late : texts_)
    if (late.has_stopped) stopped.push_back(late.sample);
  texts_.clear();
  num_pushed_ = 0;
  return stopped;
}

}  // namespace deepinfer
