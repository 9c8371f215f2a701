// Chooses the vector type of this level. Every implementation offers the same operations with the same
// results; see vec_scalar.h for their meaning.
//
// No standard library here: an inline function of a shared header compiled for a wide instruction set could
// become the copy that the whole program links to. Everything is in this level's namespace.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/float_types.h"
#include "kernels/kernels.h"

#define DI_INLINE static inline __attribute__((always_inline))

#if defined(DEEPINFER_ISA_avx512) || defined(DEEPINFER_ISA_avx512_vnni) || defined(DEEPINFER_ISA_avx512_bf16)
#include "kernels/isa/vec_avx512.h"
#elif defined(DEEPINFER_ISA_avx2)
#include "kernels/isa/vec_avx2.h"
#elif defined(DEEPINFER_ISA_neon) || defined(DEEPINFER_ISA_neon_dotprod)
#include "kernels/isa/vec_neon.h"
#else
#include "kernels/isa/vec_scalar.h"
#endif
