// Sanitizers cost a factor of ten or more; long tests do less under them.
#pragma once

namespace deepinfer::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace deepinfer::testing
