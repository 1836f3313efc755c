// Attention without scores in memory (FlashAttention), with the keys in parts. T: the dtype, with T_VALUE, T_READ and
// T_WRITTEN; A: the accumulator type; DIM and DIM_V: columns of queries and keys, and of values; MASK: 0 for none, 1
// for a byte mask, 2 for an additive mask. PART: the kernel to compile.
//
// A block of 16 x 16 threads computes TALL * 16 rows of its result, and iterates over the other operand WIDE * 16 rows
// at a time. Each thread computes every 16th row and column of a tile. Operands pass through shared memory CHUNK
// columns at a time. The queries of all heads that share keys are stacked as rows of one matrix.

#define CHUNK 64
#define PITCH (CHUNK + 1)
#define ROWS (TALL * 16)
#define COLUMNS (WIDE * 16)
#define WEIGHTS_PITCH (COLUMNS + 1)
#define STEPS(x) long long x##_batch, long long x##_head, long long x##_row, long long x##_column
#define KILN_INFINITE ((A)(1e308 * 10.0))
#define UP(x) (((x) + CHUNK - 1) / CHUNK)

// A matrix with `in_head` rows per head.
struct KilnRows {
  const T* at;
  long long head, row, column;
  int in_head, rows;
  __device__ long long place(int r) const { return r / in_head * head + r % in_head * row; }
};

#define KILN_ROWS(x, heads, count) \
  KilnRows{x + batch * x##_batch + kv_head * (heads) * x##_head, x##_head, x##_row, x##_column, count, (heads) * (count)}

#if MASK == 1
typedef unsigned char KilnMask;
#else
typedef T KilnMask;
#endif

// Visibility of keys for a query: the causal offset and the mask.
struct KilnSight {
  const KilnMask* mask;
  long long head, row, column;
  int queries, keys;
  long long offset;
  A scale;
  // The score of row `r` and a key, from their dot product; masked keys get -infinity.
  __device__ A score(A product, int r, int key) const {
    const int query = r % queries;
    if (key >= keys || key > query + offset) return -KILN_INFINITE;
#if MASK == 1
    if (!mask[r / queries * head + query * row + key * column]) return -KILN_INFINITE;
    return product * scale;
#elif MASK == 2
    return product * scale + (A)T_READ(mask[r / queries * head + query * row + key * column]);
#else
    return product * scale;
#endif
  }
  // The bias added to the scaled dot product of row `r` and a key below `keys`.
  __device__ A added(int r, int key) const {
    const int query = r % queries;
    if (key > query + offset) return -KILN_INFINITE;
#if MASK == 1
    return mask[r / queries * head + query * row + key * column] ? (A)0 : -KILN_INFINITE;
#elif MASK == 2
    return (A)T_READ(mask[r / queries * head + query * row + key * column]);
#else
    return 0;
#endif
  }
  // The first key that is invisible to all rows in [first, end).
  __device__ int end(int first, int end) const {
    const int last = first / queries == (end - 1) / queries ? (end - 1) % queries : queries - 1;
    const long long seen = last + offset + 1;
    return seen < 0 ? 0 : seen < keys ? (int)seen : keys;
  }
};

__device__ void kiln_load(A* to, const KilnRows& from, int first, int count, int column, int columns) {
  for (int e = threadIdx.x; e < count * CHUNK; e += 256) {
    const int r = first + e / CHUNK, c = column + e % CHUNK;
    to[e / CHUNK * PITCH + e % CHUNK] =
        r < from.rows && c < columns ? (A)T_READ(from.at[from.place(r) + c * from.column]) : (A)0;
  }
}

// sums[i][j] += dot product of row i of a and row j of b.
template <int columns>
__device__ void kiln_across(A (&sums)[TALL][WIDE], const KilnRows& a, int first_a, const KilnRows& b, int first_b, A* left, A* right) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  for (int column = 0; column < columns; column += CHUNK) {
    __syncthreads();
    kiln_load(left, a, first_a, ROWS, column, columns);
    kiln_load(right, b, first_b, COLUMNS, column, columns);
    __syncthreads();
    const int most = columns - column < CHUNK ? columns - column : CHUNK;
    for (int c = 0; c < most; ++c)
      for (int i = 0; i < TALL; ++i)
        for (int j = 0; j < WIDE; ++j)
          sums[i][j] = fma(left[(ty + 16 * i) * PITCH + c], right[(tx + 16 * j) * PITCH + c], sums[i][j]);
  }
}

