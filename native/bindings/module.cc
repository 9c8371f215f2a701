// The Python extension: views, the GIL and exception mapping; no logic. One bind_*.cc per area.
#include <nanobind/nanobind.h>

#include "bind.h"

NB_MODULE(_native, m) {
  m.doc() = "Native core of deepinfer.";
  // A run that is interrupted leaves objects behind; stderr is for the user, who did nothing wrong.
  nanobind::set_leak_warnings(false);
  deepinfer::bindings::bind_errors(m);
  deepinfer::bindings::bind_build_info(m);
  deepinfer::bindings::bind_rows(m);
  deepinfer::bindings::bind_files(m);
  deepinfer::bindings::bind_text(m);
  deepinfer::bindings::bind_constraint(m);
  deepinfer::bindings::bind_engine(m);
  deepinfer::bindings::bind_cpu(m);
  deepinfer::bindings::bind_quality(m);
  deepinfer::bindings::bind_measure(m);
}
