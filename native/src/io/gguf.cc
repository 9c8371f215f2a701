#include "io/gguf.h"

#include <bit>
#include <cstring>

#include "deepinfer/status.h"
#include "io/gguf_types.h"
#include "io/quote.h"
#include "io/tensor_size.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they stand");

// Far above every published model; they bound what a hostile header can make us allocate.
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint64_t kMaxKeyValues = 100'000;
constexpr uint64_t kMaxArrayLength = 16'777'216;
constexpr size_t kMaxNameBytes = 4096;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32, kLeastAlignment = 8, kMostAlignment = 1 << 20;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const utf8::Piece piece = utf8::classify(text);
    if (piece.form != utf8::Form::kComplete) return false;
    text.remove_prefix(piece.length);
  }
  return true;
}

// Reads forward through the file; every length is checked against what is left before it is used.
class Cursor {
 public:
  Cursor(const MappedFile& file) : file_(file) {}

  size_t position() const { return pos_; }
  size_t left() const { return file_.size() - pos_; }
  void set_subject(std::string what) { what_ = std::move(what); }

  template <typename... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorCode::kBadFile, file_.path(), ": ", what_, parts...);
  }

  const std::byte* take(uint64_t num_bytes) {
    if (num_bytes > left()) {
      bad(" needs ", num_bytes, " bytes at byte ", pos_, ", but the file ends at byte ", file_.size());
    }
    const std::byte* at = file_.data() + pos_;
    pos_ += num_bytes;
    return at;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string_view text() {
    const auto length = number<uint64_t>();
    return {reinterpret_cast<const char*>(take(length)), length};
  }
  // A key or tensor name.
  std::string_view name() {
    const std::string_view name = text();
    if (name.empty() || name.size() > kMaxNameBytes) {
      bad(" has a name of ", name.size(), " bytes, wanted 1 to ", kMaxNameBytes);
    }
    if (!is_utf8(name)) bad(" has a name that is not UTF-8: ", quote(name));
    return name;
  }
  bool boolean() {
    const auto value = number<uint8_t>();
    if (value > 1) bad(" is the truth value ", int{value}, ", wanted 0 or 1");
    return value != 0;
  }

 private:
  const MappedFile& file_;
  size_t pos_ = 0;
  std::string what_ = "the header";
};

class GgufFile : public TensorFile {
 public:
  explicit GgufFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)), cursor_(*file_) {
    format_ = FileFormat::kGguf;
    files_ = {file_->path()};
    read_header();
    for (uint64_t i = 0; i < num_key_values_; ++i) read_key_value(i);
    refuse_parts();
    read_alignment();
    tensors_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) read_tensor(i);
    place_tensors();
    finish_tensors(tensors_, files_);
  }
  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> into) const override {
    file_->read(tensor.file_offset + begin, into);
  }

 private:
  void read_header();
  void read_key_value(uint64_t index);
  MetaValue read_scalar(uint32_t type);
  MetaValue read_array();
  void refuse_parts() const;
  void read_alignment();
  void read_tensor(uint64_t index);
  void place_tensors();

  // Wide: uint64_t, int64_t or double. Stored: the type in the file.
  template <typename Wide, typename Stored>
  std::vector<Wide> read_numbers(uint64_t count) {
    const std::byte* at = cursor_.take(count * sizeof(Stored));  // count is at most kMaxArrayLength
    std::vector<Wide> out(count);
    for (uint64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, at + i * sizeof value, sizeof value);
      out[i] = static_cast<Wide>(value);
    }
    return out;
  }

  std::unique_ptr<MappedFile> file_;
  Cursor cursor_;
  uint64_t num_tensors_ = 0;
  uint64_t num_key_values_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
};

