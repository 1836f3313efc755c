// A stand-in for the built-ins of NVRTC and HIPRTC. It runs the threads of a block one after the other, each up to the
// next barrier.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct ShimIndex {
  unsigned x, y, z;
};
static ShimIndex blockIdx, threadIdx;

static ucontext_t shim_scheduler, shim_threads[1024];
static bool shim_ended[1024];
static char shim_stacks[1024][32768];
static void (*shim_body)();
static double shim_exchange[1024];

static void shim_run() {
  shim_body();
  shim_ended[threadIdx.x] = true;
}

inline void __syncthreads() { swapcontext(&shim_threads[threadIdx.x], &shim_scheduler); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline double erfcx(double x) { return exp(x * x) * erfc(x); }
inline float erfcxf(float x) { return (float)erfcx((double)x); }

template <typename T> T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) <= sizeof(double), "one number");
  const unsigned self = threadIdx.x;
  *reinterpret_cast<T*>(&shim_exchange[self]) = value;
  __syncthreads();
  const T other = *reinterpret_cast<T*>(&shim_exchange[self ^ (unsigned)distance]);
  __syncthreads();
  return other;
}
template <typename T> T __shfl_xor(T value, int distance, int) { return __shfl_xor_sync(0, value, distance); }

// Only one thread runs at a time.
template <typename T> T atomicMax(T* at, T x) { return *at < x ? (*at = x) : *at; }

static void shim_launch(unsigned blocks, unsigned threads, void (*body)()) {
  shim_body = body;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (unsigned i = 0; i < threads; ++i) {
      getcontext(&shim_threads[i]);
      shim_threads[i].uc_stack.ss_sp = shim_stacks[i];
      shim_threads[i].uc_stack.ss_size = sizeof shim_stacks[i];
      shim_threads[i].uc_link = &shim_scheduler;
      makecontext(&shim_threads[i], shim_run, 0);
      shim_ended[i] = false;
    }
    for (bool running = true; running;) {
      running = false;
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
        if (shim_ended[threadIdx.x]) continue;
        swapcontext(&shim_scheduler, &shim_threads[threadIdx.x]);
        running = running || !shim_ended[threadIdx.x];
      }
    }
  }
}

// A pointer to whatever is wanted.
struct ShimMemory {
  void* at;
  template <typename T> operator T*() const { return static_cast<T*>(at); }
};

static void shim_print(const unsigned char* bytes, unsigned long size) {
  for (unsigned long i = 0; i < size; ++i) std::printf("%02x", bytes[i]);
  std::printf("\n");
}
