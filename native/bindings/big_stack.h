#pragma once

#include <functional>

namespace deepinfer::bindings {

// Calls `work` on a thread of its own with a stack of half a gigabyte (address space, not memory), or less
// where that cannot be had, and waits for it. Compilers of grammars recurse as deep as the grammar refers,
// and a stack that overflows ends the process. Exceptions come back.
void on_big_stack(const std::function<void()>& work);

}  // namespace deepinfer::bindings
