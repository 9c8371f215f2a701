// How much memory this process can still get.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

// The least of: free and reclaimable memory of the machine, what its control groups leave (version 1 and 2,
// all the way up), and its own resource limits. `root` is put before /proc and /sys: tests bring their own.
int64_t available_memory_bytes(const std::string& root = "");

// Gives what the heap holds without use back to the system, where the C library can.
void return_free_memory();

}  // namespace deepinfer
