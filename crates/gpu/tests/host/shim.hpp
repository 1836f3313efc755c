// A stand-in for NVRTC's built-ins. It runs the threads of a block one after the other, each up to the next barrier.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct ShimIndex {
  unsigned x, y, z;
};
static ShimIndex blockIdx, threadIdx, blockDim, gridDim;

static const unsigned shim_most = 1024, shim_stack = 65536;
static ucontext_t shim_scheduler, shim_threads[shim_most];
static bool shim_ended[shim_most];
static char* shim_stacks;
static unsigned long long shim_exchange[shim_most];
static void (*shim_body)();

static void shim_run() {
  shim_body();
  shim_ended[threadIdx.x] = true;
}

inline void __syncthreads() { swapcontext(&shim_threads[threadIdx.x], &shim_scheduler); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// Threads run one at a time, so writes are visible at once.
inline void __threadfence() {}

// Lanes of a warp synchronize here, as threads of a block do at a barrier.
template <typename T> T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) <= sizeof(unsigned long long), "one word");
  const unsigned self = threadIdx.x;
  std::memcpy(&shim_exchange[self], &value, sizeof value);
  __syncthreads();
  T other;
  std::memcpy(&other, &shim_exchange[self ^ (unsigned)distance], sizeof other);
  __syncthreads();
  return other;
}

// Only one thread runs at a time.
template <typename T, typename U> T atomicAdd(T* at, U x) { return std::exchange(*at, (T)(*at + x)); }
template <typename T, typename U> T atomicMax(T* at, U x) { return std::exchange(*at, *at < (T)x ? (T)x : *at); }
template <typename T, typename U> T atomicCAS(T* at, U expected, U next) {
  const T old = *at;
  if (old == expected) *at = next;
  return old;
}

// A word as an argument: as many of its bytes as the type has.
template <typename T> T shim_argument(const unsigned long long* word) {
  T argument;
  std::memcpy(&argument, word, sizeof argument);
  return argument;
}

template <typename... T, std::size_t... I>
void shim_call(void (*kernel)(T...), const unsigned long long* words, std::index_sequence<I...>) {
  kernel(shim_argument<T>(words + I)...);
}
template <typename... T> void shim_call(void (*kernel)(T...), const unsigned long long* words) {
  shim_call(kernel, words, std::index_sequence_for<T...>());
}

static void shim_launch(unsigned blocks, unsigned threads, void (*body)()) {
  if (threads > shim_most) std::abort();
  if (!shim_stacks) shim_stacks = static_cast<char*>(std::malloc((std::size_t)shim_most * shim_stack));
  shim_body = body;
  blockDim = {threads, 1, 1};
  gridDim = {blocks, 1, 1};
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    for (unsigned i = 0; i < threads; ++i) {
      getcontext(&shim_threads[i]);
      shim_threads[i].uc_stack.ss_sp = shim_stacks + (std::size_t)i * shim_stack;
      shim_threads[i].uc_stack.ss_size = shim_stack;
      shim_threads[i].uc_link = &shim_scheduler;
      makecontext(&shim_threads[i], shim_run, 0);
      shim_ended[i] = false;
    }
    for (bool running = true; running;) {
      running = false;
      for (unsigned i = 0; i < threads; ++i) {
        threadIdx = {i, 0, 0};
        if (shim_ended[i]) continue;
        swapcontext(&shim_scheduler, &shim_threads[i]);
        running = running || !shim_ended[i];
      }
    }
  }
}

#define SHIM_ENTRY(name)                                                                                     \
  static const unsigned long long* shim_words_##name;                                                        \
  extern "C" void shim_##name(unsigned blocks, unsigned threads, const unsigned long long* words) {          \
    shim_words_##name = words;                                                                               \
    shim_launch(blocks, threads, [] { shim_call(&name, shim_words_##name); });                               \
  }
