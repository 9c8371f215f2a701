// build_info(): how this extension was built, for `deepinfer --version` and the run file.
#include <string>

#include "bind.h"
#include "deepinfer/version.h"

namespace nb = nanobind;

namespace deepinfer::bindings {

void bind_build_info(nb::module_& m) {
  m.def(
      "build_info",
      [] {
        nb::dict info;
        info["version"] = version();
        info["build_type"] = DEEPINFER_BUILD_TYPE;
        info["commit"] = DEEPINFER_BUILD_COMMIT;
#if defined(__clang__)
        info["compiler"] = "clang " __clang_version__;
#else
        info["compiler"] = "gcc " __VERSION__;
#endif
        return info;
      },
      "Facts about the build: version, build_type, commit (may be empty), compiler.");
}

}  // namespace deepinfer::bindings
