// Typed access to a model file's metadata, with errors that name file and key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "deepinfer/tensor_file.h"

namespace deepinfer::models {

class Metadata {
 public:
  explicit Metadata(const TensorFile& file) : file_(file) {}

  // A whole number in [low, high]; throws Error{kBadFile} when absent, of another type or out of range.
  int64_t whole(std::string_view key, int64_t low, int64_t high) const;
  int64_t whole_or(std::string_view key, int64_t low, int64_t high, int64_t otherwise) const;
  // A finite number.
  double real(std::string_view key) const;
  double real_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  bool has(std::string_view key) const;

  [[noreturn]] void bad(std::string_view key, std::string_view wanted) const;

 private:
  const MetaValue* find(std::string_view key) const;
  std::optional<int64_t> find_whole(std::string_view key, int64_t low, int64_t high) const;

  const TensorFile& file_;
};

}  // namespace deepinfer::models
