/* Kernels that are compiled at run time: Triton's, which are launched as any other, and those of cuDNN.
 *
 * Triton hands over machine code, of which is read what its compiler says of each kernel: registers, shared memory, and
 * memory of each thread. An image of another kind may be loaded too, and its kernels are taken to be alike.
 *
 * cuDNN's own engines compile kernels as a plan is made, and load what NVRTC made of them, for which plans cuDNN offers
 * hangs on that. They cannot be launched: of a plan only the time is known, which the stand-in for cuDNN puts on its
 * stream.
 */
#include "runtime.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct function {
  struct kernel kernel;
  char name[512];
  int registers, shared_bytes, thread_bytes, most_dynamic_bytes;
  struct function *next;
};
struct code {
  char *bytes;                /* NULL unless it is machine code */
  struct function *functions; /* that were asked for */
};

/* ---- what machine code says: `cuobjdump -res-usage` shows the same ---- */

static bool is_machine_code(const void *image) { return !memcmp(image, ELFMAG, SELFMAG); }

static const Elf64_Shdr *sections_of(const char *elf) {
  return (const Elf64_Shdr *)(elf + ((const Elf64_Ehdr *)elf)->e_shoff);
}

static size_t bytes_of(const char *elf) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf;
  size_t end = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
  for (int each = 0; each < header->e_shnum; each++) {
    const Elf64_Shdr *section = &sections_of(elf)[each];
    size_t last = section->sh_type == SHT_NOBITS ? 0 : section->sh_offset + section->sh_size;
    if (last > end) end = last;
  }
  return end;
}

/* A section by its name, of which the kernel's is the last part; NULL if there is none. */
static const Elf64_Shdr *section_of(const char *elf, const char *begin, const char *kernel) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf;
  const char *names = elf + sections_of(elf)[header->e_shstrndx].sh_offset;
  for (int each = 0; each < header->e_shnum; each++) {
    const char *name = names + sections_of(elf)[each].sh_name;
    if (!strncmp(name, begin, strlen(begin)) && !strcmp(name + strlen(begin), kernel)) return &sections_of(elf)[each];
  }
  return NULL;
}

enum said { SAID_FRAME_BYTES = 0x11, SAID_REGISTERS = 0x2f };

/* Entries of .nv.info: a format, what is said, and the size of a symbol's index and a value. */
static int said_of(const char *elf, const Elf64_Shdr *text, enum said what) {
  const Elf64_Shdr *info = section_of(elf, ".nv.info", "");
  if (!info) return 0;
  uint32_t symbol = text->sh_info & 0xffffff;
  const char *at = elf + info->sh_offset, *end = at + info->sh_size;
  while (at + 12 <= end) {
    uint16_t bytes;
    uint32_t entry[2];
    memcpy(&bytes, at + 2, sizeof bytes);
    memcpy(entry, at + 4, sizeof entry);
    if (at[0] == 4 && at[1] == (char)what && entry[0] == symbol) return (int)entry[1];
    at += 4 + (at[0] == 4 ? bytes : 0);
  }
  return 0;
}

/* ---- modules and their kernels ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  struct code *code = calloc(1, sizeof *code);
  if (is_machine_code(image)) {
    size_t bytes = bytes_of(image);
    code->bytes = memcpy(malloc(bytes), image, bytes);
  }
  *module = (CUmodule)code;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  fseek(file, 0, SEEK_END);
  size_t bytes = (size_t)ftell(file);
  rewind(file);
  char *image = calloc(1, bytes + 1);
  CUresult result = fread(image, 1, bytes, file) == bytes ? cuModuleLoadData(module, image) : CUDA_ERROR_INVALID_VALUE;
  free(image);
  fclose(file);
  return result;
}

CUresult cuModuleUnload(CUmodule module) {
  struct code *code = (struct code *)module;
  for (struct function *each = code->functions, *next; each; each = next) {
    next = each->next;
    free(each);
  }
  free(code->bytes);
  free(code);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *found, CUmodule module, const char *name) {
  struct code *code = (struct code *)module;
  const Elf64_Shdr *text = code->bytes ? section_of(code->bytes, ".text.", name) : NULL;
  if (code->bytes && !text) return CUDA_ERROR_NOT_FOUND;
  struct function *function = calloc(1, sizeof *function);
  snprintf(function->name, sizeof function->name, "%s", name);
  function->kernel.name = function->name;
  function->registers = ASSUMED_REGISTERS;
  function->most_dynamic_bytes = 48 << 10;
  if (text) {
    const Elf64_Shdr *shared = section_of(code->bytes, ".nv.shared.", name);
    function->registers = said_of(code->bytes, text, SAID_REGISTERS);
    function->thread_bytes = said_of(code->bytes, text, SAID_FRAME_BYTES);
    function->shared_bytes = shared ? (int)shared->sh_size : 0;
  }
  function->next = code->functions;
  code->functions = function;
  *found = (CUfunction)function;
  return CUDA_SUCCESS;
}

/* Of cuDNN's plans: a library, a kernel of it and its function are addresses that nothing reads. */
static char loaded;

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **option_values,
                           unsigned option_count, CUlibraryOption *library_options, void **library_values,
                           unsigned library_count) {
  *library = (CUlibrary)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) { return CUDA_SUCCESS; }

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  *kernel = (CUkernel)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  *function = (CUfunction)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice gpu) {
  return CUDA_SUCCESS;
}

