// Any bytes as a JSON document: what is accepted must be UTF-8 with unique keys inside the limits, and must
// flatten into metadata or be refused.
#include <set>

#include "base/json.h"
#include "deepinfer/status.h"
#include "fuzz.h"
#include "io/config_json.h"

using namespace deepinfer;

namespace {

size_t count_values(const JsonValue& value, int depth) {
  FUZZ_CHECK(depth <= 16);
  size_t count = 1;
  if (const auto* text = value.get<std::string>()) FUZZ_CHECK(fuzz::is_utf8(*text));
  if (const auto* array = value.get<JsonArray>()) {
    for (const JsonValue& entry : *array) count += count_values(entry, depth + 1);
  }
  if (const auto* object = value.get<JsonObject>()) {
    std::set<std::string_view> keys;
    for (const auto& [key, entry] : *object) {
      FUZZ_CHECK(keys.insert(key).second && fuzz::is_utf8(key));
      count += count_values(entry, depth + 1);
    }
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  JsonValue value;
  JsonFault fault;
  if (!parse_json(fuzz::text_of(data, size), JsonLimits{.max_depth = 16, .max_values = 1000}, value, fault)) {
    FUZZ_CHECK(fault.kind != JsonFaultKind::kNone && fault.offset <= size && fuzz::is_message(fault.message));
    return 0;
  }
  FUZZ_CHECK(count_values(value, 0) <= 1001);
  try {
    Metadata metadata;
    flatten_config("input", value, metadata);
    FUZZ_CHECK(metadata.size() <= 1001);
  } catch (const Error& error) {
    FUZZ_CHECK(error.code() == ErrorCode::kBadFile && fuzz::is_message(error.what()));
  }
  return 0;
}
