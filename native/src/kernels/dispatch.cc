#include "kernels/dispatch.h"

#include <cstdlib>

#include "deepinfer/status.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace deepinfer::kernels {

#define DI_DECLARE(level)         \
  namespace level {               \
  extern const KernelTable table; \
  }
#if defined(DEEPINFER_HAVE_ISA_scalar)
DI_DECLARE(scalar)
#endif
#if defined(DEEPINFER_HAVE_ISA_avx2)
DI_DECLARE(avx2)
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512)
DI_DECLARE(avx512)
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512_vnni)
DI_DECLARE(avx512_vnni)
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512_bf16)
DI_DECLARE(avx512_bf16)
#endif
#if defined(DEEPINFER_HAVE_ISA_neon)
DI_DECLARE(neon)
#endif
#if defined(DEEPINFER_HAVE_ISA_neon_dotprod)
DI_DECLARE(neon_dotprod)
#endif
#undef DI_DECLARE

namespace {

struct Level {
  const KernelTable* table;
  bool (*can_run)();
};

#if defined(__x86_64__)
// Every feature that the compiler may use at -march=x86-64-v3 or v4, not only those we name.
bool has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") &&
         __builtin_cpu_supports("movbe");
}
bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_vnni() {
  return has_v4() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
bool is_intel() { return __builtin_cpu_is("intel"); }
bool has_bf16() { return has_vnni() && __builtin_cpu_supports("avx512bf16"); }
#endif
#if defined(__aarch64__)
constexpr unsigned long kHwcapFphp = 1ul << 9, kHwcapAsimdhp = 1ul << 10, kHwcapAsimddp = 1ul << 20;
bool has_dotprod() {
  const unsigned long wanted = kHwcapFphp | kHwcapAsimdhp | kHwcapAsimddp;
  return (getauxval(AT_HWCAP) & wanted) == wanted;
}
#endif
#if !defined(__x86_64__)
bool is_intel() { return false; }
#endif
bool always() { return true; }

const Level kLevels[] = {
#if defined(DEEPINFER_HAVE_ISA_scalar)
    {&scalar::table, always},
#endif
#if defined(DEEPINFER_HAVE_ISA_avx2)
    {&avx2::table, has_v3},
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512)
    {&avx512::table, has_v4},
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512_vnni)
    {&avx512_vnni::table, has_vnni},
#endif
#if defined(DEEPINFER_HAVE_ISA_avx512_bf16)
    {&avx512_bf16::table, has_bf16},
#endif
#if defined(DEEPINFER_HAVE_ISA_neon)
    {&neon::table, always},
#endif
#if defined(DEEPINFER_HAVE_ISA_neon_dotprod)
    {&neon_dotprod::table, has_dotprod},
#endif
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace

std::vector<std::string> available_levels() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) {
    if (level.can_run()) names.emplace_back(level.table->name);
  }
  return names;
}

std::string default_level() {
  const char* forced = std::getenv("DEEPINFER_ISA");
  if (forced != nullptr && *forced != '\0' && std::string(forced) != "auto") return forced;
  std::vector<std::string> levels = available_levels();
  // On Intel cores the bf16 dot runs at half the rate of the two fp32 multiply-adds that give the same bits.
  if (levels.back() == "avx512_bf16" && is_intel()) levels.pop_back();
  return levels.back();
}

const KernelTable& table_for(const std::string& name) {
  const std::string wanted = name.empty() || name == "auto" ? default_level() : name;
  for (const Level& level : kLevels) {
    if (wanted != level.table->name) continue;
    if (level.can_run()) return *level.table;
    fail(ErrorCode::kUnsupported, "this CPU cannot run kernel level ", wanted,
         "; it can run: ", joined(available_levels()));
  }
  fail(ErrorCode::kUnsupported, "unknown kernel level ", wanted,
       "; this CPU can run: ", joined(available_levels()));
}

}  // namespace deepinfer::kernels
