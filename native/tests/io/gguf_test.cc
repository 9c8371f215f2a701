#include "io/gguf.h"

#include "deepinfer/status.h"
#include "file_bytes.h"
#include "testing.h"

using namespace deepinfer;
using deepinfer::testing::as_file;
using deepinfer::testing::contains;
using deepinfer::testing::GgufBytes;

namespace {

constexpr uint32_t kF32 = 0, kQ4_1 = 3;

std::string refused(const std::string& bytes) {
  return deepinfer::testing::refusal([&] { return open_gguf(as_file(bytes)); });
}

GgufBytes small_file() {
  GgufBytes file;
  file.header(2, 4);
  file.entry("general.alignment", 4).number<uint32_t>(64);
  file.entry("name", 8).text("t\xC3\xAFny");
  file.entry("tokens", 9).number<uint32_t>(8).number<uint64_t>(2).text("a").text("");
  file.entry("scale", 6).number(0.5f);
  file.tensor("b", {32, 2}, kQ4_1, 64).tensor("a", {3}, kF32, 0).data(104, 64);
  return file;
}

}  // namespace

TEST(metadata_and_tensors_are_read) {
  const GgufBytes bytes = small_file();
  const auto file = open_gguf(as_file(bytes.bytes()));
  CHECK(std::get<uint64_t>(file->metadata().at("general.alignment")) == 64);
  CHECK(std::get<std::string>(file->metadata().at("name")) == "t\xC3\xAFny");
  CHECK(std::get<std::vector<std::string>>(file->metadata().at("tokens")) ==
        (std::vector<std::string>{"a", ""}));
  CHECK(std::get<double>(file->metadata().at("scale")) == 0.5);
  CHECK_EQ(file->tensors().size(), 2u);
  CHECK_EQ(file->tensors()[0].name, "a");
  const TensorInfo* b = file->find("b");
  CHECK(b != nullptr && b->dtype == DType::kQ4_1 && b->num_bytes == 40);
  CHECK(b->shape == (std::vector<int64_t>{2, 32}));  // outermost first
  CHECK(static_cast<unsigned>(b->data[0]) == 64u);   // the data's own bytes count up from 0
  CHECK(file->find("c") == nullptr && file->find("") == nullptr);
}

TEST(require_names_found_and_wanted) {
  const GgufBytes bytes = small_file();
  const auto file = open_gguf(as_file(bytes.bytes()));
  const std::vector<int64_t> shape = {2, 32}, other = {32, 2};
  const std::vector<DType> types = {DType::kQ4_1, DType::kF16};
  CHECK(&file->require("b", shape, types) == file->find("b"));
  const auto said = [&](const char* name, const std::vector<int64_t>& wanted) {
    return deepinfer::testing::refusal([&] { return file->require(name, wanted, types); });
  };
  CHECK_EQ(said("b", other), "test.file: tensor \"b\" is Q4_1 [2, 32], wanted Q4_1 or F16 [32, 2]");
  CHECK_EQ(said("a", {3}), "test.file: tensor \"a\" is F32 [3], wanted Q4_1 or F16 [3]");
  CHECK_EQ(said("zz", shape), "test.file: no tensor \"zz\", wanted Q4_1 or F16 [2, 32]");
}

TEST(every_truncation_is_refused) {
  const std::string whole = small_file().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    CHECK(!refused(cut).empty());
  }
  CHECK_EQ(refused(whole), "");
}

TEST(lengths_from_the_file_never_overflow) {
  CHECK(contains(refused(GgufBytes().header(UINT64_MAX, 0).bytes()), "tensors, more than 0 bytes can hold"));
  CHECK(contains(refused(GgufBytes().header(0, UINT64_MAX).bytes()), "metadata entries, more than"));
  const uint64_t huge = uint64_t{1} << 62;
  CHECK(contains(refused(GgufBytes().header(1, 0).tensor("w", {huge, huge}, kF32, 0).data(64).bytes()),
                 "63 bits"));
  CHECK(contains(refused(GgufBytes().header(1, 0).tensor("w", {huge}, kF32, 0).data(64).bytes()), "63 bits"));
  CHECK(contains(refused(GgufBytes().header(1, 0).tensor("w", {8}, kF32, UINT64_MAX - 31).data(64).bytes()),
                 "only 64 bytes of data"));
  CHECK(contains(refused(GgufBytes().header(1, 0).tensor("w", {2 * huge}, kF32, 0).data(64).bytes()),
                 "a dimension of 9223372036854775808"));
}

TEST(tensors_may_not_share_bytes_or_names) {
  CHECK(contains(
      refused(
          GgufBytes().header(2, 0).tensor("a", {16}, kF32, 0).tensor("b", {8}, kF32, 32).data(64).bytes()),
      "inside tensor \"a\""));
  CHECK(contains(
      refused(GgufBytes().header(2, 0).tensor("a", {8}, kF32, 0).tensor("a", {8}, kF32, 32).data(64).bytes()),
      "two tensors have the name \"a\""));
}

TEST(types_are_refused_by_name) {
  try {
    const std::string bytes = GgufBytes().header(1, 0).tensor("w", {256}, 21, 0).data(256).bytes();
    open_gguf(as_file(bytes));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(contains(error.what(), "tensor \"w\" is stored as IQ3_S, supported are F32"));
  }
}

TEST(dropped_pages_come_back_from_the_file) {
  const deepinfer::testing::TempFolder folder;
  GgufBytes bytes;
  bytes.header(1, 0).tensor("w", {65536}, kF32, 0).data(262144);
  const auto file = TensorFile::open(folder.write("x.gguf", bytes.bytes()));
  const TensorInfo& w = *file->find("w");
  const std::string before(reinterpret_cast<const char*>(w.data), w.num_bytes);
  file->drop_pages(w);
  CHECK(before == std::string_view(reinterpret_cast<const char*>(w.data), w.num_bytes));
}

TEST(read_is_what_the_mapping_shows_and_an_error_where_the_file_has_shrunk) {
  const deepinfer::testing::TempFolder folder;
  GgufBytes bytes;
  bytes.header(1, 0).tensor("w", {65536}, kF32, 0).data(262144);
  std::string content = bytes.bytes();
  for (size_t i = content.size() - 262144; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  const std::string path = folder.write("x.gguf", content);
  const auto file = TensorFile::open(path);
  const TensorInfo& w = *file->find("w");
  std::vector<std::byte> part(5000);
  file->read(w, 100'001, part);
  CHECK(std::equal(part.begin(), part.end(), w.data + 100'001));
  std::filesystem::resize_file(path, content.size() - 200'000);
  CHECK(contains(deepinfer::testing::refusal([&] { file->read(w, 100'001, part); }), "shorter"));
}

TEST_MAIN()
