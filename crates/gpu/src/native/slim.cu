// GEMV-like matmuls (few rows): y [ROWS, columns] = x [ROWS, inner] · w [inner, columns], for MATRICES matrices with
// the same x.
//
// T: the dtype, with T_VALUE, T_READ and T_WRITTEN; A: the accumulator type; VECTOR: elements in 16 bytes; FLIGHT:
// vectors of a matrix that a thread has in flight; TRANSPOSED: whether matrices are column-major with leading dimension
// `leading_dim`, rather than row-major; CLUSTER: the number of blocks of each tile if they fit a thread block cluster,
// else 1.

typedef kiln_pack<T, VECTOR> KilnVector;

// Streaming load of a matrix, of which each element is read once.
__device__ __forceinline__ KilnVector kiln_once(const T* from) {
#if defined(__CUDA_ARCH__)
  union { KilnVector vector; unsigned words[4]; } both;
  unsigned* w = both.words;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
  return both.vector;
#else
  return *(const KilnVector*)from;
#endif
}

#define MATRIX(i) const T *w##i, T *y##i, long long leading_dim##i, int columns##i

#if MATRICES == 1
#define MATRIX_LIST MATRIX(0)
#elif MATRICES == 2
#define MATRIX_LIST MATRIX(0), MATRIX(1)
#else
#define MATRIX_LIST MATRIX(0), MATRIX(1), MATRIX(2)
#endif

// One of the matrices, and the block's position in it.
struct KilnMatrix {
  const T* w;
  T* y;
  long long leading_dim;
  int columns, tile;
};

// Finds the matrix of a tile; the tiles of all matrices are numbered consecutively.
#define FIND(i, wide)                                       \
  if (tile >= 0 && tile < (columns##i + (wide) - 1) / (wide)) \
    at = KilnMatrix{w##i, y##i, leading_dim##i, columns##i, tile};  \
  tile -= (columns##i + (wide) - 1) / (wide);
#if MATRICES == 1
#define FIND_ALL(wide) FIND(0, wide)
#elif MATRICES == 2
#define FIND_ALL(wide) FIND(0, wide) FIND(1, wide)
#else
#define FIND_ALL(wide) FIND(0, wide) FIND(1, wide) FIND(2, wide)
#endif

#if !TRANSPOSED
// Threads of a warp that read one row of w: 128 bytes of it.
#define LANES 8
#define WIDE (LANES * VECTOR)
// Rows of w that a block reads at once.
#define TALL (256 / LANES)

#if CLUSTER > 1 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTERED 1
#define KILN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
// Reads distributed shared memory: the element of another block of the cluster at the address of `mine`.
__device__ __forceinline__ A kiln_of_block(const A* mine, unsigned block) {
  const A* theirs;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(block));
  return *(const volatile A*)theirs;
}
__device__ __forceinline__ void kiln_sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else
#define CLUSTERED 0
#define KILN_CLUSTER
#endif

// Split-k: the rows of w in `splits` parts of `part` rows. A block computes WIDE columns of one part, and one block of
// a tile adds up the partial sums in a fixed order. In a cluster that is the first block; otherwise it is the last to
// arrive, and `arrived` counts the blocks of each tile, and returns to 0.
extern "C" __global__ void KILN_CLUSTER __launch_bounds__(256) kiln_slim(
    const T* x, A* parts, unsigned* arrived, long long x_leading_dim, int inner, int splits, int part, MATRIX_LIST) {
  kiln_begin();
  __shared__ A sums[8][ROWS][WIDE];
  __shared__ bool is_last;
  const int all = blockIdx.x / splits, split = blockIdx.x % splits;
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / 32;
  int tile = all;
  KilnMatrix at = {};
  FIND_ALL(WIDE)
  const int first = at.tile * WIDE, end = (split + 1) * part < inner ? (split + 1) * part : inner;
  A total[ROWS][VECTOR] = {};
  if (first + lane * VECTOR < at.columns) {
    const T* w = at.w + first + lane * VECTOR;
    for (int k = split * part + threadIdx.x / LANES; k < end; k += TALL * FLIGHT) {
      KilnVector vectors[FLIGHT];
      T factors[FLIGHT][ROWS];
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f) {
        const int row = k + f * TALL;
        if (row < end) vectors[f] = kiln_once(w + row * at.leading_dim);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          if (row < end) factors[f][r] = x[r * x_leading_dim + row];
      }
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f)
        if (k + f * TALL < end) {
#pragma unroll
          for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) total[r][e] += (A)T_READ(factors[f][r]) * (A)T_READ(vectors[f].at[e]);
        }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
      for (int d = LANES; d < 32; d *= 2) total[r][e] += __shfl_xor_sync(0xffffffffu, total[r][e], d);
      if (threadIdx.x % 32 < LANES) sums[warp][r][lane * VECTOR + e] = total[r][e];
    }
  __syncthreads();
  const int r = threadIdx.x / WIDE, c = threadIdx.x % WIDE;
  const bool writes = r < ROWS && first + c < at.columns;
  T* y = at.y + (long long)r * at.columns + first + c;
  A sum = 0;
  if (writes)
    for (int i = 0; i < 8; ++i) sum += sums[i][r][c];
#if CLUSTERED
  __shared__ A own[ROWS][WIDE];
  if (writes) own[r][c] = sum;
  kiln_sync_cluster();
  if (split == 0 && writes) {
    sum = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) sum += kiln_of_block(&own[r][c], i);
    *y = T_WRITTEN(sum);
  }
  // A block must not exit while other blocks read its shared memory.
  kiln_sync_cluster();
#else
  A* mine = parts + ((long long)all * splits * ROWS + r) * WIDE + c;
  if (writes) {
    if (splits == 1)
      *y = T_WRITTEN(sum);
    else
      mine[(long long)split * ROWS * WIDE] = sum;
  }
  if (splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&arrived[all], 1u) == (unsigned)splits - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (writes) {
    sum = 0;
#pragma unroll 8
    for (int i = 0; i < splits; ++i) sum += ((const volatile A*)mine)[(long long)i * ROWS * WIDE];
    *y = T_WRITTEN(sum);
  }
  if (threadIdx.x == 0) arrived[all] = 0;
#endif
}
#else
// A warp computes one column, and reads 512 bytes of it at once.
extern "C" __global__ void __launch_bounds__(256) kiln_slim_columns(
    const T* x, long long x_leading_dim, int inner, MATRIX_LIST) {
  kiln_begin();
  const int lane = threadIdx.x % 32;
  int tile = blockIdx.x;
  KilnMatrix at = {};
  FIND_ALL(8)
  const int column = at.tile * 8 + threadIdx.x / 32;
  A total[ROWS] = {};
  if (column < at.columns) {
    const T* w = at.w + column * at.leading_dim;
    for (int k = lane * VECTOR; k < inner; k += 32 * VECTOR * FLIGHT) {
      KilnVector vectors[FLIGHT];
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f)
        if (k + f * 32 * VECTOR < inner) vectors[f] = kiln_once(w + k + f * 32 * VECTOR);
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f)
        if (k + f * 32 * VECTOR < inner) {
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const KilnVector factors = *(const KilnVector*)(x + r * x_leading_dim + k + f * 32 * VECTOR);
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) total[r] += (A)T_READ(factors.at[e]) * (A)T_READ(vectors[f].at[e]);
          }
        }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    for (int d = 16; d > 0; d /= 2) total[r] += __shfl_xor_sync(0xffffffffu, total[r], d);
    if (lane == 0 && column < at.columns) at.y[(long long)r * at.columns + column] = T_WRITTEN(total[r]);
  }
}
#endif
