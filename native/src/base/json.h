// A JSON document in memory, for configuration files and headers. Strict RFC 8259; equal keys are refused;
// depth and number of values are bounded, so that a small hostile text cannot become a large structure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json_lexer.h"

namespace deepinfer {

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;  // in file order; keys are unique

class JsonValue {
 public:
  // Integers are int64_t where they fit, else uint64_t where they fit, else double.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray, JsonObject> data;

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  template <typename T>
  const T* get() const;                               // nullptr when it is of another kind
  const JsonValue* find(std::string_view key) const;  // nullptr when absent or not an object; linear
  const char* type_name() const;                      // "null", "an object", ... for messages
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

template <typename T>
const T* JsonValue::get() const {
  return std::get_if<T>(&data);
}

struct JsonLimits {
  int max_depth = 64;
  size_t max_values = 4'000'000;  // scalars and containers; about 100 bytes each at worst
};

// False on a fault; `out` is then unspecified.
bool parse_json(std::string_view text, const JsonLimits& limits, JsonValue& out, JsonFault& fault);

}  // namespace deepinfer
