// One memory-mapped view over the files of a model: GGUF (one file) or a safetensors folder.
// Loaders know formats, never models; families bind tensors by name, type and shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace deepinfer {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kF64,
  kBool,
  kF8_E4M3,  // published in safetensors by the flagship family
  kF8_E8M0,  // power-of-two scales
};

// Elements are stored in blocks: `block_bytes` bytes hold `block_elems` consecutive elements of a row.
struct DTypeInfo {
  const char* name;  // as the file formats spell it: "Q4_1", "BF16"
  int block_elems;
  int block_bytes;
};
const DTypeInfo& dtype_info(DType dtype);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // outermost first: a weight is [out_features, in_features]
  const std::byte* data = nullptr;  // num_bytes bytes inside the mapping, lives as long as the TensorFile
  uint64_t num_bytes = 0;
  int file_index = 0;        // into TensorFile::files()
  uint64_t file_offset = 0;  // bytes from the start of that file
};

// A typed metadata value. Integer kinds are widened; arrays are homogeneous.
using MetaValue =
    std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                 std::vector<uint64_t>, std::vector<double>, std::vector<std::string>>;

enum class FileFormat { kGguf, kSafetensors };

class TensorFile {
 public:
  virtual ~TensorFile() = default;

  // `path`: a .gguf file, a .safetensors file, or a folder with config.json and *.safetensors
  // (model.safetensors.index.json is followed when present).
  // Throws Error{kBadFile} in one sentence naming file, tensor, found and wanted.
  static std::shared_ptr<const TensorFile> open(const std::string& path);

  FileFormat format() const { return format_; }
  const std::vector<std::string>& files() const { return files_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // sorted by name
  const TensorInfo* find(std::string_view name) const;                 // nullptr when absent

  // GGUF key-values as they stand ("llama.block_count"); for safetensors the scalars and arrays of
  // config.json flattened with dots ("rope_scaling.factor"), and "__metadata__.*" of the files.
  const std::map<std::string, MetaValue, std::less<>>& metadata() const { return metadata_; }

  // The tensor `name`, which must have this shape and one of these types.
  // Throws Error{kBadFile} naming file, tensor, found and wanted.
  const TensorInfo& require(std::string_view name, std::span<const int64_t> shape,
                            std::span<const DType> dtypes) const;

  // Tells the kernel that the pages of these bytes are not needed any more (after packing).
  // Only for tensors that lie in a file mapping: anonymous memory would lose its contents.
  virtual void drop_pages(const TensorInfo& tensor) const;

  // Copies bytes [begin, begin + into.size()) of the tensor. Where it lies in a file they do not come through
  // the mapping, so that rows read here and there leave no pages behind. Throws Error{kBadFile}.
  virtual void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> into) const;

 protected:
  FileFormat format_ = FileFormat::kGguf;
  std::vector<std::string> files_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, MetaValue, std::less<>> metadata_;
};

}  // namespace deepinfer
