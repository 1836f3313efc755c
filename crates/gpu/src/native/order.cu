// Kernels that depend on the order of elements. T: the dtype, with T_VALUE and T_READ; I: an index.

#if defined(KILN_EXTREME)
// Searches the index of the extreme element of each part of each line. Lines are [before, length, after] along the
// second axis, and have `parts` parts of `each` elements. CANDIDATES: only the `count` given positions of each line are
// searched, otherwise all `count` elements. COLUMNS: one thread per part, otherwise one warp.
__device__ __forceinline__ bool kiln_wins(T_VALUE x, long long at, T_VALUE best, long long best_at) {
  const bool unordered = x != x, best_unordered = best != best;
  if (unordered || best_unordered) return unordered && (!best_unordered || at < best_at);
  if (x == best) return at < best_at;
  return GREATEST ? best < x : x < best;
}

extern "C" __global__ void kiln_extreme(const T* x, const long long* candidates, I* y, long long lines, long long length,
                                        long long after, long long count, long long parts, long long each) {
  kiln_begin();
#if defined(COLUMNS)
  const int lane = 0, lanes = 1;
#else
  const int lane = threadIdx.x % 32, lanes = 32;
#endif
  const long long workers = (long long)gridDim.x * blockDim.x / lanes;
  (void)candidates;
  for (long long unit = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / lanes; unit < lines * parts; unit += workers) {
    // Neighbouring threads process neighbouring lines.
    const long long line = unit % lines, part = unit / lines, start = line / after * length * after + line % after;
    const long long first = part * each, end = first + each < count ? first + each : count;
#if defined(CANDIDATES)
#define KILN_PLACE_OF(j) candidates[(j) * lines + line]
#else
#define KILN_PLACE_OF(j) (j)
#endif
    // Lanes without an element use a copy of the first one.
    long long best_at = KILN_PLACE_OF(first + lane < end ? first + lane : first);
    T_VALUE best = T_READ(x[start + best_at * after]);
    for (long long j = first + lane + lanes; j < end; j += lanes) {
      const long long at = KILN_PLACE_OF(j);
      const T_VALUE next = T_READ(x[start + at * after]);
      if (kiln_wins(next, at, best, best_at)) best = next, best_at = at;
    }
#if !defined(COLUMNS)
    for (int distance = 16; distance > 0; distance /= 2) {
      const T_WIDE other = (T_WIDE)__shfl_xor_sync(0xffffffffu, (T_WIDE)best, distance);
      const long long other_at = __shfl_xor_sync(0xffffffffu, best_at, distance);
      if (kiln_wins((T_VALUE)other, other_at, best, best_at)) best = (T_VALUE)other, best_at = other_at;
    }
#endif
    if (lane == 0) y[unit] = (I)best_at;
  }
}
#endif

#if defined(KILN_POSITIONS)
// The positions at which a running count increases.
extern "C" __global__ void kiln_positions(const S* counts, I* y, long long total POSITION_LENGTHS) {
  kiln_begin();
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
