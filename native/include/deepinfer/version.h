#pragma once

namespace deepinfer {

const char* version();

}  // namespace deepinfer
