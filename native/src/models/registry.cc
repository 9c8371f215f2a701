// The families, as a literal table.
#include <utility>

#include "deepinfer/status.h"
#include "models/llama/llama.h"
#include "models/metadata.h"
#include "models/model.h"

namespace deepinfer::models {
namespace {

struct Family {
  const char* gguf_architecture;  // general.architecture
  const char* hf_architecture;    // config.json, architectures[0]
  std::unique_ptr<Model> (*create)(const std::shared_ptr<const TensorFile>&, const ModelOptions&);
};

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", llama::create},
};

const char* name_in(const TensorFile& file, const Family& family) {
  return file.format() == FileFormat::kGguf ? family.gguf_architecture : family.hf_architecture;
}

}  // namespace

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    names.emplace_back(family.gguf_architecture);
    names.emplace_back(family.hf_architecture);
  }
  return names;
}

std::string architecture_of(const TensorFile& file) {
  const Metadata metadata(file);
  if (file.format() == FileFormat::kGguf) return metadata.text_or("general.architecture", "");
  const auto it = file.metadata().find("architectures");
  if (it == file.metadata().end()) return "";
  const auto* names = std::get_if<std::vector<std::string>>(&it->second);
  return names != nullptr && !names->empty() ? names->front() : "";
}

std::unique_ptr<Model> create_model(const std::shared_ptr<const TensorFile>& file,
                                    const ModelOptions& options) {
  const std::string architecture = architecture_of(*file);
  std::string supported;
  for (const Family& family : kFamilies) {
    if (architecture == name_in(*file, family)) return family.create(file, options);
    supported += str_cat(supported.empty() ? "" : ", ", name_in(*file, family));
  }
  const std::string where = file->files().empty() ? "the model" : file->files().front();
  if (architecture.empty()) fail(ErrorCode::kBadFile, where, ": no architecture is named in its metadata");
  fail(ErrorCode::kUnsupported, where, ": architecture ", architecture,
       " is not supported; supported: ", supported);
}

}  // namespace deepinfer::models
