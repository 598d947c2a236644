/* The CUDA runtime on host memory: what its files share.
 *
 * A pretended GPU has memory, streams and a clock, and kernels that compute nothing. Device memory is a range of
 * addresses of this process at which the host finds nothing; its bytes lie elsewhere, and are backed page by page when
 * something is written there. Streams are timelines.
 *
 * Every call of the API begins with `enter` and ends with `leave`, which hold the one lock of the library and what the
 * real runtime checks first. Functions below that say nothing else are called with the lock held.
 */
#ifndef VDNNSIM_PRETEND_RUNTIME_H
#define VDNNSIM_PRETEND_RUNTIME_H

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_GPUS 16
#define MIB ((size_t)1 << 20)
/* A guess, which only steers how PyTorch configures grids, for nobody compiled the kernels. */
#define ASSUMED_REGISTERS 32
/* Of the driver, which hands out memory in blocks of this size. */
#define DRIVER_BLOCK (2 * MIB)

typedef int64_t nanoseconds;

/* ---- state.c ---- */

struct settings {
  char name[256];
  int gpus, multiprocessors, major, minor;
  int threads_per_multiprocessor, blocks_per_multiprocessor, registers_per_multiprocessor;
  size_t memory_bytes, context_bytes, l2_bytes, shared_memory_per_multiprocessor, shared_memory_per_block;
  double clock_hz, memory_clock_hz;
  double h2d_bytes_per_s, d2h_bytes_per_s, dram_bytes_per_s, flop_per_s, pin_bytes_per_s;
  nanoseconds copy_latency, launch, pin_latency, issue;
  bool real_clock, delayed_copies, log_kernels;
};
extern struct settings settings;
enum count { COUNT_MALLOC, COUNT_FREE, COUNT_LAUNCH, COUNT_COPY, COUNT_PIN, COUNTS };
extern int64_t counts[COUNTS];
/* The lock alone, for what is no call of the API, and to wait without it amid one. */
void hold_lock(void);
void release_lock(void);
/* Wait, without the lock meanwhile, until another thread tells of a change. */
void await_change(void);
void tell_change(void);

/* ---- device.c: the way into a call and out, what the GPUs are like ---- */

/* GPUs of the machine; settings.gpus are those that CUDA_VISIBLE_DEVICES lets be seen, all alike. Needs no lock. */
int installed_gpus(void);
/* The GPU that the calling thread has chosen. */
int current_gpu(void);

/* Take the lock; an error if there is no GPU to call, after which nothing is held. */
cudaError_t enter(void);
/* As enter, for calls that a real GPU's context answers: it takes its memory at the first one. */
cudaError_t enter_context(void);
/* Let go of the lock, and remember an error for cudaGetLastError. */
cudaError_t leave(cudaError_t error);

/* ---- errors.c, which needs no lock ---- */

