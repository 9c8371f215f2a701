// Walks one JSON document and tells a handler what it meets; finds equal keys on the way.
//
// Handler: wants_more(), false ends the walk with a fault; key(JsonString), scalar_string(JsonString),
// scalar_number(JsonNumber), scalar_bool(bool), scalar_null(), begin_object(), end_object(), begin_array(),
// end_array(), and value_begins(depth, offset), value_ended(depth, offset), where depth counts the containers
// around the value. No recursion: a document cannot use the stack up.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json_keys.h"
#include "base/json_lexer.h"

namespace deepinfer {

template <typename Handler>
class JsonWalk {
 public:
  JsonWalk(std::string_view text, int max_depth, Handler& handler)
      : lexer_(text), keys_(text), max_depth_(max_depth), handler_(handler) {}

  bool run() {
    if (!keys_.can_index_text()) {
      return lexer_.fail(JsonFaultKind::kTooBig, "the text is longer than 2 GiB", 0);
    }
    lexer_.skip_space();
    if (!value()) return false;
    while (!open_.empty()) {
      if (!next()) return false;
    }
    lexer_.skip_space();
    return lexer_.at_end() || lexer_.unexpected("expected nothing more after the value");
  }
  const JsonLexer& lexer() const { return lexer_; }

 private:
  struct Container {
    bool is_object;
    bool is_empty;
    size_t first_key;  // of this object in keys_
  };

  int depth() const { return static_cast<int>(open_.size()); }

  // Inside a container, behind '{', '[' or a value: the next member, or the end.
  bool next() {
    lexer_.skip_space();
    if (!handler_.wants_more()) {
      return lexer_.fail(JsonFaultKind::kTooBig, "there are more values than are taken", lexer_.position());
    }
    Container& top = open_.back();
    const char close = top.is_object ? '}' : ']';
    if (!lexer_.at_end() && lexer_.peek() == close) return leave();
    if (!top.is_empty) {
      if (lexer_.at_end() || lexer_.peek() != ',') {
        return lexer_.unexpected(top.is_object ? "expected ',' or '}' after a value"
                                               : "expected ',' or ']' after a value");
      }
      lexer_.advance();
      lexer_.skip_space();
    }
    top.is_empty = false;
    return (!top.is_object || key()) && value();
  }

  bool key() {
    if (lexer_.at_end() || lexer_.peek() != '"') return lexer_.unexpected("expected a key in double quotes");
    const size_t offset = lexer_.position();
    JsonString name;
    if (!lexer_.string(name)) return false;
    keys_.add(name, offset);
    handler_.key(name);
    lexer_.skip_space();
    if (lexer_.at_end() || lexer_.peek() != ':') return lexer_.unexpected("expected ':' after a key");
    lexer_.advance();
    lexer_.skip_space();
    return true;
  }

  bool enter(bool is_object) {
    if (depth() >= max_depth_) {
      return lexer_.fail(JsonFaultKind::kTooDeep,
                         "arrays and objects are nested deeper than " + std::to_string(max_depth_),
                         lexer_.position());
    }
    handler_.value_begins(depth(), lexer_.position());
    is_object ? handler_.begin_object() : handler_.begin_array();
    open_.push_back({is_object, true, keys_.size()});
    lexer_.advance();
    return true;
  }

  bool leave() {
    const Container top = open_.back();
    lexer_.advance();
    if (top.is_object) {
      if (const JsonKeys::Key* twice = keys_.find_duplicate(top.first_key)) {
        return lexer_.fail(JsonFaultKind::kSyntax, keys_.describe_duplicate(*twice), twice->offset);
      }
      keys_.truncate(top.first_key);
    }
    open_.pop_back();
    top.is_object ? handler_.end_object() : handler_.end_array();
    handler_.value_ended(depth(), lexer_.position());
    return true;
  }

  bool value() {
    if (lexer_.at_end()) return lexer_.unexpected("expected a value");
    const unsigned char c = lexer_.peek();
    if (c == '{' || c == '[') return enter(c == '{');
    handler_.value_begins(depth(), lexer_.position());
    if (!scalar(c)) return false;
    handler_.value_ended(depth(), lexer_.position());
    return true;
  }

  bool scalar(unsigned char c) {
    if (c == '"') {
      JsonString text;
      if (!lexer_.string(text)) return false;
      handler_.scalar_string(text);
      return true;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
      JsonNumber number;
      if (!lexer_.number(number)) return false;
      handler_.scalar_number(number);
      return true;
    }
    if (c == 't' || c == 'f') {
      if (!lexer_.literal(c == 't' ? "true" : "false")) return false;
      handler_.scalar_bool(c == 't');
      return true;
    }
    if (!lexer_.literal("null")) return false;
    handler_.scalar_null();
    return true;
  }

  JsonLexer lexer_;
  JsonKeys keys_;
  std::vector<Container> open_;
  int max_depth_;
  Handler& handler_;
};

}  // namespace deepinfer