// sums[i][j] += dot product of row i of the weights and column j of b.
template <int columns>
__device__ void kiln_down(A (&sums)[TALL][UP(columns) * CHUNK / 16], const A* weights, const KilnRows& b, int first_b, A* right) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
  for (int chunk = 0; chunk < UP(columns); ++chunk) {
    __syncthreads();
    kiln_load(right, b, first_b, COLUMNS, chunk * CHUNK, columns);
    __syncthreads();
    for (int r = 0; r < COLUMNS; ++r) {
#pragma unroll
      for (int i = 0; i < TALL; ++i) {
        const A weight = weights[(ty + 16 * i) * WEIGHTS_PITCH + r];
#pragma unroll
        for (int j = 0; j < CHUNK / 16; ++j) {
          A& sum = sums[i][chunk * (CHUNK / 16) + j];
          sum = fma(weight, right[r * PITCH + tx + 16 * j], sum);
        }
      }
    }
  }
}

// The maximum over the 16 threads that share rows.
__device__ A kiln_row_greatest(A x) {
  for (int d = 1; d < 16; d *= 2) {
    const A other = __shfl_xor_sync(0xffffffffu, x, d);
    x = x > other ? x : other;
  }
  return x;
}
__device__ A kiln_row_sum(A x) {
  for (int d = 1; d < 16; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

#define KILN_BLOCK(rows) \
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, group = heads / kv_heads; \
  const int tiles = ((rows) + ROWS - 1) / ROWS; \
  const long long block = blockIdx.x / splits; \
  const int split = blockIdx.x % splits, first = (int)(block % tiles) * ROWS; \
  const long long kv_head = block / tiles % kv_heads, batch = block / tiles / kv_heads;
#define KILN_SIGHT \
  KilnSight{mask + batch * mask_batch + kv_head * group * mask_head, mask_head, mask_row, mask_column, queries, keys, offset, scale}

#if PART == 0
// Attention with the keys in `splits` parts: results of each part follow those of the previous part, to be combined.
extern "C" __global__ void __launch_bounds__(256) kiln_attention(
    const T* q, const T* k, const T* v, const KilnMask* mask, A* y, A* lse, STEPS(q), STEPS(k), STEPS(v), STEPS(mask),
    int heads, int kv_heads, int queries, int keys, long long offset, A scale, int splits, long long results) {
  kiln_begin();
  __shared__ A left[ROWS * PITCH], right[COLUMNS * PITCH], weights[ROWS * WEIGHTS_PITCH];
  KILN_BLOCK(heads / kv_heads * queries)
  const KilnRows of_q = KILN_ROWS(q, group, queries), of_k = KILN_ROWS(k, 1, keys), of_v = KILN_ROWS(v, 1, keys);
  const KilnSight sight = KILN_SIGHT;
  const int end_row = first + ROWS < of_q.rows ? first + ROWS : of_q.rows;
  const int part = (keys + splits - 1) / splits, seen = sight.end(first, end_row);
  const int end = (split + 1) * part < seen ? (split + 1) * part : seen;
  A sums[TALL][UP(DIM_V) * CHUNK / 16] = {}, greatest[TALL], total[TALL] = {};
  for (int i = 0; i < TALL; ++i) greatest[i] = -KILN_INFINITE;
  for (int key = split * part; key < end; key += COLUMNS) {
    A scores[TALL][WIDE] = {};
    kiln_across<DIM>(scores, of_q, first, of_k, key, left, right);
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
      A top = greatest[i];
      for (int j = 0; j < WIDE; ++j) {
        const int r = first + ty + 16 * i, at = key + tx + 16 * j;
        A& score = scores[i][j];
        score = r < of_q.rows && at < end ? sight.score(score, r, at) : -KILN_INFINITE;
        top = top > score ? top : score;
      }
      top = kiln_row_greatest(top);
      const A base = top == -KILN_INFINITE ? (A)0 : top, less = exp(greatest[i] - base);
      A sum = 0;
      for (int j = 0; j < WIDE; ++j) {
        const A weight = exp(scores[i][j] - base);
        weights[(ty + 16 * i) * WEIGHTS_PITCH + tx + 16 * j] = weight;
        sum += weight;
      }
      total[i] = total[i] * less + kiln_row_sum(sum);
      greatest[i] = top;
      for (int j = 0; j < UP(DIM_V) * CHUNK / 16; ++j) sums[i][j] *= less;
    }
    kiln_down<DIM_V>(sums, weights, of_v, key, right);
  }
#pragma unroll
  for (int i = 0; i < TALL; ++i) {
    const int r = first + ty + 16 * i;
    if (r >= of_q.rows) continue;
    const long long head = kv_head * group + r / queries, row = r % queries;
    const long long result = split * results + (batch * heads + head) * queries + row;
    A* to = y + result * DIM_V;
#pragma unroll
    for (int j = 0; j < UP(DIM_V) * CHUNK / 16; ++j)
      if (tx + 16 * j < DIM_V) to[tx + 16 * j] = total[i] == (A)0 ? (A)0 : sums[i][j] / total[i];
    if (tx == 0)
      lse[result] = total[i] == (A)0 ? -KILN_INFINITE : greatest[i] + log(total[i]);
  }
}
#elif PART == 1
// Combines the parts of all `results` rows.
extern "C" __global__ void kiln_attention_combine(
    const A* parts, const A* logs, T* y, A* lse, STEPS(y), int heads, int queries, int splits, long long results) {
  kiln_begin();
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < results * DIM_V; p += gridDim.x * (long long)blockDim.x) {
    const long long r = p / DIM_V, c = p % DIM_V;
    A greatest = -KILN_INFINITE, total = 0, sum = 0;
    for (int s = 0; s < splits; ++s) greatest = greatest > logs[s * results + r] ? greatest : logs[s * results + r];
    const A base = greatest == -KILN_INFINITE ? (A)0 : greatest;
    for (int s = 0; s < splits; ++s) {
      const A weight = exp(logs[s * results + r] - base);
      total += weight;
      sum += weight * parts[(s * results + r) * DIM_V + c];
    }
    const long long batch = r / queries / heads, head = r / queries % heads;
    y[batch * y_batch + head * y_head + r % queries * y_row + c * y_column] = T_WRITTEN(total == (A)0 ? (A)0 : sum / total);
    if (c == 0) lse[r] = total == (A)0 ? -KILN_INFINITE : base + log(total);
  }
}
#elif PART == 2
// The additive bias that replaces a byte mask with these axis lengths: HIDDEN for masked keys.
extern "C" __global__ void kiln_attention_bias(
    const KilnMask* mask, A* to, STEPS(mask), long long heads, long long rows, long long columns, long long total) {
  kiln_begin();
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < total; p += gridDim.x * (long long)blockDim.x) {
    const long long c = p % columns, r = p / columns % rows, h = p / columns / rows % heads, b = p / columns / rows / heads;
    to[p] = mask[b * mask_batch + h * mask_head + r * mask_row + c * mask_column] ? (A)0 : (A)HIDDEN;
  }
}
#elif PART == 3
// Split-key attention for few queries. A block computes 8 rows, one per warp, of one part of the keys. The last block
// of the rows to arrive combines the partial results in a fixed order. `arrived` counts the blocks of each 8 rows, and
// returns to 0. VECTOR: elements in 16 bytes, a divisor of DIM = DIM_V. Columns are contiguous.
#define LANES (DIM / VECTOR)
#define KEYS (256 / LANES)
#define SHARE ((DIM + 31) / 32)
#define MOST_SPLITS 64
// Rows per thread: the rows of its key's scores that a thread finishes.
#define MINE ((7 + LANES) / LANES)
// Parts weighted by each thread of a warp, and parts whose columns a thread loads before their weights are known.
#define EACH (MOST_SPLITS / 32)
#define AHEAD (SHARE > 2 ? 64 / SHARE : 32)
typedef kiln_pack<T, VECTOR> KilnVector;