void GgufFile::read_header() {
  constexpr uint64_t kLeastKeyValueBytes = 8 + 1 + 4 + 1, kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
  cursor_.take(4);  // the magic, which open() has seen
  const auto version = cursor_.number<uint32_t>();
  if (version != 0 && (version & 0xFFFF) == 0) cursor_.bad(" is big-endian, wanted little-endian");
  if (version != 2 && version != 3) cursor_.bad(" says version ", version, ", wanted 2 or 3");
  num_tensors_ = cursor_.number<uint64_t>();
  num_key_values_ = cursor_.number<uint64_t>();
  if (num_tensors_ > kMaxTensors || num_tensors_ > cursor_.left() / kLeastTensorBytes) {
    cursor_.bad(" says ", num_tensors_, " tensors, more than ", cursor_.left(), " bytes can hold");
  }
  if (num_key_values_ > kMaxKeyValues || num_key_values_ > cursor_.left() / kLeastKeyValueBytes) {
    cursor_.bad(" says ", num_key_values_, " metadata entries, more than ", cursor_.left(),
                " bytes can hold");
  }
}

void GgufFile::read_key_value(uint64_t index) {
  cursor_.set_subject(str_cat("metadata entry ", index));
  const std::string_view key = cursor_.name();
  cursor_.set_subject(str_cat("metadata ", quote(key)));
  const auto type = cursor_.number<uint32_t>();
  MetaValue value = type == static_cast<uint32_t>(GgufValueType::kArray) ? read_array() : read_scalar(type);
  if (!metadata_.emplace(key, std::move(value)).second) cursor_.bad(" is there twice");
}

MetaValue GgufFile::read_scalar(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8: return uint64_t{cursor_.number<uint8_t>()};
    case GgufValueType::kI8: return int64_t{cursor_.number<int8_t>()};
    case GgufValueType::kU16: return uint64_t{cursor_.number<uint16_t>()};
    case GgufValueType::kI16: return int64_t{cursor_.number<int16_t>()};
    case GgufValueType::kU32: return uint64_t{cursor_.number<uint32_t>()};
    case GgufValueType::kI32: return int64_t{cursor_.number<int32_t>()};
    case GgufValueType::kU64: return cursor_.number<uint64_t>();
    case GgufValueType::kI64: return cursor_.number<int64_t>();
    case GgufValueType::kF32: return double{cursor_.number<float>()};
    case GgufValueType::kF64: return cursor_.number<double>();
    case GgufValueType::kBool: return cursor_.boolean();
    case GgufValueType::kString: return std::string(cursor_.text());
    case GgufValueType::kArray: break;
  }
  cursor_.bad(" has the value type ", type, ", wanted 0 to 12");
}

MetaValue GgufFile::read_array() {
  const auto type = cursor_.number<uint32_t>();
  const auto count = cursor_.number<uint64_t>();
  if (count > kMaxArrayLength)
    cursor_.bad(" is an array of ", count, " values, wanted at most ", kMaxArrayLength);
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8: return read_numbers<uint64_t, uint8_t>(count);
    case GgufValueType::kI8: return read_numbers<int64_t, int8_t>(count);
    case GgufValueType::kU16: return read_numbers<uint64_t, uint16_t>(count);
    case GgufValueType::kI16: return read_numbers<int64_t, int16_t>(count);
    case GgufValueType::kU32: return read_numbers<uint64_t, uint32_t>(count);
    case GgufValueType::kI32: return read_numbers<int64_t, int32_t>(count);
    case GgufValueType::kU64: return read_numbers<uint64_t, uint64_t>(count);
    case GgufValueType::kI64: return read_numbers<int64_t, int64_t>(count);
    case GgufValueType::kF32: return read_numbers<double, float>(count);
    case GgufValueType::kF64: return read_numbers<double, double>(count);
    case GgufValueType::kBool: {
      if (count > cursor_.left()) cursor_.take(count);  // fails before anything is allocated
      std::vector<bool> out(count);
      for (uint64_t i = 0; i < count; ++i) out[i] = cursor_.boolean();
      return out;
    }
    case GgufValueType::kString: {
      constexpr uint64_t kLeastBytes = 8;
      if (count > cursor_.left() / kLeastBytes) cursor_.take(count * kLeastBytes);
      std::vector<std::string> out;
      out.reserve(count);
      for (uint64_t i = 0; i < count; ++i) out.emplace_back(cursor_.text());
      return out;
    }
    case GgufValueType::kArray: cursor_.bad(" is an array of arrays, wanted an array of plain values");
  }
  cursor_.bad(" is an array of value type ", type, ", wanted 0 to 12");
}

