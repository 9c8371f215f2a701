#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "deepinfer/status.h"
#include "io/config_json.h"
#include "io/quote.h"
#include "io/safetensors_header.h"
#include "io/tensor_size.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxIndexBytes = size_t{256} << 20;
constexpr size_t kMaxShards = 10'000;
constexpr const char* kIndexName = "model.safetensors.index.json";

class SafetensorsFile : public TensorFile {
 public:
  SafetensorsFile() { format_ = FileFormat::kSafetensors; }

  void add(std::unique_ptr<MappedFile> file) {
    const int index = static_cast<int>(files_.size());
    files_.push_back(file->path());
    SafetensorsHeader header = read_safetensors_header(*file, index);
    std::move(header.tensors.begin(), header.tensors.end(), std::back_inserter(tensors_));
    // The shards of one model carry the same entries; the first file's stand.
    for (auto& [key, value] : header.metadata) metadata_.emplace("__metadata__." + key, std::move(value));
    mapped_.push_back(std::move(file));
  }
  void add_config(const std::string& path) {
    flatten_config(path, read_json_file(path, kMaxConfigBytes), metadata_);
  }
  void finish() { finish_tensors(tensors_, files_); }
  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> into) const override {
    mapped_[static_cast<size_t>(tensor.file_index)]->read(tensor.file_offset + begin, into);
  }

 private:
  std::vector<std::unique_ptr<MappedFile>> mapped_;
};

// A file inside the folder, by its bare name: an index must not lead anywhere else. (The file itself may be
// a symbolic link; that is how hub caches store them.)
bool is_bare_name(std::string_view name) {
  return !name.empty() && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos && name != "." &&
         name != ".." && name.ends_with(".safetensors") && name.size() <= 255;
}

struct Index {
  std::vector<std::string> shards;  // sorted, each once
  const JsonObject* weight_map = nullptr;
  JsonValue root;  // owns weight_map
};

Index read_index(const std::string& path) {
  Index index;
  index.root = read_json_file(path, kMaxIndexBytes);
  const JsonValue* map = index.root.find("weight_map");
  index.weight_map = map == nullptr ? nullptr : map->get<JsonObject>();
  if (index.weight_map == nullptr || index.weight_map->empty()) {
    fail(ErrorCode::kBadFile, path, ": no \"weight_map\" object with tensors");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, value] : *index.weight_map) {
    const auto* name = value.get<std::string>();
    if (name == nullptr) {
      fail(ErrorCode::kBadFile, path, ": tensor ", quote(tensor), " is mapped to ", value.type_name(),
           ", wanted a file name");
    }
    if (!is_bare_name(*name)) {
      fail(ErrorCode::kBadFile, path, ": tensor ", quote(tensor), " is mapped to ", quote(*name),
           ", wanted the name of a .safetensors file in this folder");
    }
    shards.insert(*name);
    if (shards.size() > kMaxShards)
      fail(ErrorCode::kBadFile, path, ": more than ", kMaxShards, " files are named");
  }
  index.shards.assign(shards.begin(), shards.end());
  return index;
}

// Every tensor must be in the file that the index names for it.
void check_index(const std::string& path, const Index& index, const TensorFile& file) {
  for (const auto& [name, value] : *index.weight_map) {
    const std::string& shard = *value.get<std::string>();
    const TensorInfo* tensor = file.find(name);
    if (tensor == nullptr) {
      fail(ErrorCode::kBadFile, path, ": tensor ", quote(name), " should be in ", quote(shard),
           ", but is in no file");
    }
    const std::string& found = file.files()[static_cast<size_t>(tensor->file_index)];
    if (fs::path(found).filename() != shard) {
      fail(ErrorCode::kBadFile, path, ": tensor ", quote(name), " should be in ", quote(shard),
           ", but is in ", found);
    }
  }
}

std::vector<std::string> list_shards(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "model.safetensors") return {name};
    if (is_bare_name(name)) names.push_back(name);
  }
  if (error) fail(ErrorCode::kBadFile, folder, ": ", error.message());
  if (names.empty()) fail(ErrorCode::kBadFile, folder, ": no .safetensors file in this folder");
  if (names.size() > kMaxShards)
    fail(ErrorCode::kBadFile, folder, ": more than ", kMaxShards, " .safetensors files");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool looks_like_safetensors(std::string_view text) {
  if (text.size() < 10 || text[8] != '{') return false;
  uint64_t num_header_bytes = 0;
  std::memcpy(&num_header_bytes, text.data(), 8);
  return num_header_bytes < uint64_t{1} << 40;  // a length, not text; the reader checks it against the file
}

std::shared_ptr<const TensorFile> open_safetensors_file(std::unique_ptr<MappedFile> file) {
  auto out = std::make_shared<SafetensorsFile>();
  out->add(std::move(file));
  out->finish();
  return out;
}

std::shared_ptr<const TensorFile> open_safetensors_folder(const std::string& folder) {
  const fs::path base(folder);
  std::error_code error;
  if (!fs::exists(base / "config.json", error)) {
    fail(ErrorCode::kBadFile, folder,
         ": wanted a folder with config.json and .safetensors files, found no config.json");
  }
  auto out = std::make_shared<SafetensorsFile>();
  out->add_config((base / "config.json").string());
  const std::string index_path = (base / kIndexName).string();
  if (!fs::exists(index_path, error)) {
    for (const std::string& name : list_shards(folder))
      out->add(std::make_unique<MappedFile>((base / name).string()));
    out->finish();
    return out;
  }
  const Index index = read_index(index_path);
  for (const std::string& name : index.shards) out->add(std::make_unique<MappedFile>((base / name).string()));
  out->finish();
  check_index(index_path, index, *out);
  return out;
}

}  // namespace deepinfer
