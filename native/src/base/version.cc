#include "deepinfer/version.h"

namespace deepinfer {

const char* version() { return "0.1.0"; }

}  // namespace deepinfer
