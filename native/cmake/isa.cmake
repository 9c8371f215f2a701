# One kernel source, compiled once per instruction-set level; the level is chosen at run time.
#
# Every level lives in its own namespace (DEEPINFER_ISA), so that no inline function compiled with wider
# instructions can become the copy that everybody links to.

# Floats must not depend on what a compiler fuses: multiply-adds are written out where they are meant.
function(deepinfer_base_flags target)
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(${target} PRIVATE -march=x86-64-v2 -mtune=generic)
  endif()
endfunction()

function(_deepinfer_isa_object core name)
  if("${DEEPINFER_SANITIZE}" MATCHES "fuzzer" AND NOT name STREQUAL "scalar")
    return()  # no fuzz target computes with kernels, and they take minutes to instrument
  endif()
  add_library(deepinfer_isa_${name} OBJECT src/kernels/isa/kernels.cc)
  target_include_directories(deepinfer_isa_${name} PRIVATE include src)
  target_compile_definitions(deepinfer_isa_${name} PRIVATE DEEPINFER_ISA=${name} DEEPINFER_ISA_${name}=1)
  target_compile_options(deepinfer_isa_${name} PRIVATE -ffp-contract=off ${ARGN})
  deepinfer_warnings(deepinfer_isa_${name})
  # GCC 12 takes the undefined pass-through operands of its own AVX-512 header for mistakes.
  target_compile_options(deepinfer_isa_${name} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  deepinfer_sanitize(deepinfer_isa_${name})
  if("${DEEPINFER_SANITIZE}" MATCHES "fuzzer")
    target_compile_options(deepinfer_isa_${name} PRIVATE -O1)
  endif()
  target_sources(${core} PRIVATE $<TARGET_OBJECTS:deepinfer_isa_${name}>)
  target_compile_definitions(${core} PRIVATE DEEPINFER_HAVE_ISA_${name}=1)
endfunction()

function(deepinfer_add_isa_objects core)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/src/kernels/isa/kernels.cc)
    return()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(v2 -march=x86-64-v2 -mtune=generic)
    set(avx2 -march=x86-64-v3 -mtune=generic)
    set(avx512 -march=x86-64-v4 -mtune=generic -mprefer-vector-width=512)
    _deepinfer_isa_object(${core} scalar ${v2})
    _deepinfer_isa_object(${core} avx2 ${avx2})
    _deepinfer_isa_object(${core} avx512 ${avx512})
    _deepinfer_isa_object(${core} avx512_vnni ${avx512} -mavx512vnni -mavx512vbmi)
    _deepinfer_isa_object(${core} avx512_bf16 ${avx512} -mavx512vnni -mavx512vbmi -mavx512bf16)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    _deepinfer_isa_object(${core} scalar)
    _deepinfer_isa_object(${core} neon)
    _deepinfer_isa_object(${core} neon_dotprod -march=armv8.2-a+dotprod+fp16)
  else()
    _deepinfer_isa_object(${core} scalar)
  endif()
endfunction()
