// Sorts contiguous lines. T: the dtype, with T_VALUE and T_READ. KEY: unsigned integers in the order of the elements,
// computed as KEY_OF_FLOAT and KEY_OF_SIGNED select. DESCENDING: whether the order is reversed. I: the index type.
//
// Equal keys are ordered by index, so the order is total and the sort stable.

#define KILN_TILE 2048
#define KILN_THREADS 256

#if defined(FROM_ELEMENTS)
// The sort key of an element: NaN is greatest, and both zeros are equal.
__device__ __forceinline__ KEY kiln_key(T element) {
#if defined(KEY_OF_FLOAT)
  const T_VALUE x = T_READ(element);
  const KEY top = (KEY)1 << (sizeof(KEY) * 8 - 1), bits = x == (T_VALUE)0 ? (KEY)0 : kiln_bits<KEY>(x);
  const KEY key = x != x ? ~(KEY)0 : bits & top ? ~bits : bits | top;
#elif defined(KEY_OF_SIGNED)
  const KEY key = (KEY)element ^ (KEY)1 << (sizeof(KEY) * 8 - 1);
#else
  const KEY key = (KEY)element;
#endif
  return DESCENDING ? (KEY)~key : key;
}
#endif

#if defined(KILN_TILES) || defined(KILN_SPREAD)
// Sorts groups of `size` elements (a power of two) of a tile by a bitonic network.
__device__ __forceinline__ void kiln_sort_tile(KEY* tile_keys, int* tile_places, int size) {
  for (int block = 2; block <= size; block *= 2) {
    for (int distance = block / 2; distance > 0; distance /= 2) {
      for (int pair = threadIdx.x; pair < KILN_TILE / 2; pair += KILN_THREADS) {
        const int low = (pair & ~(distance - 1)) * 2 | (pair & (distance - 1)), high = low + distance;
        const bool up = (low & (size - 1) & block) == 0;
        const KEY a = tile_keys[low], b = tile_keys[high];
        const int place_a = tile_places[low], place_b = tile_places[high];
        if ((a > b || (a == b && place_a > place_b)) == up) {
          tile_keys[low] = b;
          tile_keys[high] = a;
          tile_places[low] = place_b;
          tile_places[high] = place_a;
        }
      }
      __syncthreads();
    }
  }
}
#endif

#if defined(KILN_TILES)
// Sorts tiles of `segment` elements (a power of two up to KILN_TILE; several tiles per block) by a bitonic network, and
// keeps the first elements of each. FROM_ELEMENTS: reads `x`, otherwise `keys` and `places`. TO_RESULTS: writes values
// and indices.
extern "C" __global__ void kiln_tiles(const T* x, const KEY* keys, const int* places, KEY* next_keys, int* next_places,
                                      T* y, I* index, long long lines, long long length, long long tiles,
                                      long long segment, long long keep, long long kept, long long x_length) {
  kiln_begin();
  __shared__ KEY tile_keys[KILN_TILE];
  __shared__ int tile_places[KILN_TILE];
  (void)keys, (void)places, (void)next_keys, (void)next_places, (void)y, (void)index, (void)x, (void)x_length;
  const int size = (int)segment;
  const long long first = blockIdx.x * (long long)(KILN_TILE / size), units = lines * tiles;
  for (int e = threadIdx.x; e < KILN_TILE; e += KILN_THREADS) {
    const long long unit = first + e / size, line = unit / tiles, at = unit % tiles * size + e % size;
    // Padding sorts last: no element has this index.
    KEY key = ~(KEY)0;
    int place = 0x7fffffff;
    if (unit < units && at < length) {
#if defined(FROM_ELEMENTS)
      key = kiln_key(x[line * length + at]);
      place = (int)at;
#else
      key = keys[line * length + at];
      place = places[line * length + at];
#endif
    }
    tile_keys[e] = key;
    tile_places[e] = place;
  }
  __syncthreads();
  kiln_sort_tile(tile_keys, tile_places, size);
  for (int e = threadIdx.x; e < KILN_TILE; e += KILN_THREADS) {
    const long long unit = first + e / size, line = unit / tiles, tile = unit % tiles;
    const int within = e % size;
    if (unit >= units || within >= keep || tile * size + within >= length) continue;
    const long long to = line * kept + tile * keep + within;
#if defined(TO_RESULTS)
    y[to] = x[line * x_length + tile_places[e]];
    index[to] = (I)tile_places[e];
#else
    next_keys[to] = tile_keys[e];
    next_places[to] = tile_places[e];
#endif
  }
}
#endif

// Counting sort by 8-bit keys. A block processes a chunk of a line, which consists of whole tiles.

#if defined(KILN_COUNT)
// The histogram of each chunk: [lines, 256, chunks].
extern "C" __global__ void kiln_count(const T* x, unsigned* counts, long long length, long long chunks, long long chunk) {
  kiln_begin();
  __shared__ unsigned count[256];
  const long long line = blockIdx.x / chunks, number = blockIdx.x % chunks, first = number * chunk;
  const long long end = first + chunk < length ? first + chunk : length;
  for (int key = threadIdx.x; key < 256; key += KILN_THREADS) count[key] = 0;
  __syncthreads();
  for (long long e = first + threadIdx.x; e < end; e += KILN_THREADS) {
    atomicAdd(&count[kiln_key(x[line * length + e])], 1u);
  }
  __syncthreads();
  for (int key = threadIdx.x; key < 256; key += KILN_THREADS) {
    counts[(line * 256 + key) * chunks + number] = count[key];
  }
}
#endif

