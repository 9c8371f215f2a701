// A small stand-in for libFuzzer: runs every corpus file, then mutations of them from a fixed seed. It
// follows no coverage; it is there so that every compiler runs the targets, and the same way each time.
//
//   NAME_fuzz [FILE|FOLDER]... [-runs=N] [-seed=S] [-max_total_time=SECONDS]
//
// A folder that is not there counts as empty. An input that crashes is left in crash-SEED-RUN.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<uint8_t>;
constexpr size_t kMaxBytes = 4096;

const Input* running = nullptr;
uint64_t run_seed = 1;
uint64_t run_number = 0;

void save_crash() {
  if (running == nullptr) return;
  char name[80];
  std::snprintf(name, sizeof name, "crash-%llu-%llu", static_cast<unsigned long long>(run_seed),
                static_cast<unsigned long long>(run_number));
  if (FILE* file = std::fopen(name, "wb")) {
    std::fwrite(running->data(), 1, running->size(), file);
    std::fclose(file);
  }
  std::fprintf(stderr, "input saved in %s\n", name);
  running = nullptr;
}

void on_signal(int number) {
  save_crash();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void run(const Input& input) {
  // A copy of exactly this size, so that a sanitizer sees the first byte that is read past the end.
  const Input exact(input.begin(), input.end());
  running = &exact;
  try {
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the target threw: %s\n", error.what());
    std::abort();
  }
  running = nullptr;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (size_t edits = 1 + below(4); edits > 0; --edits) edit(input);
    input.resize(std::min(input.size(), kMaxBytes));
    return input;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  auto at(Input& input, size_t index) { return input.begin() + static_cast<std::ptrdiff_t>(index); }

  void edit(Input& input) {
    const size_t where = below(input.size() + 1);
    const size_t left = input.size() - where;
    switch (below(7)) {
      case 0:
        if (left > 0) input[where] = static_cast<uint8_t>(random_());
        return;
      case 1:
        if (left > 0) input[where] ^= static_cast<uint8_t>(1u << below(8));
        return;
      case 2: input.erase(at(input, where), at(input, where + below(std::min<size_t>(left, 16) + 1))); return;
      case 3: input.resize(where); return;
      case 4: insert_piece(input, where, input); return;
      case 5: insert_piece(input, where, corpus_[below(corpus_.size())]); return;
      default: write_number(input, where);
    }
  }

  void insert_piece(Input& input, size_t where, const Input& from) {
    const size_t begin = below(from.size() + 1);
    const size_t length = below(std::min<size_t>(from.size() - begin, 64) + 1);
    const Input piece(from.begin() + static_cast<std::ptrdiff_t>(begin),
                      from.begin() + static_cast<std::ptrdiff_t>(begin + length));
    input.insert(at(input, where), piece.begin(), piece.end());
  }

  // Sizes and counts at their edges, in the widths that headers use.
  void write_number(Input& input, size_t where) {
    constexpr uint64_t kEdges[] = {0,
                                   1,
                                   7,
                                   31,
                                   32,
                                   255,
                                   256,
                                   65535,
                                   0x7FFFFFFF,
                                   0x80000000,
                                   0xFFFFFFFF,
                                   uint64_t{1} << 40,
                                   uint64_t{1} << 62,
                                   uint64_t{1} << 63,
                                   UINT64_MAX - 7,
                                   UINT64_MAX};
    const uint64_t number = kEdges[below(std::size(kEdges))] + below(3) - 1;
    const size_t width = size_t{1} << below(4);
    if (where + width <= input.size()) std::memcpy(input.data() + where, &number, width);
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

void load(const std::filesystem::path& path, std::vector<Input>& corpus) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) load(file, corpus);
  } else if (std::filesystem::is_regular_file(path)) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
}

bool option(const char* argument, const char* name, uint64_t& value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0 || argument[length] != '=') return false;
  value = std::strtoull(argument + length + 1, nullptr, 10);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 10000, seconds = 0;
  std::vector<Input> corpus;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') {
      load(argv[i], corpus);
    } else if (!option(argv[i], "-runs", runs) && !option(argv[i], "-seed", run_seed) &&
               !option(argv[i], "-max_total_time", seconds)) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_crash);
  if (corpus.empty()) corpus.emplace_back();
  for (const Input& input : corpus) run(input);
  Mutator mutator(corpus, run_seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (run_number = 1; seconds != 0 || run_number <= runs; ++run_number) {
    if (seconds != 0 && run_number % 64 == 0 && std::chrono::steady_clock::now() >= end) break;
    run(mutator.next());
  }
  std::printf("%zu corpus inputs, %llu mutations, seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(run_number - 1), static_cast<unsigned long long>(run_seed));
  return 0;
}
