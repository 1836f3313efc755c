// What depends on the order of elements. T: the dtype, with T_VALUE and T_READ; I: an index.

#if defined(KILN_EXTREME)
// Where the extreme element of each line is; lines are [before, length, after] along the second axis. A warp each.
__device__ __forceinline__ bool kiln_wins(T_VALUE x, long long at, T_VALUE best, long long best_at) {
  const bool unordered = x != x, best_unordered = best != best;
  if (unordered || best_unordered) return unordered && (!best_unordered || at < best_at);
  if (x == best) return at < best_at;
  return GREATEST ? best < x : x < best;
}

extern "C" __global__ void kiln_extreme(const T* x, I* y, long long lines, long long length, long long after) {
  const int lane = threadIdx.x % 32;
  const long long warps = (long long)gridDim.x * blockDim.x / 32;
  for (long long line = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; line < lines; line += warps) {
    const long long start = line / after * length * after + line % after;
    // Lanes without an element have a copy of the first.
    long long best_at = lane < length ? lane : 0;
    T_VALUE best = T_READ(x[start + best_at * after]);
    for (long long j = lane + 32; j < length; j += 32) {
      const T_VALUE next = T_READ(x[start + j * after]);
      if (kiln_wins(next, j, best, best_at)) best = next, best_at = j;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      const T_WIDE other = (T_WIDE)__shfl_xor_sync(0xffffffffu, (T_WIDE)best, distance);
      const long long other_at = __shfl_xor_sync(0xffffffffu, best_at, distance);
      if (kiln_wins((T_VALUE)other, other_at, best, best_at)) best = (T_VALUE)other, best_at = other_at;
    }
    if (lane == 0) y[line] = (I)best_at;
  }
}
#endif

#if defined(KILN_POSITIONS)
// The positions of the elements at which a running count goes up.
extern "C" __global__ void kiln_positions(const S* counts, I* y, long long total POSITION_LENGTHS) {
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < total;
       p += gridDim.x * (long long)blockDim.x) {
    const long long before = p > 0 ? (long long)counts[p - 1] : 0;
    if ((long long)counts[p] == before) continue;
    long long rest = p;
    (void)rest;
    POSITION_STORES
  }
}
#endif
