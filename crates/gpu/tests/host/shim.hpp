// A stand-in for NVRTC's built-ins. It runs the threads of a block one after the other, each up to the next barrier.
// Compiled for each kernel, without the C++ library: its headers would take most of the time.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct ShimIndex {
  unsigned x, y, z;
};
static ShimIndex blockIdx, threadIdx, blockDim, gridDim;

static void (*shim_body)();

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

#ifdef SHIM_BARRIERS
static const unsigned shim_most = 1024, shim_stack = 65536;
static jmp_buf shim_scheduler, shim_threads[shim_most];
static bool shim_begun[shim_most], shim_ended[shim_most];
static unsigned long long shim_exchange[shim_most];

// Lets the scheduler run until it resumes this thread. Unlike `swapcontext`, this makes no system call.
__attribute__((noinline)) static void shim_yield() {
  if (!_setjmp(shim_threads[threadIdx.x])) _longjmp(shim_scheduler, 1);
}

// A thread, which serves every later block too.
static void shim_run() {
  for (;;) {
    shim_body();
    shim_ended[threadIdx.x] = true;
    shim_yield();
  }
}

// Runs the current thread up to its next barrier or its end.
__attribute__((noinline)) static void shim_resume() {
  static char* stacks;
  static ucontext_t context;
  const unsigned thread = threadIdx.x;
  if (_setjmp(shim_scheduler)) return;
  if (shim_begun[thread]) _longjmp(shim_threads[thread], 1);
  shim_begun[thread] = true;
  if (!stacks) stacks = static_cast<char*>(__builtin_malloc(sizeof(char[shim_most][shim_stack])));
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + static_cast<unsigned long>(thread) * shim_stack;
  context.uc_stack.ss_size = shim_stack;
  makecontext(&context, shim_run, 0);
  setcontext(&context);
}

inline void __syncthreads() { shim_yield(); }

// Lanes of a warp synchronize here, as threads of a block do at a barrier.
template <typename T> T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) <= sizeof(unsigned long long), "one word");
  const unsigned self = threadIdx.x;
  __builtin_memcpy(&shim_exchange[self], &value, sizeof value);
  __syncthreads();
  T other;
  __builtin_memcpy(&other, &shim_exchange[self ^ (unsigned)distance], sizeof other);
  __syncthreads();
  return other;
}

// HIP's form, in groups of 32 lanes.
template <typename T> T __shfl_xor(T value, int distance, int) { return __shfl_xor_sync(0, value, distance); }

static void shim_run_block(unsigned threads) {
  if (threads > shim_most) __builtin_abort();
  for (unsigned i = 0; i < threads; ++i) shim_ended[i] = false;
  for (bool running = true; running;) {
    running = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (shim_ended[i]) continue;
      threadIdx = {i, 0, 0};
      shim_resume();
      running = running || !shim_ended[i];
    }
  }
}
#else
// Without barriers a thread runs from its beginning to its end.
static void shim_run_block(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    threadIdx = {i, 0, 0};
    shim_body();
  }
}
#endif

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// Threads run one at a time, so writes are visible at once.
inline void __threadfence() {}

// Only one thread runs at a time.
template <typename T> T shim_exchanged(T* at, T next) {
  const T old = *at;
  *at = next;
  return old;
}
template <typename T, typename U> T atomicAdd(T* at, U x) { return shim_exchanged(at, (T)(*at + x)); }
template <typename T, typename U> T atomicMax(T* at, U x) { return shim_exchanged(at, *at < (T)x ? (T)x : *at); }
template <typename T, typename U> T atomicCAS(T* at, U expected, U next) {
  const T old = *at;
  if (old == expected) *at = next;
  return old;
}

// A word as an argument: as many of its bytes as the type has.
template <typename T> T shim_argument(const unsigned long long* word) {
  T argument;
  __builtin_memcpy(&argument, word, sizeof argument);
  return argument;
}

// Calls a kernel. Arguments in braces are evaluated in order.
template <typename... T> struct ShimCall {
  ShimCall(void (*kernel)(T...), T... arguments) { kernel(arguments...); }
};
template <typename... T> void shim_call(void (*kernel)(T...), const unsigned long long* words) {
  ShimCall<T...>{kernel, shim_argument<T>(words++)...};
}

static void shim_launch(unsigned blocks, unsigned threads, void (*body)()) {
  shim_body = body;
  blockDim = {threads, 1, 1};
  gridDim = {blocks, 1, 1};
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    shim_run_block(threads);
  }
}

#define SHIM_ENTRY(name)                                                                                     \
  static const unsigned long long* shim_words_##name;                                                        \
  extern "C" void shim_##name(unsigned blocks, unsigned threads, const unsigned long long* words) {          \
    shim_words_##name = words;                                                                               \
    shim_launch(blocks, threads, [] { shim_call(&name, shim_words_##name); });                               \
  }