/* Remember an error for cudaGetLastError. */
cudaError_t fail(cudaError_t error);
/* As fail, with a sentence that cudaGetErrorString returns for it in this thread. */
cudaError_t explain(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Log a call that is absent, and name it in the text of the next such error of this thread. */
void name_absent(const char *name);
/* Fail with the name of a call that is absent, which stays in the text of the error; exported. */
EXPORT cudaError_t pretend_absent(const char *name);
/* A line in the file of VDNNSIM_PRETEND_LOG; exported. */
EXPORT void pretend_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- images.c: for which GPUs kernels were compiled ---- */

struct module;
/* The compute capability, times ten, of the image that a GPU would take of a library's kernels; 0 if there is none. */
int image_for(const struct module *module, int major, int minor);

/* ---- launches.c: kernels, and launches of them ---- */

struct kernel {
  const void *host; /* of one that a library registered */
  const struct module *module;
  const char *name;
  void (*stand_in)(void **arguments, dim3 grid, dim3 block);
};
/* Put a kernel on a stream; the last thing that a call does, for it lets go of the lock. */
cudaError_t launch(const struct kernel *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                   cudaStream_t stream);
/* How many blocks of so many threads and bytes a multiprocessor runs at a time, by a guess of registers; no lock. */
int resident_blocks(int threads, size_t shared);

/* ---- driver.c ---- */

CUresult result_of(cudaError_t error);

/* ---- addresses.c: the capacity of each GPU, and where the bytes of device memory lie ---- */

/* Which GPU an address belongs to, -1 if to none. */
int gpu_of(const void *address);
/* Whether bytes from an address on lie in one block that is allocated and may be accessed. */
bool allocated(const void *address, size_t bytes);
EXPORT size_t pretend_used_bytes(int gpu);
void begin_context(int gpu);
bool has_context(int gpu);

/* Where the host finds the bytes that an address of a GPU stands for, as far as its block or its reservation reaches;
 * any other address is itself. */
void *bytes_at(const void *address);

/* ---- memory.c ---- */

bool pinned(const void *address);

/* ---- recording.c: work that a stream records for a graph instead of doing it ---- */

enum engine { ENGINE_KERNELS, ENGINE_H2D, ENGINE_D2H, ENGINE_NONE, ENGINES = ENGINE_NONE };

struct work {
  enum engine engine;
  nanoseconds lasts;
  void *to;
  const void *from;
  size_t bytes;
  int value;
};
/* Work in the order in which it was recorded. */
struct graph {
  int uses; /* by its stream while it is recorded, by the program, by each executable */
  unsigned long long id;
  struct work *work;
  size_t count, room;
};
/* Record work for a graph; false if there is none. */
bool record_work(struct graph *graph, enum engine engine, nanoseconds lasts);
/* Record what the work that was put last moves, or sets if `from` is NULL; false if that was not recorded. */
bool record_move(void *to, const void *from, int value, size_t bytes);
void end_recording(void);

/* ---- schedule.c: the clock, engines, and what is done when the clock has come to a moment ---- */

/* What a question takes, as whether an event has come: a loop that asks until it has must end. Assumed. */
#define QUESTION ((nanoseconds)1000)

nanoseconds in_nanoseconds(double seconds);
nanoseconds clock_now(void);
/* The host is busy for so long; its real clock shows that by itself. */
void host_works(nanoseconds lasts);
/* As host_works, and the real clock is waited for. */
void spend(nanoseconds lasts);
/* Wait for a moment, without the lock meanwhile, and do what was due by then. */
void wait_until(nanoseconds moment);
/* Take the first gap of an engine from a moment on; returns when it begins. */
nanoseconds occupy(int gpu, enum engine engine, nanoseconds ready, nanoseconds lasts);
/* How long a kernel lasts, given what it would last alone: within pretend_operator_begin, the first takes it all. */
nanoseconds kernel_lasts(nanoseconds alone);
/* Do what is due: copies that have arrived, functions of the host whose stream has come to them. */
void settle(void);
/* Whether the clock has come to a moment, and what was due by then is done. */
bool is_done(nanoseconds moment);
/* Move bytes at a moment; from NULL sets them to a value. */
void move_at(nanoseconds moment, void *to, const void *from, int value, size_t bytes);
/* Call a function of the host at a moment, without the lock. */
void call_at(nanoseconds moment, void (*function)(void *), void *data);
/* Do what is due before a moment that the clock has not come to, for a kernel that ends then and is done at once. */
void settle_before_kernel(nanoseconds moment);
/* Do all that concerns some bytes before they go away or are overwritten at once. */
void settle_bytes(const void *address, size_t bytes);

/* ---- streams.c ---- */

struct stream;
/* NULL if there is no such stream, or no more. */
struct stream *stream_of(cudaStream_t handle);
int stream_gpu(const struct stream *stream);
/* Put work on a stream; returns when it will be done. It begins once the host has issued it, the stream has come to it
 * and its engine is free. */
nanoseconds put(struct stream *stream, enum engine engine, nanoseconds lasts);
/* As put, of what a call has issued already, and not for a graph. */
nanoseconds append(struct stream *stream, enum engine engine, nanoseconds lasts);
/* The graph that a stream records, NULL if it does its work. */
struct graph *graph_of(const struct stream *stream);
void join(struct stream *stream, struct graph *graph);
/* Let all streams of a graph do their work again. */
void part(const struct graph *graph);
/* Let a stream wait for a moment. */
void hold(struct stream *stream, nanoseconds moment);
/* When all of a GPU's work will be done, of all GPUs if -1. */
nanoseconds all_done(int gpu);

#endif
