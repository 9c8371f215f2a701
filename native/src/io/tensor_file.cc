#include "deepinfer/tensor_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "deepinfer/status.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "io/quote.h"
#include "io/safetensors.h"
#include "io/tensor_size.h"

namespace deepinfer {
namespace {

bool is_folder(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string first_bytes(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    out += {kDigits[byte >> 4], kDigits[byte & 15], ' '};
  }
  if (!out.empty()) out.pop_back();
  return out;
}

std::string show_types(std::span<const DType> dtypes) {
  std::string out;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    out += i == 0 ? "" : i + 1 == dtypes.size() ? " or " : ", ";
    out += dtype_info(dtypes[i]).name;
  }
  return out;
}

}  // namespace

std::shared_ptr<const TensorFile> TensorFile::open(const std::string& path) {
  if (path.find('\0') != path.npos) fail(ErrorCode::kBadFile, quote(path), ": a path cannot hold a NUL byte");
  if (is_folder(path)) return open_safetensors_folder(path);
  auto file = std::make_unique<MappedFile>(path);
  const std::string_view text = file->text();
  if (text.starts_with("GGUF")) return open_gguf(std::move(file));
  if (looks_like_safetensors(text)) return open_safetensors_file(std::move(file));
  if (text.starts_with("version https://git-lfs")) {
    fail(ErrorCode::kBadFile, path, ": this is a Git LFS pointer, not the model file that it stands for");
  }
  if (path.ends_with(".safetensors")) return open_safetensors_file(std::move(file));  // says what is wrong
  fail(ErrorCode::kBadFile, path,
       ": expected a GGUF file (first bytes 47 47 55 46) or a safetensors file, found ", first_bytes(text));
}

const TensorInfo* TensorFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

const TensorInfo& TensorFile::require(std::string_view name, std::span<const int64_t> shape,
                                      std::span<const DType> dtypes) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    const std::string more = files_.size() > 1 ? str_cat(" and ", files_.size() - 1, " more") : "";
    fail(ErrorCode::kBadFile, files_.at(0), more, ": no tensor ", quote(name), ", wanted ",
         show_types(dtypes), " ", show_shape(shape));
  }
  const bool right_shape = std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end());
  const bool right_type = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end();
  if (right_shape && right_type) return *tensor;
  fail(ErrorCode::kBadFile, files_.at(static_cast<size_t>(tensor->file_index)), ": tensor ", quote(name),
       " is ", dtype_info(tensor->dtype).name, " ", show_shape(tensor->shape), ", wanted ",
       show_types(dtypes), " ", show_shape(shape));
}

void TensorFile::drop_pages(const TensorInfo& tensor) const {
  // Whole pages inside the tensor only: its first and last page may hold its neighbours' bytes.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + tensor.num_bytes) / page * page;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void TensorFile::read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> into) const {
  std::memcpy(into.data(), tensor.data + begin, into.size());
}

void finish_tensors(std::vector<TensorInfo>& tensors, const std::vector<std::string>& files) {
  const auto file_of = [&](const TensorInfo& t) -> const std::string& {
    return files.at(static_cast<size_t>(t.file_index));
  };
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.file_index, a.file_offset, a.num_bytes) <
           std::tie(b.file_index, b.file_offset, b.num_bytes);
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const TensorInfo &a = tensors[i - 1], &b = tensors[i];
    if (a.file_index == b.file_index && a.file_offset + a.num_bytes > b.file_offset) {
      fail(ErrorCode::kBadFile, file_of(b), ": tensor ", quote(b.name), " begins at byte ", b.file_offset,
           ", inside tensor ", quote(a.name), ", which ends at byte ", a.file_offset + a.num_bytes);
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const TensorInfo &a = tensors[i - 1], &b = tensors[i];
    if (a.name != b.name) continue;
    const std::string elsewhere =
        a.file_index == b.file_index ? "" : str_cat(" (it is also in ", file_of(a), ")");
    fail(ErrorCode::kBadFile, file_of(b), ": two tensors have the name ", quote(b.name), elsewhere);
  }
}

}  // namespace deepinfer
