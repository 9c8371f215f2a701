#include "constraint_probe.h"

#include <cstdint>

#include "deepinfer/status.h"

namespace deepinfer::bindings {
namespace {

void check_health(const ConstraintMatcher& matcher) {
  if (const std::string why = matcher.error(); !why.empty()) fail(ErrorCode::kBadRequest, why);
}

}  // namespace

void probe(ConstraintMatcher& matcher, const std::vector<bool>& special) {
  std::vector<uint32_t> mask((special.size() + 31) / 32);
  matcher.fill_mask(mask);
  check_health(matcher);
  for (size_t id = 0; id < special.size(); ++id) {
    const bool is_allowed = (mask[id / 32] >> (id % 32) & 1) != 0;
    if (!is_allowed || special[id]) continue;
    const bool is_taken = matcher.accept(static_cast<int32_t>(id));
    check_health(matcher);
    if (!is_taken) fail(ErrorCode::kBadRequest, "the engine refuses a token that it allows");
    if (!matcher.done()) matcher.fill_mask(mask);
    check_health(matcher);
    return;
  }
}

}  // namespace deepinfer::bindings