__device__ A kiln_warp_greatest(A x) {
  for (int d = 1; d < 32; d *= 2) {
    const A other = __shfl_xor_sync(0xffffffffu, x, d);
    x = x > other ? x : other;
  }
  return x;
}
__device__ A kiln_warp_sum(A x) {
  for (int d = 1; d < 32; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

extern "C" __global__ void __launch_bounds__(256) kiln_attention_few(
    const T* q, const T* k, const T* v, const KilnMask* mask, T* y, A* lse, A* parts, unsigned* arrived, STEPS(q), STEPS(k), STEPS(v),
    STEPS(mask), STEPS(y), int heads, int kv_heads, int queries, int keys, long long offset, A scale, int splits, int part) {
  kiln_begin();
  alignas(16) __shared__ A rows_of_q[8][DIM], values[KEYS][DIM], weights[8][KEYS], shares[8][MOST_SPLITS];
  __shared__ bool is_last;
  const int group = heads / kv_heads, rows = group * queries, tiles = (rows + 7) / 8;
  const int block = blockIdx.x / splits, split = blockIdx.x % splits;
  const int first = block % tiles * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = first + warp;
  const long long kv_head = block / tiles % kv_heads, batch = block / tiles / kv_heads;
  const KilnRows of_q = KILN_ROWS(q, group, queries);
  const KilnSight sight = KILN_SIGHT;
  const int seen = sight.end(first, first + 8 < rows ? first + 8 : rows);
  const int end = (split + 1) * part < seen ? (split + 1) * part : seen;
  A sums[SHARE] = {}, greatest = -KILN_INFINITE, total = 0;
  const int at = threadIdx.x % LANES, own = threadIdx.x / LANES;
  KilnVector of_key = {}, of_value = {};
  A added[MINE] = {};
  // Starts the load of a key and its value into the registers of the previous ones.
  const auto fetch = [&](int key) {
    if (key >= end) return;
    of_key = *(const KilnVector*)(k + batch * k_batch + kv_head * k_head + key * k_row + at * VECTOR);
    of_value = *(const KilnVector*)(v + batch * v_batch + kv_head * v_head + key * v_row + at * VECTOR);
#pragma unroll
    for (int m = 0; m < MINE; ++m)
      if (at + m * LANES < 8 && first + at + m * LANES < rows) added[m] = sight.added(first + at + m * LANES, key);
  };
  fetch(split * part + own);
  for (int e = threadIdx.x; e < 8 * DIM; e += 256)
    rows_of_q[e / DIM][e % DIM] = first + e / DIM < rows ? (A)T_READ(of_q.at[of_q.place(first + e / DIM) + e % DIM]) : (A)0;
  for (int start = split * part; start < end; start += KEYS) {
    const int key = start + own;
    A scores[MINE];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      A product = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; ++e) product += rows_of_q[i][at * VECTOR + e] * (A)T_READ(of_key.at[e]);
      for (int d = 1; d < LANES; d *= 2) product += __shfl_xor_sync(0xffffffffu, product, d);
      if (i % LANES == at) scores[i / LANES] = product;
    }
#pragma unroll
    for (int m = 0; m < MINE; ++m)
      if (at + m * LANES < 8)
        weights[at + m * LANES][own] = key >= end || added[m] == -KILN_INFINITE ? -KILN_INFINITE : scores[m] * scale + added[m];
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) values[own][at * VECTOR + e] = key < end ? (A)T_READ(of_value.at[e]) : (A)0;
    fetch(key + KEYS);
    __syncthreads();
    A top = greatest, sum = 0;
    for (int i = lane; i < KEYS; i += 32) top = top > weights[warp][i] ? top : weights[warp][i];
    top = kiln_warp_greatest(top);
    const A base = top == -KILN_INFINITE ? (A)0 : top, less = exp(greatest - base);
    for (int i = lane; i < KEYS; i += 32) {
      const A weight = exp(weights[warp][i] - base);
      weights[warp][i] = weight;
      sum += weight;
    }
    total = total * less + kiln_warp_sum(sum);
    greatest = top;
#pragma unroll
    for (int j = 0; j < SHARE; ++j) sums[j] *= less;
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < KEYS; ++i)
#pragma unroll
      for (int j = 0; j < SHARE; ++j)
        if (lane + 32 * j < DIM) sums[j] += weights[warp][i] * values[i][lane + 32 * j];
  }
  if (splits > 1) {
    // The partial results of each row: its sums, its maximum score, and its sum of weights.
    A* mine = parts + ((long long)block * splits * 8 + warp) * (DIM + 2);
    A* to = mine + (long long)split * 8 * (DIM + 2);
    for (int j = 0; j < SHARE; ++j)
      if (lane + 32 * j < DIM) to[lane + 32 * j] = sums[j];
    if (lane == 0) {
      to[DIM] = greatest;
      to[DIM + 1] = total;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(&arrived[block], 1u) == (unsigned)splits - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) arrived[block] = 0;
    const volatile A* from = mine;
    // Issues all first loads at once: each waits for the L2 cache.
    A tops[EACH], totals[EACH], ahead[AHEAD][SHARE];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int s = lane + 32 * i;
      tops[i] = s < splits ? from[s * 8 * (DIM + 2) + DIM] : -KILN_INFINITE;
      totals[i] = s < splits ? from[s * 8 * (DIM + 2) + DIM + 1] : (A)0;
    }
