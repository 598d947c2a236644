/* The calls of cuBLAS that PyTorch's libraries import and the pretended GPU does not have.
 *
 * Batched factorizations tell the host whether they came out; the others are called by MAGMA, inside of its own.
 */
#include "libraries.h"

#define CUBLAS_STATUS_NOT_SUPPORTED 15
#define NOT_THERE(call) REFUSED(call, CUBLAS_STATUS_NOT_SUPPORTED)

#define OF_TYPE(letter)                   \
  NOT_THERE(cublas##letter##gelsBatched)  \
  NOT_THERE(cublas##letter##geqrfBatched) \
  NOT_THERE(cublas##letter##getrfBatched) \
  NOT_THERE(cublas##letter##getrsBatched) \
  NOT_THERE(cublas##letter##axpy_v2)      \
  NOT_THERE(cublas##letter##copy_v2)      \
  NOT_THERE(cublas##letter##rot_v2)       \
  NOT_THERE(cublas##letter##rotg_v2)      \
  NOT_THERE(cublas##letter##scal_v2)      \
  NOT_THERE(cublas##letter##swap_v2)      \
  NOT_THERE(cublas##letter##symm_v2)      \
  NOT_THERE(cublas##letter##symv_v2)      \
  NOT_THERE(cublas##letter##syr_v2)       \
  NOT_THERE(cublas##letter##syr2_v2)      \
  NOT_THERE(cublas##letter##syr2k_v2)     \
  NOT_THERE(cublas##letter##syrk_v2)      \
  NOT_THERE(cublas##letter##trmm_v2)      \
  NOT_THERE(cublas##letter##trmv_v2)      \
  NOT_THERE(cublas##letter##trsv_v2)
OF_TYPE(S)
OF_TYPE(D)
OF_TYPE(C)
OF_TYPE(Z)

#define OF_REAL_TYPE(letter)          \
  NOT_THERE(cublas##letter##ger_v2)   \
  NOT_THERE(cublas##letter##rotm_v2)  \
  NOT_THERE(cublas##letter##rotmg_v2) \
  NOT_THERE(cublas##letter##asum_v2)  \
  NOT_THERE(cublas##letter##nrm2_v2)
OF_REAL_TYPE(S)
OF_REAL_TYPE(D)

#define OF_COMPLEX_TYPE(letter)       \
  NOT_THERE(cublas##letter##gerc_v2)  \
  NOT_THERE(cublas##letter##geru_v2)  \
  NOT_THERE(cublas##letter##hemm_v2)  \
  NOT_THERE(cublas##letter##hemv_v2)  \
  NOT_THERE(cublas##letter##her_v2)   \
  NOT_THERE(cublas##letter##her2_v2)  \
  NOT_THERE(cublas##letter##her2k_v2) \
  NOT_THERE(cublas##letter##herk_v2)
OF_COMPLEX_TYPE(C)
OF_COMPLEX_TYPE(Z)

NOT_THERE(cublasCsrot_v2)
NOT_THERE(cublasCsscal_v2)
NOT_THERE(cublasZdrot_v2)
NOT_THERE(cublasZdscal_v2)
NOT_THERE(cublasScasum_v2)
NOT_THERE(cublasScnrm2_v2)
NOT_THERE(cublasDzasum_v2)
NOT_THERE(cublasDznrm2_v2)
NOT_THERE(cublasIsamax_v2)
NOT_THERE(cublasIdamax_v2)
NOT_THERE(cublasIcamax_v2)
NOT_THERE(cublasIzamax_v2)
NOT_THERE(cublasIsamin_v2)
NOT_THERE(cublasIdamin_v2)
NOT_THERE(cublasIcamin_v2)
NOT_THERE(cublasIzamin_v2)
NOT_THERE(cublasGetMatrixAsync)
NOT_THERE(cublasGetVectorAsync)
NOT_THERE(cublasSetMatrixAsync)
NOT_THERE(cublasSetVectorAsync)
NOT_THERE(cublasLtMatmulAlgoInit)
NOT_THERE(cublasLtMatmulAlgoCheck)
NOT_THERE(cublasLtMatmulAlgoConfigGetAttribute)
NOT_THERE(cublasLtMatmulAlgoConfigSetAttribute)
