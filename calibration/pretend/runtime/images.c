/* Kernel images: for which GPUs the kernels of a library were compiled, as its fat binary lists them.
 *
 * A kernel runs on a GPU for which there is machine code of the same major compute capability and no higher minor one,
 * or PTX, which a driver compiles, of the same or a lower one. CUB configures itself by the image that was taken.
 * The layout of fat binaries is what `cuobjdump` shows of PyTorch's libraries, compared with their bytes.
 */
#include "runtime.h"

#include <stdlib.h>

#define WRAPPER_MAGIC 0x466243b1u
#define BINARY_MAGIC 0xba55ed50u
#define MOST_IMAGES 32

struct wrapper {
  uint32_t magic, version;
  const char *binary;
};
struct binary {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct image {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t reserved[3];
  uint32_t architecture; /* 86 for compute capability 8.6 */
};
enum kind { KIND_PTX = 1, KIND_MACHINE_CODE = 2 };

struct module {
  struct {
    enum kind kind;
    int architecture;
  } images[MOST_IMAGES];
  int count;
};

EXPORT void **__cudaRegisterFatBinary(void *registered) {
  struct module *module = calloc(1, sizeof *module);
  const struct wrapper *wrapper = registered;
  if (!module || wrapper->magic != WRAPPER_MAGIC) return (void **)module;
  const struct binary *binary = (const struct binary *)wrapper->binary;
  if (binary->magic != BINARY_MAGIC) return (void **)module;
  const char *at = wrapper->binary + binary->header_bytes, *end = at + binary->bytes;
  while (at + sizeof(struct image) <= end && module->count < MOST_IMAGES) {
    const struct image *image = (const struct image *)at;
    module->images[module->count].kind = image->kind;
    module->images[module->count++].architecture = (int)image->architecture;
    at += image->header_bytes + image->bytes;
  }
  return (void **)module;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **module) {}
/* Libraries stay until the process ends, and kernels with them. */
EXPORT void __cudaUnregisterFatBinary(void **module) {}
EXPORT char __cudaInitModule(void **module) { return 1; }

int image_for(const struct module *module, int major, int minor) {
  int wanted = 10 * major + minor, found = 0;
  for (int each = 0; each < module->count; each++) {
    int architecture = module->images[each].architecture;
    bool runs = module->images[each].kind == KIND_PTX || architecture / 10 == major;
    if (runs && architecture <= wanted && architecture > found) found = architecture;
  }
  return found;
}
