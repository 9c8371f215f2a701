#include "io/safetensors.h"

#include "deepinfer/status.h"
#include "file_bytes.h"
#include "testing.h"

using namespace deepinfer;
using deepinfer::testing::as_file;
using deepinfer::testing::contains;
using deepinfer::testing::safetensors_bytes;
using deepinfer::testing::TempFolder;

namespace {

std::string refused(const std::string& header, size_t num_data_bytes) {
  const std::string bytes = safetensors_bytes(header, num_data_bytes);
  return deepinfer::testing::refusal([&] { return open_safetensors_file(as_file(bytes)); });
}

constexpr const char* kOne = R"({"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";

}  // namespace

TEST(a_file_is_read) {
  const std::string bytes = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[20,20]}})",
      12 + 8);
  const auto file = open_safetensors_file(as_file(bytes));
  CHECK_EQ(file->tensors().size(), 3u);
  CHECK(file->find("b")->dtype == DType::kBF16 && file->find("b")->num_bytes == 12);
  CHECK(file->find("a")->shape.empty() && file->find("a")->num_bytes == 8);
  CHECK(file->find("e")->num_bytes == 0);
  CHECK(std::get<std::string>(file->metadata().at("__metadata__.format")) == "pt");
}

TEST(headers_are_not_believed) {
  CHECK(contains(refused(kOne, 7), "ends at offset 8, but the file has only 7 bytes"));
  CHECK(contains(refused(kOne, 9), "the tensors end at byte"));
  CHECK(contains(refused(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
                 "63 bits"));
  CHECK(contains(refused(R"({"w":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8),
                 "not a whole number"));
  CHECK(contains(refused(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{}})", 8),
                 "appears twice"));
  CHECK(contains(refused("{\"w\":" + std::string(100000, '['), 0), "nested deeper"));
  const std::string bomb = "{\"w\":[" + std::string(9'000'000, ' ') + "]}";
  CHECK(contains(refused(bomb, 0), "is an array, wanted an object"));
}

TEST(a_folder_needs_its_config_and_shards) {
  const TempFolder folder;
  const auto open = [&] { return TensorFile::open(folder.path()); };
  CHECK(contains(deepinfer::testing::refusal(open), "found no config.json"));
  folder.write("config.json", R"({"hidden_size": 4, "rope": {"factor": 2}})");
  CHECK(contains(deepinfer::testing::refusal(open), "no .safetensors file"));
  folder.write("a.safetensors", safetensors_bytes(kOne, 8));
  CHECK_EQ(open()->tensors().size(), 1u);
  CHECK(std::get<int64_t>(open()->metadata().at("rope.factor")) == 2);
  folder.write("model.safetensors.index.json", R"({"weight_map": {"w": "../a.safetensors"}})");
  CHECK(contains(deepinfer::testing::refusal(open), "wanted the name of a .safetensors file in this folder"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"w": "b.safetensors"}})");
  CHECK(contains(deepinfer::testing::refusal(open), "b.safetensors: No such file"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"w": "a.safetensors"}})");
  CHECK_EQ(open()->tensors().size(), 1u);
}

TEST_MAIN()
