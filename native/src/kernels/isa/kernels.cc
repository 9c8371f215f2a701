// Compiled once per instruction-set level (native/cmake/isa.cmake); exports that level's table.
#include "kernels/kernels.h"

#include "kernels/isa/attention.h"

#define DI_STRING_(x) #x
#define DI_STRING(x) DI_STRING_(x)

namespace deepinfer::kernels::DEEPINFER_ISA {

extern const KernelTable table;
const KernelTable table = {
    DI_STRING(DEEPINFER_ISA),
    kQueries,
    max_tile_rows,
    prepare_row,
    gemm,
    gemm_blocks,
    gemm_scratch_bytes,
    rms_norm,
    swiglu,
    rope,
    store_kv,
    attend,
    merge,
    normalise,
    exp_row,
};

}  // namespace deepinfer::kernels::DEEPINFER_ISA