void GgufFile::refuse_parts() const {
  const auto at = metadata_.find("split.count");
  const auto* count = at == metadata_.end() ? nullptr : std::get_if<uint64_t>(&at->second);
  if (count != nullptr && *count > 1) {
    fail(ErrorCode::kUnsupported, file_->path(), ": this is one of ", *count,
         " parts, and only a GGUF file in one part is read; merge the parts first");
  }
}

void GgufFile::read_alignment() {
  const auto at = metadata_.find("general.alignment");
  if (at == metadata_.end()) return;
  cursor_.set_subject("metadata \"general.alignment\"");
  const auto* value = std::get_if<uint64_t>(&at->second);
  if (value == nullptr) cursor_.bad(" is not an unsigned integer");
  if (!std::has_single_bit(*value) || *value < kLeastAlignment || *value > kMostAlignment) {
    cursor_.bad(" is ", *value, ", wanted a power of two from ", kLeastAlignment, " to ", kMostAlignment);
  }
  alignment_ = *value;
}

void GgufFile::read_tensor(uint64_t index) {
  cursor_.set_subject(str_cat("tensor ", index));
  TensorInfo tensor;
  tensor.name = cursor_.name();
  cursor_.set_subject("tensor " + quote(tensor.name));
  const auto num_dims = cursor_.number<uint32_t>();
  if (num_dims < 1 || num_dims > kMaxDims)
    cursor_.bad(" has ", num_dims, " dimensions, wanted 1 to ", kMaxDims);
  tensor.shape.resize(num_dims);
  for (uint32_t d = 0; d < num_dims; ++d) {  // innermost first in the file
    const auto dim = cursor_.number<uint64_t>();
    if (dim == 0 || dim > INT64_MAX) cursor_.bad(" has a dimension of ", dim, ", wanted 1 to ", INT64_MAX);
    tensor.shape[num_dims - 1 - d] = static_cast<int64_t>(dim);
  }
  const auto type = cursor_.number<uint32_t>();
  const std::optional<DType> dtype = gguf_dtype(type);
  if (!dtype) {
    fail(ErrorCode::kUnsupported, file_->path(), ": tensor ", quote(tensor.name), " is stored as ",
         gguf_type_name(type), ", supported are ", gguf_supported_types());
  }
  tensor.dtype = *dtype;
  const DTypeInfo& info = dtype_info(*dtype);
  if (tensor.shape.back() % info.block_elems != 0) {
    cursor_.bad(" has rows of ", tensor.shape.back(), " values, wanted a multiple of ", info.block_elems,
                " for ", info.name);
  }
  const std::optional<uint64_t> num_bytes = tensor_bytes(tensor.shape, *dtype);
  if (!num_bytes)
    cursor_.bad(" of shape ", show_shape(tensor.shape), " has more bytes than 63 bits can count");
  tensor.num_bytes = *num_bytes;
  tensor.file_offset = cursor_.number<uint64_t>();  // still from the start of the data
  tensors_.push_back(std::move(tensor));
}

void GgufFile::place_tensors() {
  const uint64_t data_begin = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
  const uint64_t num_data_bytes = data_begin < file_->size() ? file_->size() - data_begin : 0;
  for (TensorInfo& tensor : tensors_) {
    cursor_.set_subject("tensor " + quote(tensor.name));
    const uint64_t offset = tensor.file_offset;
    if (offset % alignment_ != 0)
      cursor_.bad(" begins at offset ", offset, ", wanted a multiple of ", alignment_);
    if (offset > num_data_bytes || tensor.num_bytes > num_data_bytes - offset) {
      cursor_.bad(" has ", tensor.num_bytes, " bytes at offset ", offset, ", but the file has only ",
                  num_data_bytes, " bytes of data");
    }
    tensor.file_offset = data_begin + offset;
    tensor.data = file_->data() + tensor.file_offset;
  }
}

}  // namespace

std::shared_ptr<const TensorFile> open_gguf(std::unique_ptr<MappedFile> file) {
  return std::make_shared<GgufFile>(std::move(file));
}

}  // namespace deepinfer
