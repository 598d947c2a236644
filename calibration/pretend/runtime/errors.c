/* Errors of each thread, what is told of them, and the log of calls that are absent. */
#include "runtime.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *log_file;
static __thread cudaError_t last_error;
static __thread cudaError_t explained_error;
static __thread char explanation[512];

static void open_log(void) {
  const char *path = getenv("VDNNSIM_PRETEND_LOG");
  log_file = path && *path ? fopen(path, "a") : NULL;
}

cudaError_t fail(cudaError_t error) {
  /* cudaErrorNotReady answers a query and is no failure. */
  if (!error || error == cudaErrorNotReady) return error;
  last_error = error;
  explained_error = cudaSuccess;
  return error;
}

cudaError_t explain(cudaError_t error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(explanation, sizeof explanation, format, arguments);
  va_end(arguments);
  fail(error);
  explained_error = error;
  return error;
}

void pretend_log(const char *format, ...) {
  pthread_once(&log_once, open_log);
  if (!log_file) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(log_file, "%s\n", line);
  fflush(log_file);
}

/* Why, for calls that users come upon. */
static const char *reason_of(const char *name) {
  if (strstr(name, "MemPool") || strstr(name, "MallocAsync") || strstr(name, "FreeAsync"))
    return "; PyTorch asks for it with backend:cudaMallocAsync, and its own allocator is the one that works here";
  if (strstr(name, "Graph") || strstr(name, "Capture")) return "; of graphs, only those that a stream captures are supported";
  if (strstr(name, "Ipc") || strstr(name, "Shareable")) return "; processes cannot share memory of pretended GPUs";
  return "";
}

void name_absent(const char *name) {
  static const char *logged[512];
  static size_t count;
  pthread_mutex_lock(&logged_lock);
  bool first = true;
  for (size_t each = 0; each < count && first; each++) first = strcmp(logged[each], name) != 0;
  if (first && count < sizeof logged / sizeof *logged) logged[count++] = name;
  pthread_mutex_unlock(&logged_lock);
  if (first) pretend_log("absent %s", name);
  snprintf(explanation, sizeof explanation, "%s is not in the pretended CUDA runtime%s", name, reason_of(name));
  explained_error = cudaErrorNotSupported;
}

cudaError_t pretend_absent(const char *name) {
  fail(cudaErrorNotSupported);
  name_absent(name);
  return cudaErrorNotSupported;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
#define ERROR(name, text) {name, #name, text}
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};

const char *cudaGetErrorName(cudaError_t error) {
  for (size_t each = 0; each < sizeof errors / sizeof *errors; each++)
    if (errors[each].error == error) return errors[each].name;
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  if (error && error == explained_error) return explanation;
  for (size_t each = 0; each < sizeof errors / sizeof *errors; each++)
    if (errors[each].error == error) return errors[each].text;
  return "unrecognized error code";
}