#pragma unroll
    for (int s = 0; s < AHEAD; ++s)
#pragma unroll
      for (int j = 0; j < SHARE; ++j)
        ahead[s][j] = s < splits && lane + 32 * j < DIM ? from[s * 8 * (DIM + 2) + lane + 32 * j] : (A)0;
    greatest = tops[0];
#pragma unroll
    for (int i = 1; i < EACH; ++i) greatest = greatest > tops[i] ? greatest : tops[i];
    greatest = kiln_warp_greatest(greatest);
    const A base = greatest == -KILN_INFINITE ? (A)0 : greatest;
    total = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const A weight = exp(tops[i] - base);
      shares[warp][lane + 32 * i] = weight;
      total += weight * totals[i];
    }
    total = kiln_warp_sum(total);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < SHARE; ++j) {
      A sum = 0;
#pragma unroll
      for (int s = 0; s < AHEAD; ++s) sum += shares[warp][s] * ahead[s][j];
#pragma unroll 16
      for (int s = AHEAD; s < splits; ++s)
        if (lane + 32 * j < DIM) sum += shares[warp][s] * from[s * 8 * (DIM + 2) + lane + 32 * j];
      sums[j] = sum;
    }
  }
  if (r >= rows) return;
  const long long head = kv_head * group + r / queries, row = r % queries;
  T* to = y + batch * y_batch + head * y_head + row * y_row;
