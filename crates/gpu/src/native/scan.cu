// Scans. T: the dtype, with T_VALUE, T_READ and T_WRITTEN. A: the accumulator type, U: the unsigned integer of its
// size. COMBINE: the combine function. AT(j): the offset of element `j` in scan order. EXCLUSIVE: whether the scan is
// exclusive.

#define KILN_ITEMS 8
#define KILN_THREADS 256
#define KILN_TILE (KILN_ITEMS * KILN_THREADS)

#if defined(KILN_SCAN_COLUMNS)
// One thread scans each line of [before, length, after].
extern "C" __global__ void kiln_scan_columns(const T* x, T* y, A identity, long long lines, long long length,
                                             long long after) {
  kiln_begin();
  for (long long line = blockIdx.x * (long long)blockDim.x + threadIdx.x; line < lines;
       line += gridDim.x * (long long)blockDim.x) {
    const long long start = line / after * length * after + line % after;
    A total = identity;
    for (long long j = 0; j < length; ++j) {
      const long long at = start + AT(j) * after;
      const A before = total;
      total = COMBINE(before, (A)T_READ(x[at]));
      y[at] = T_WRITTEN((T_VALUE)(EXCLUSIVE ? before : total));
    }
  }
}
#endif

#if defined(KILN_SCAN_TOTALS) || defined(KILN_SCAN_TILES)
// Inclusive block scan: the total of all threads up to this one.
__device__ __forceinline__ A kiln_running(A own, A* shared) {
  for (int distance = 1; distance < KILN_THREADS; distance *= 2) {
    shared[threadIdx.x] = own;
    __syncthreads();
    if ((int)threadIdx.x >= distance) own = COMBINE(shared[threadIdx.x - distance], own);
    __syncthreads();
  }
  return own;
}

// Loads a tile of a line; `identity` past its end.
__device__ __forceinline__ void kiln_tile(const T* x, A* tile, A identity, long long start, long long first,
                                          long long length) {
  for (int e = threadIdx.x; e < KILN_TILE; e += KILN_THREADS) {
    const long long j = first + e;
    tile[e] = j < length ? (A)T_READ(x[start + AT(j)]) : identity;
  }
  __syncthreads();
}
#endif

#if defined(KILN_SCAN_TOTALS)
// The total of each tile (reduce phase).
extern "C" __global__ void kiln_scan_totals(const T* x, A* totals, A identity, long long length, long long tiles) {
  kiln_begin();
  __shared__ A tile[KILN_TILE];
  __shared__ A shared[KILN_THREADS];
  kiln_tile(x, tile, identity, blockIdx.x / tiles * length, blockIdx.x % tiles * KILN_TILE, length);
  A own = identity;
  for (int i = 0; i < KILN_ITEMS; ++i) own = COMBINE(own, tile[threadIdx.x * KILN_ITEMS + i]);
  own = kiln_running(own, shared);
  if (threadIdx.x == KILN_THREADS - 1) totals[blockIdx.x] = own;
}
#endif

#if defined(KILN_SCAN_TILES)
// The scan of each tile, from the carried total (CARRIED).
extern "C" __global__ void kiln_scan_tiles(const T* x, const A* carried, T* y, A identity, long long length,
                                           long long tiles) {
  kiln_begin();
  __shared__ A tile[KILN_TILE];
  __shared__ A shared[KILN_THREADS];
  const long long start = blockIdx.x / tiles * length, first = blockIdx.x % tiles * KILN_TILE;
  kiln_tile(x, tile, identity, start, first, length);
  A own = identity;
  for (int i = 0; i < KILN_ITEMS; ++i) own = COMBINE(own, tile[threadIdx.x * KILN_ITEMS + i]);
  own = kiln_running(own, shared);
  shared[threadIdx.x] = own;
  __syncthreads();
#if defined(CARRIED)
  const A carry = carried[blockIdx.x];
#else
  const A carry = identity;
  (void)carried;
#endif
  A total = threadIdx.x == 0 ? carry : (A)(COMBINE(carry, shared[threadIdx.x - 1]));
  for (int i = 0; i < KILN_ITEMS; ++i) {
    const int e = threadIdx.x * KILN_ITEMS + i;
    const A before = total;
    total = COMBINE(before, tile[e]);
    tile[e] = EXCLUSIVE ? before : total;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < KILN_TILE; e += KILN_THREADS) {
    const long long j = first + e;
    if (j < length) y[start + AT(j)] = T_WRITTEN((T_VALUE)tile[e]);
  }
}
#endif
