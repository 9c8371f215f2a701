#include "base/json.h"

#include <charconv>

#include "base/json_walk.h"
#include "deepinfer/status.h"

namespace deepinfer {
namespace {

std::string decoded(const JsonString& text) {
  if (!text.has_escapes) return std::string(text.raw);
  std::string out;
  decode_json_string(text.raw, out);
  return out;
}

// Builds the tree from the walk's events. Open containers are kept by value on a stack and moved into their
// parent when they close, so that no pointer into a growing vector is ever held.
class Builder {
 public:
  explicit Builder(size_t max_values) : max_values_(max_values) {}

  JsonValue take_root() { return std::move(root_); }

  bool wants_more() const { return num_values_ <= max_values_; }
  void key(const JsonString& name) { open_.back().key = decoded(name); }
  void value_begins(int, size_t) { ++num_values_; }
  void value_ended(int, size_t) {}
  void begin_object() { open(JsonObject{}); }
  void end_object() { close(); }
  void begin_array() { open(JsonArray{}); }
  void end_array() { close(); }
  void scalar_string(const JsonString& text) { add({decoded(text)}); }
  void scalar_bool(bool value) { add({value}); }
  void scalar_null() { add({}); }
  void scalar_number(const JsonNumber& number) {
    const char *begin = number.raw.data(), *end = begin + number.raw.size();
    if (number.is_integer) {
      int64_t signed_value = 0;
      if (std::from_chars(begin, end, signed_value).ec == std::errc()) return add({signed_value});
      uint64_t unsigned_value = 0;
      if (std::from_chars(begin, end, unsigned_value).ec == std::errc()) return add({unsigned_value});
    }
    double value = 0;
    std::from_chars(begin, end, value);  // the walk has refused overflow; underflow leaves zero
    add({value});
  }

 private:
  struct Open {
    JsonValue value;
    std::string key;  // of an object: the one that waits for its value
  };

  template <typename Container>
  void open(Container container) {
    Open& top = open_.emplace_back();
    top.value.data = std::move(container);
  }
  void close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(value));
  }
  void add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& top = open_.back();
    if (auto* array = std::get_if<JsonArray>(&top.value.data)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonObject>(top.value.data).push_back({std::move(top.key), std::move(value)});
    }
  }

  size_t max_values_;
  size_t num_values_ = 0;
  std::vector<Open> open_;
  JsonValue root_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* object = get<JsonObject>();
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

const char* JsonValue::type_name() const {
  constexpr const char* kNames[] = {"null",     "a truth value", "a number", "a number",
                                    "a number", "a string",      "an array", "an object"};
  return kNames[data.index()];
}

bool parse_json(std::string_view text, const JsonLimits& limits, JsonValue& out, JsonFault& fault) {
  Builder builder(limits.max_values);
  JsonWalk<Builder> walk(text, limits.max_depth, builder);
  if (!walk.run()) {
    fault = walk.lexer().fault();
    return false;
  }
  out = builder.take_root();
  return true;
}

}  // namespace deepinfer
