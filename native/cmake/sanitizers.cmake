# A sanitized build keeps every instruction-set level and every check: the levels share one source, but each
# has its own vector type, tile shapes and tails, which is where an index can be wrong. What makes that
# affordable is the optimiser's effort, not coverage: the checks are inserted before optimisation, so -O1 runs
# the same ones as -O3, and tracking variables through the huge unrolled tiles costs GCC five times the rest
# of a kernel object while reports only need line numbers.
function(deepinfer_sanitize target)
  if(DEEPINFER_SANITIZE)
    string(REPLACE ";" "," kinds "${DEEPINFER_SANITIZE}")
    target_compile_options(${target} PUBLIC -fsanitize=${kinds} -fno-omit-frame-pointer -g -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PUBLIC -O1 -fno-var-tracking)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${kinds})
  endif()
endfunction()
