#include "io/config_json.h"

#include <optional>

#include "deepinfer/status.h"
#include "io/mapped_file.h"
#include "io/quote.h"

namespace deepinfer {
namespace {

// Every element as T, or nothing.
template <typename T>
std::optional<std::vector<T>> all_of_type(const JsonArray& array) {
  std::vector<T> out;
  for (const JsonValue& value : array) {
    const T* element = value.get<T>();
    if (element == nullptr) return std::nullopt;
    out.push_back(*element);
  }
  return out;
}

std::optional<std::vector<double>> all_numbers(const JsonArray& array) {
  std::vector<double> out;
  for (const JsonValue& value : array) {
    if (const auto* i = value.get<int64_t>()) {
      out.push_back(static_cast<double>(*i));
    } else if (const auto* u = value.get<uint64_t>()) {
      out.push_back(static_cast<double>(*u));
    } else if (const auto* d = value.get<double>()) {
      out.push_back(*d);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<MetaValue> plain_array(const JsonArray& array) {
  if (auto values = all_of_type<int64_t>(array))
    return MetaValue(std::move(*values));  // also the empty array
  if (auto values = all_of_type<std::string>(array)) return MetaValue(std::move(*values));
  if (auto values = all_of_type<bool>(array)) return MetaValue(std::move(*values));
  if (auto values = all_numbers(array)) return MetaValue(std::move(*values));
  return std::nullopt;
}

class Flattener {
 public:
  Flattener(const std::string& path, Metadata& out) : path_(path), out_(out) {}

  void add(const std::string& key, const JsonValue& value) {
    if (const auto* object = value.get<JsonObject>()) {
      for (const auto& [name, member] : *object) add(join(key, name), member);
    } else if (const auto* array = value.get<JsonArray>()) {
      if (auto plain = plain_array(*array)) {
        put(key, std::move(*plain));
      } else {
        for (size_t i = 0; i < array->size(); ++i) add(join(key, std::to_string(i)), (*array)[i]);
      }
    } else if (const auto* b = value.get<bool>()) {
      put(key, *b);
    } else if (const auto* i = value.get<int64_t>()) {
      put(key, *i);
    } else if (const auto* u = value.get<uint64_t>()) {
      put(key, *u);
    } else if (const auto* d = value.get<double>()) {
      put(key, *d);
    } else if (const auto* s = value.get<std::string>()) {
      put(key, *s);
    }
  }

 private:
  static std::string join(const std::string& key, const std::string& name) {
    return key.empty() ? name : key + "." + name;
  }
  void put(const std::string& key, MetaValue value) {
    if (!out_.emplace(key, std::move(value)).second) {
      fail(ErrorCode::kBadFile, path_, ": two values have the path ", quote(key));
    }
  }

  const std::string& path_;
  Metadata& out_;
};

}  // namespace

void flatten_config(const std::string& path, const JsonValue& root, Metadata& out) {
  Flattener(path, out).add("", root);
}

JsonValue read_json_file(const std::string& path, size_t max_bytes) {
  const MappedFile file(path);
  if (file.size() > max_bytes)
    fail(ErrorCode::kBadFile, path, ": has ", file.size(), " bytes, wanted at most ", max_bytes);
  JsonValue root;
  JsonFault fault;
  if (!parse_json(file.text(), JsonLimits{}, root, fault)) {
    fail(ErrorCode::kBadFile, path, ": not JSON at byte ", fault.offset, ": ", fault.message);
  }
  if (root.get<JsonObject>() == nullptr) {
    fail(ErrorCode::kBadFile, path, ": holds ", root.type_name(), ", wanted an object");
  }
  return root;
}

}  // namespace deepinfer
