#include "deepinfer/status.h"
#include "deepinfer/text.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

// Appends `bytes`, decoded, to `text`; returns how many bytes at their end begin an unfinished character.
size_t decode_into(std::string_view bytes, std::string& text) {
  size_t i = 0;
  while (i < bytes.size()) {
    const utf8::Piece piece = utf8::classify(bytes.substr(i));
    if (piece.form == utf8::Form::kIncomplete) break;
    if (piece.form == utf8::Form::kComplete) {
      text += bytes.substr(i, piece.length);
    } else {
      text += utf8::kReplacement;
    }
    i += piece.length;
  }
  return bytes.size() - i;
}

}  // namespace

TextState::TextState(std::vector<std::string> stop, bool include_stop)
    : stop_(std::move(stop)), include_stop_(include_stop) {
  if (!stop_.empty()) matcher_ = std::make_shared<const StopMatcher>(stop_);
}

bool TextState::push(std::string_view bytes, bool check_stop) {
  if (!matched_.empty()) return true;  // the text is cut; nothing can follow
  if (pending_.empty()) {
    const size_t tail = decode_into(bytes, text_);
    pending_.assign(bytes.substr(bytes.size() - tail));
  } else {
    pending_ += bytes;
    const size_t tail = decode_into(pending_, text_);
    pending_.erase(0, pending_.size() - tail);
  }
  return matcher_ != nullptr && search(check_stop);
}

// Every byte is looked at once, also while stops are held off: a stop that begins there may end later.
bool TextState::search(bool check_stop) {
  for (; scanned_ < text_.size(); ++scanned_) {
    stop_state_ = matcher_->step(stop_state_, static_cast<unsigned char>(text_[scanned_]));
    const int32_t found = matcher_->match(stop_state_);
    if (found == StopMatcher::kNoMatch || !check_stop) continue;
    matched_ = stop_[static_cast<size_t>(found)];
    const size_t end = scanned_ + 1;
    text_.resize(include_stop_ ? end : end - matched_.size());
    pending_.clear();
    return true;
  }
  return false;
}

void TextState::finish() {
  if (pending_.empty()) return;
  text_ += utf8::kReplacement;  // what is pending is always one maximal subpart
  pending_.clear();
}

}  // namespace deepinfer