/* ---- attributes ---- */

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction asked) {
  const struct function *function = (const struct function *)asked;
  if ((char *)asked == &loaded) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = function->registers; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = function->thread_bytes; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->shared_bytes; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->most_dynamic_bytes; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; return CUDA_SUCCESS;
    default: name_absent("cuFuncGetAttribute of an attribute that is not told"); return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/* Shared memory beyond what a block may opt in to, which newest cards have, is refused: Triton then asks for less. */
CUresult cuFuncSetAttribute(CUfunction asked, CUfunction_attribute attribute, int value) {
  struct function *function = (struct function *)asked;
  if ((char *)asked == &loaded) return CUDA_SUCCESS;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || (size_t)value + (size_t)function->shared_bytes > settings.shared_memory_per_block)
        return CUDA_ERROR_INVALID_VALUE;
      function->most_dynamic_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache preferred) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
  *blocks = resident_blocks(threads, shared);
  return CUDA_SUCCESS;
}

/* A cluster's blocks run at the same time, each on a multiprocessor of its own. */
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *configuration) {
  unsigned blocks = 1;
  for (unsigned each = 0; each < configuration->numAttrs; each++) {
    const CUlaunchAttribute *attribute = &configuration->attrs[each];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      blocks = attribute->value.clusterDim.x * attribute->value.clusterDim.y * attribute->value.clusterDim.z;
  }
  *clusters = blocks ? settings.multiprocessors / (int)blocks : 0;
  return CUDA_SUCCESS;
}

/* ---- launches ---- */

CUresult cuLaunchKernelEx(const CUlaunchConfig *configuration, CUfunction launched, void **arguments, void **extra) {
  if ((char *)launched == &loaded) return CUDA_ERROR_INVALID_HANDLE;
  const struct function *function = (const struct function *)launched;
  if (configuration->sharedMemBytes > (unsigned)function->most_dynamic_bytes) return CUDA_ERROR_INVALID_VALUE;
  cudaError_t error = enter_context();
  if (error) return result_of(error);
  dim3 grid = {configuration->gridDimX, configuration->gridDimY, configuration->gridDimZ};
  dim3 block = {configuration->blockDimX, configuration->blockDimY, configuration->blockDimZ};
  return result_of(
      launch(&function->kernel, grid, block, arguments, configuration->sharedMemBytes, configuration->hStream));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                        void **extra) {
  CUlaunchConfig configuration = {.gridDimX = grid_x, .gridDimY = grid_y, .gridDimZ = grid_z,
                                  .blockDimX = block_x, .blockDimY = block_y, .blockDimZ = block_z,
                                  .sharedMemBytes = shared, .hStream = stream};
  return cuLaunchKernelEx(&configuration, function, arguments, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void **arguments) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, NULL);
}

/* What the hardware would read of a tensor, which no kernel does here. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

/* ---- names of the first CUDA, which cuda.h no longer declares, and which cuDNN looks up but does not call ---- */

#define OLD_NAME(name)                                 \
  EXPORT CUresult old_##name(void) __asm__(#name);     \
  CUresult old_##name(void) {                          \
    name_absent(#name);                                \
    return CUDA_ERROR_NOT_SUPPORTED;                   \
  }
OLD_NAME(cuCtxPopCurrent)
OLD_NAME(cuCtxPushCurrent)
OLD_NAME(cuLinkCreate)
OLD_NAME(cuLinkAddData)
