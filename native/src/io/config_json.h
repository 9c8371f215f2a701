// config.json as flat metadata.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "deepinfer/tensor_file.h"

namespace deepinfer {

using Metadata = std::map<std::string, MetaValue, std::less<>>;

// Adds the scalars and arrays of `root` under their dotted paths ("rope_scaling.factor"). Arrays of one
// plain kind stay arrays (integers beside fractions become doubles); others are flattened by index
// ("layers.0.type"). Nulls are left out. Throws Error{kBadFile} when two paths collide.
void flatten_config(const std::string& path, const JsonValue& root, Metadata& out);

// Reads and parses a JSON file of at most `max_bytes`. Throws Error{kBadFile}.
JsonValue read_json_file(const std::string& path, size_t max_bytes);

}  // namespace deepinfer
