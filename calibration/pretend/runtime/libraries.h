/* What the stand-ins for NVIDIA's libraries share: cuBLAS, cuDNN and NCCL on the pretended GPU, beside its runtime.
 *
 * They compute nothing. What they know how to pretend takes its time on a stream; every other call that needs a GPU is
 * refused: it fails, and its name reaches the user.
 */
#ifndef VDNNSIM_PRETEND_LIBRARIES_H
#define VDNNSIM_PRETEND_LIBRARIES_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- of the pretended runtime ---- */

void pretend_busy(void *stream, double seconds);
void pretend_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- libraries.c ---- */

/* A number that the environment gives as VDNNSIM_PRETEND_<name>; 0 without it, but then the runtime has no GPU. */
double setting(const char *name);
/* How long the card takes, in seconds, for so many floating-point operations, and to move so many bytes. */
double seconds_of_flop(double flop);
double seconds_of_bytes(double bytes);
/* Say once, on stderr and in the log, that a call is not on the pretended GPU; returns the status. */
int refuse(const char *call, int status);
/* As refuse, with the reason instead of the usual sentence. */
int refuse_because(const char *call, int status, const char *reason);
/* The sentence of this thread's last refusal, an empty text if there was none since this was last asked. */
const char *last_refusal(void);

/* Defines a function of some library that is refused with a status; its arguments, whatever they are, are not read. */
#define REFUSED(call, status)                    \
  EXPORT int refused_##call(void) __asm__(#call); \
  int refused_##call(void) { return refuse(#call, (int)(status)); }

#endif
