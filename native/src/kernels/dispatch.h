// Which kernel levels this build has, which this CPU can run, and the table of one of them.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace deepinfer::kernels {

// Names of the levels that this build has and this CPU can run, simplest first.
std::vector<std::string> available_levels();

// The fastest level here, or the one named by the environment variable DEEPINFER_ISA.
std::string default_level();

// `name`: a level, or empty for default_level(). Throws Error{kUnsupported} naming the levels there are.
const KernelTable& table_for(const std::string& name);

}  // namespace deepinfer::kernels