#pragma unroll
  for (int j = 0; j < SHARE; ++j)
    if (lane + 32 * j < DIM) to[(lane + 32 * j) * y_column] = T_WRITTEN(total == (A)0 ? (A)0 : sums[j] / total);
  if (lane == 0) lse[(batch * heads + head) * queries + row] = total == (A)0 ? -KILN_INFINITE : greatest + log(total);
}
#elif PART == 4
// Zeroes the rows whose keys are all masked.
extern "C" __global__ void kiln_attention_zero_masked_rows(T* y, A* lse, STEPS(y), int heads, int queries, long long results) {
  kiln_begin();
  for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < results; r += gridDim.x * (long long)blockDim.x) {
    if (!(lse[r] < (A)HIDDEN / 2)) continue;
    T* row = y + r / queries / heads * y_batch + r / queries % heads * y_head + r % queries * y_row;
    for (int c = 0; c < DIM_V; ++c) row[c * y_column] = T_WRITTEN((A)0);
    lse[r] = -KILN_INFINITE;
  }
}
#else
// Log-sum-exps under which fully masked rows get zero weights.
extern "C" __global__ void kiln_attention_finite_log_sum_exp(const A* lse, A* to, long long results) {
  kiln_begin();
  for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < results; r += gridDim.x * (long long)blockDim.x)
    to[r] = lse[r] == -KILN_INFINITE ? KILN_INFINITE : lse[r];
}
#endif
