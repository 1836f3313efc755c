// Stands for what NVRTC and HIPRTC define by themselves, so that a C++ compiler can check the printed sources.
#pragma once
#include <cmath>

using std::abs, std::atan2, std::exp, std::floor;

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct ShimIndex {
  unsigned x, y, z;
};
static ShimIndex blockIdx, threadIdx;

inline void __syncthreads() {}

template <typename T> T __shfl_xor_sync(unsigned, T value, int) { return value; }
template <typename T> T __shfl_xor(T value, int, int) { return value; }
