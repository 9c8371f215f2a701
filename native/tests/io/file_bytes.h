// Model files as bytes, for tests: built here so that every length can be made wrong.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "io/mapped_file.h"

namespace deepinfer::testing {

class GgufBytes {
 public:
  template <typename T>
  GgufBytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(const std::string& text) {
    number<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  GgufBytes& header(uint64_t num_tensors, uint64_t num_entries, uint32_t version = 3) {
    bytes_ += "GGUF";
    return number(version).number(num_tensors).number(num_entries);
  }
  GgufBytes& entry(const std::string& key, uint32_t type) { return text(key).number(type); }
  // dims: innermost first, as in the file
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                    uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) number(dim);
    return number(type).number(offset);
  }
  GgufBytes& data(size_t num_bytes, size_t alignment = 32) {
    bytes_.append((alignment - bytes_.size() % alignment) % alignment, '\0');
    for (size_t i = 0; i < num_bytes; ++i) bytes_ += static_cast<char>(i);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

inline std::string safetensors_bytes(std::string header, size_t num_data_bytes) {
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  return out + header + std::string(num_data_bytes, '\x01');
}

// `bytes` must outlive what is opened.
inline std::unique_ptr<MappedFile> as_file(const std::string& bytes) {
  return std::make_unique<MappedFile>("test.file", std::as_bytes(std::span(bytes)));
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// What opening says, or "" when it succeeds.
template <typename Open>
std::string refusal(const Open& open) {
  try {
    (void)open();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace deepinfer::testing
