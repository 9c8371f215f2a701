#include "models/metadata.h"

#include <cmath>
#include <limits>

#include "deepinfer/status.h"

namespace deepinfer::models {

const MetaValue* Metadata::find(std::string_view key) const {
  const auto it = file_.metadata().find(key);
  return it == file_.metadata().end() ? nullptr : &it->second;
}

bool Metadata::has(std::string_view key) const { return find(key) != nullptr; }

void Metadata::bad(std::string_view key, std::string_view wanted) const {
  const std::string where = file_.files().empty() ? "the model" : file_.files().front();
  if (!has(key)) fail(ErrorCode::kBadFile, where, ": metadata key ", key, " is missing; wanted ", wanted);
  fail(ErrorCode::kBadFile, where, ": metadata key ", key, " has another type or value; wanted ", wanted);
}

std::optional<int64_t> Metadata::find_whole(std::string_view key, int64_t low, int64_t high) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (const auto* i = std::get_if<int64_t>(value)) number = *i;
  if (const auto* u = std::get_if<uint64_t>(value)) {
    if (*u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) number = static_cast<int64_t>(*u);
  }
  if (!number || *number < low || *number > high) bad(key, str_cat("a whole number in ", low, "..", high));
  return number;
}

int64_t Metadata::whole(std::string_view key, int64_t low, int64_t high) const {
  const auto value = find_whole(key, low, high);
  if (!value) bad(key, str_cat("a whole number in ", low, "..", high));
  return *value;
}

int64_t Metadata::whole_or(std::string_view key, int64_t low, int64_t high, int64_t otherwise) const {
  return find_whole(key, low, high).value_or(otherwise);
}

double Metadata::real(std::string_view key) const {
  const MetaValue* value = find(key);
  double number = std::numeric_limits<double>::quiet_NaN();
  if (value != nullptr) {
    if (const auto* d = std::get_if<double>(value)) number = *d;
    if (const auto* i = std::get_if<int64_t>(value)) number = static_cast<double>(*i);
    if (const auto* u = std::get_if<uint64_t>(value)) number = static_cast<double>(*u);
  }
  if (!std::isfinite(number)) bad(key, "a finite number");
  return number;
}

double Metadata::real_or(std::string_view key, double otherwise) const {
  return has(key) ? real(key) : otherwise;
}

bool Metadata::flag_or(std::string_view key, bool otherwise) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return otherwise;
  const bool* flag = std::get_if<bool>(value);
  if (flag == nullptr) bad(key, "true or false");
  return *flag;
}

std::string Metadata::text_or(std::string_view key, std::string_view otherwise) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) bad(key, "a text");
  return *text;
}

}  // namespace deepinfer::models
