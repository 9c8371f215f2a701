#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bind.h"
#include "deepinfer/divergence.h"
#include "deepinfer/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void bind_quality(nb::module_& m) {
  m.def(
      "logit_divergence",
      [](const Row& base, const Row& other) {
        if (base.size() != other.size()) {
          throw Error(ErrorCode::kBadRequest, "rows of logits differ in length");
        }
        const LogitDivergence d =
            logit_divergence(base.data(), other.data(), static_cast<int32_t>(base.size()));
        return std::make_tuple(d.kl, d.base_token, d.other_token);
      },
      "base"_a, "other"_a);
}

}  // namespace deepinfer::bindings
