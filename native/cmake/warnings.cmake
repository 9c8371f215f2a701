# Warnings are errors under g++, which the product is built with; other compilers (the fuzzers' clang) see
# other things in library headers.
function(deepinfer_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter -Wno-psabi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Werror)
  else()
    target_compile_options(${target} PRIVATE -Wno-unknown-warning-option)
  endif()
endfunction()
