#include "io/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/json.h"
#include "deepinfer/status.h"
#include "io/quote.h"
#include "io/tensor_size.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they stand");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 8;

std::optional<DType> parse_dtype(std::string_view name) {
  constexpr DType kTypes[] = {DType::kF64, DType::kF32,  DType::kF16,     DType::kBF16,
                              DType::kI64, DType::kI32,  DType::kI16,     DType::kI8,
                              DType::kU8,  DType::kBool, DType::kF8_E4M3, DType::kF8_E8M0};
  for (const DType type : kTypes) {
    if (name == dtype_info(type).name) return type;
  }
  return std::nullopt;
}

class HeaderReader {
 public:
  HeaderReader(const MappedFile& file, int file_index) : file_(file), file_index_(file_index) {}

  SafetensorsHeader read() {
    const JsonValue root = parse();
    SafetensorsHeader header;
    for (const auto& [name, value] : *root.get<JsonObject>()) {
      if (name == "__metadata__") {
        read_metadata(value, header);
      } else {
        header.tensors.push_back(read_tensor(name, value));
      }
    }
    check_coverage(header.tensors);
    return header;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorCode::kBadFile, file_.path(), ": ", parts...);
  }

  JsonValue parse() {
    if (file_.size() < 8) bad("expected 8 bytes of header length, found ", file_.size(), " bytes in all");
    uint64_t num_header_bytes = 0;
    std::memcpy(&num_header_bytes, file_.data(), 8);
    const uint64_t most = std::min<uint64_t>(kMaxHeaderBytes, file_.size() - 8);
    if (num_header_bytes > most) {
      bad("the header says it has ", num_header_bytes, " bytes, wanted at most ", most, " in a file of ",
          file_.size());
    }
    data_begin_ = 8 + num_header_bytes;
    num_data_bytes_ = file_.size() - data_begin_;
    JsonValue root;
    JsonFault fault;
    if (!parse_json(file_.text().substr(8, num_header_bytes), JsonLimits{.max_depth = 8}, root, fault)) {
      bad("the header is not as wanted at byte ", 8 + fault.offset, ": ", fault.message);
    }
    if (root.get<JsonObject>() == nullptr) bad("the header is ", root.type_name(), ", wanted an object");
    return root;
  }

  void read_metadata(const JsonValue& value, SafetensorsHeader& header) const {
    const auto* object = value.get<JsonObject>();
    if (object == nullptr) bad("\"__metadata__\" is ", value.type_name(), ", wanted an object");
    for (const auto& [key, entry] : *object) {
      const auto* text = entry.get<std::string>();
      if (text == nullptr)
        bad("\"__metadata__\" entry ", quote(key), " is ", entry.type_name(), ", wanted a string");
      header.metadata.emplace(key, *text);
    }
  }

  TensorInfo read_tensor(const std::string& name, const JsonValue& value) const {
    const std::string subject = "tensor " + quote(name);
    const auto* object = value.get<JsonObject>();
    if (object == nullptr) bad(subject, " is ", value.type_name(), ", wanted an object");
    for (const auto& [key, entry] : *object) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        bad(subject, " has an unknown key ", quote(key));
    }
    TensorInfo tensor;
    tensor.name = name;
    tensor.file_index = file_index_;
    tensor.dtype = read_dtype(subject, value.find("dtype"));
    tensor.shape = read_shape(subject, value.find("shape"));
    const std::optional<uint64_t> num_bytes = tensor_bytes(tensor.shape, tensor.dtype);
    if (!num_bytes)
      bad(subject, " of shape ", show_shape(tensor.shape), " has more bytes than 63 bits can count");
    tensor.num_bytes = *num_bytes;
    place(subject, value.find("data_offsets"), tensor);
    return tensor;
  }

  DType read_dtype(const std::string& subject, const JsonValue* value) const {
    const auto* name = value == nullptr ? nullptr : value->get<std::string>();
    if (name == nullptr) bad(subject, " has no \"dtype\" string");
    const std::optional<DType> dtype = parse_dtype(*name);
    if (!dtype) {
      fail(ErrorCode::kUnsupported, file_.path(), ": ", subject, " is stored as ", quote(*name),
           ", supported are F64, F32, F16, BF16, F8_E4M3, F8_E8M0, I64, I32, I16, I8, U8, BOOL");
    }
    return *dtype;
  }

  std::vector<int64_t> read_shape(const std::string& subject, const JsonValue* value) const {
    const auto* array = value == nullptr ? nullptr : value->get<JsonArray>();
    if (array == nullptr) bad(subject, " has no \"shape\" array");
    if (array->size() > kMaxDims)
      bad(subject, " has ", array->size(), " dimensions, wanted at most ", kMaxDims);
    std::vector<int64_t> shape;
    for (const JsonValue& entry : *array) {
      const auto* dim = entry.get<int64_t>();
      if (dim == nullptr || *dim < 0)
        bad(subject, " has a dimension that is not a whole number from 0 to 2^63 - 1");
      shape.push_back(*dim);
    }
    return shape;
  }

  void place(const std::string& subject, const JsonValue* value, TensorInfo& tensor) const {
    const auto* array = value == nullptr ? nullptr : value->get<JsonArray>();
    const bool is_pair = array != nullptr && array->size() == 2;
    const auto* begin = is_pair ? (*array)[0].get<int64_t>() : nullptr;
    const auto* end = is_pair ? (*array)[1].get<int64_t>() : nullptr;
    if (begin == nullptr || end == nullptr || *begin < 0 || *end < *begin) {
      bad(subject, " has no \"data_offsets\" of two ascending whole numbers");
    }
    if (static_cast<uint64_t>(*end) > num_data_bytes_) {
      bad(subject, " ends at offset ", *end, ", but the file has only ", num_data_bytes_, " bytes of data");
    }
    const auto num_bytes = static_cast<uint64_t>(*end - *begin);
    if (num_bytes != tensor.num_bytes) {
      bad(subject, " has ", num_bytes, " bytes, wanted ", tensor.num_bytes, " for ",
          dtype_info(tensor.dtype).name, " ", show_shape(tensor.shape));
    }
    tensor.file_offset = data_begin_ + static_cast<uint64_t>(*begin);
    tensor.data = file_.data() + tensor.file_offset;
    const auto unit = static_cast<uint64_t>(dtype_info(tensor.dtype).block_bytes);
    if (tensor.file_offset % unit != 0 && num_bytes != 0) {
      bad(subject, " begins at byte ", tensor.file_offset, ", wanted a multiple of ", unit, " for ",
          dtype_info(tensor.dtype).name);
    }
  }

  // The format allows neither gaps nor bytes behind the last tensor: nothing may hide in them.
  void check_coverage(const std::vector<TensorInfo>& tensors) const {
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
      return std::pair(a->file_offset, a->num_bytes) < std::pair(b->file_offset, b->num_bytes);
    });
    uint64_t next = data_begin_;
    for (const TensorInfo* tensor : order) {
      if (tensor->file_offset > next) {
        bad("tensor ", quote(tensor->name), " begins at byte ", tensor->file_offset, ", wanted ", next,
            ", where the data before it ends");
      }
      // An overlap is reported by finish_tensors(), which can name both.
      next = std::max(next, tensor->file_offset + tensor->num_bytes);
    }
    if (next != file_.size()) {
      bad("the tensors end at byte ", next, ", but the file has ", file_.size(), " bytes");
    }
  }

  const MappedFile& file_;
  int file_index_;
  uint64_t data_begin_ = 0;
  uint64_t num_data_bytes_ = 0;
};

}  // namespace

SafetensorsHeader read_safetensors_header(const MappedFile& file, int file_index) {
  return HeaderReader(file, file_index).read();
}

}  // namespace deepinfer