#if defined(KILN_SPREAD)
// Moves each element to its sorted position, if that is among the first `keep`. The position follows smaller keys,
// equal keys of earlier chunks, and equal keys of the same chunk. `starts` holds the count of the first two as [lines,
// 256, chunks]. Within a tile the order is that of a sort.
extern "C" __global__ void kiln_spread(const T* x, const unsigned* starts, T* y, I* index, long long length,
                                       long long chunks, long long chunk, long long keep) {
  kiln_begin();
  __shared__ KEY tile_keys[KILN_TILE];
  __shared__ int tile_places[KILN_TILE];
  __shared__ unsigned start[256];
  __shared__ int first[256];
  const long long line = blockIdx.x / chunks, number = blockIdx.x % chunks;
  const long long end = number * chunk + chunk < length ? number * chunk + chunk : length;
  for (int key = threadIdx.x; key < 256; key += KILN_THREADS) {
    start[key] = starts[(line * 256 + key) * chunks + number];
  }
  for (long long tile = number * chunk; tile < end; tile += KILN_TILE) {
    const int count = end - tile < KILN_TILE ? (int)(end - tile) : KILN_TILE;
    for (int e = threadIdx.x; e < KILN_TILE; e += KILN_THREADS) {
      // Padding sorts last: its index is greater than all others.
      tile_keys[e] = e < count ? kiln_key(x[line * length + tile + e]) : (KEY)~(KEY)0;
      tile_places[e] = e;
    }
    __syncthreads();
    kiln_sort_tile(tile_keys, tile_places, KILN_TILE);
    for (int e = threadIdx.x; e < count; e += KILN_THREADS) {
      if (e == 0 || tile_keys[e] != tile_keys[e - 1]) first[tile_keys[e]] = e;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < count; e += KILN_THREADS) {
      const KEY key = tile_keys[e];
      const long long place = tile + tile_places[e], to = (long long)start[key] + (e - first[key]);
      if (to < keep) {
        y[line * keep + to] = x[line * length + place];
        index[line * keep + to] = (I)place;
      }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < count; e += KILN_THREADS) {
      const KEY key = tile_keys[e];
      if (e == count - 1 || key != tile_keys[e + 1]) start[key] += (unsigned)(e - first[key] + 1);
    }
    __syncthreads();
  }
}
#endif

#if defined(KILN_MERGE)
// Merge path: the number of elements from the first run among the first `diagonal` elements of two merged runs.
__device__ __forceinline__ long long kiln_split(const KEY* a, long long a_length, const KEY* b, long long b_length,
                                                long long diagonal) {
  long long low = diagonal > b_length ? diagonal - b_length : 0, high = diagonal < a_length ? diagonal : a_length;
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (a[middle] <= b[diagonal - 1 - middle]) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Merges neighbouring sorted runs of `run` elements (a multiple of KILN_TILE). A block writes KILN_TILE elements.
extern "C" __global__ void kiln_merge(const KEY* keys, const int* places, KEY* next_keys, int* next_places,
                                      long long length, long long tiles, long long run) {
  kiln_begin();
  __shared__ KEY tile_keys[KILN_TILE];
  __shared__ int tile_places[KILN_TILE];
  __shared__ long long split[2];
  const long long line = blockIdx.x / tiles * length, to = blockIdx.x % tiles * KILN_TILE;
  const long long start = to / (2 * run) * (2 * run);
  const long long middle = start + run < length ? start + run : length;
  const long long end = start + 2 * run < length ? start + 2 * run : length;
  const long long a_length = middle - start, b_length = end - middle, from = to - start;
  const long long until = from + KILN_TILE < end - start ? from + KILN_TILE : end - start;
  if (threadIdx.x < 2) {
    const long long diagonal = threadIdx.x == 0 ? from : until;
    split[threadIdx.x] = kiln_split(keys + line + start, a_length, keys + line + middle, b_length, diagonal);
  }
  __syncthreads();
  const long long a_first = split[0], b_first = from - split[0];
  const int count = (int)(until - from), a_count = (int)(split[1] - split[0]), b_count = count - a_count;
  for (int e = threadIdx.x; e < count; e += KILN_THREADS) {
    const long long at = line + (e < a_count ? start + a_first + e : middle + b_first + (e - a_count));
    tile_keys[e] = keys[at];
    tile_places[e] = places[at];
  }
  __syncthreads();
  // Each thread merges its own consecutive elements.
  const int each = KILN_TILE / KILN_THREADS, begin = (int)threadIdx.x * each;
  KEY own_keys[KILN_TILE / KILN_THREADS];
  int own_places[KILN_TILE / KILN_THREADS];
  int own = count - begin < each ? count - begin : each;
  if (own > 0) {
    int a = (int)kiln_split(tile_keys, a_count, tile_keys + a_count, b_count, begin), b = begin - a;
    for (int i = 0; i < own; ++i) {
      const bool first = b >= b_count || (a < a_count && tile_keys[a] <= tile_keys[a_count + b]);
      const int at = first ? a++ : a_count + b++;
      own_keys[i] = tile_keys[at];
      own_places[i] = tile_places[at];
    }
  }
  __syncthreads();
  for (int i = 0; i < own; ++i) {
    tile_keys[begin + i] = own_keys[i];
    tile_places[begin + i] = own_places[i];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < count; e += KILN_THREADS) {
    next_keys[line + to + e] = tile_keys[e];
    next_places[line + to + e] = tile_places[e];
  }
}
#endif

#if defined(KILN_ORDERED)
// Writes the first `keep` elements of each line from their indices.
extern "C" __global__ void kiln_ordered(const T* x, const int* places, T* y, I* index, long long total, long long length,
                                        long long keep) {
  kiln_begin();
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < total;
       p += gridDim.x * (long long)blockDim.x) {
    const long long line = p / keep * length;
    const int place = places[line + p % keep];
    y[p] = x[line + place];
    index[p] = (I)place;
  }
}
#endif
