// Reading and writing by index. Tensors are [before, length, after], the entries of an index [count], or
// [before, count, after] where INDEX_AT names the point itself.
//
// E: the element type of copies. I: the index type. INDEX_AT: `i` or `p`. A: the accumulator type. COMBINE: the combine
// function. WORD: the bits of A.

#define KILN_POINTS(total) \
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < (total); p += gridDim.x * (long long)blockDim.x)

#define KILN_PLACE \
  const long long a = p % after, i = p / after % count, b = p / after / count; \
  const long long at = (long long)index[INDEX_AT]; \
  const bool inside = at >= 0 && at < length; \
  if (!inside) kiln_fail(failed, index[INDEX_AT], INDEX_AT);

#if defined(KILN_TAKE)
extern "C" __global__ void kiln_take(const E* x, const I* index, E* y, unsigned long long* failed, long long total, long long length,
                                     long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    KILN_PLACE
    y[p] = inside ? x[(b * length + at) * after + a] : (E)0;
  }
}
#endif

#if defined(KILN_CHECK)
// Checks that entries are in range; moves no elements.
extern "C" __global__ void kiln_check(const I* index, unsigned long long* failed, long long total, long long length) {
  kiln_begin();
  KILN_POINTS(total) {
    const long long at = (long long)index[p];
    if (at < 0 || at >= length) kiln_fail(failed, index[p], p);
  }
}
#endif

#if defined(KILN_RECOVER)
// Sets the flag to 0 unless all marked words of a page are 0. Masks m0 to m7 have a bit for each word. The flag is 1
// before.
extern "C" __global__ void kiln_recover(const unsigned long long* words, unsigned char* ok, unsigned long long m0, unsigned long long m1,
                                        unsigned long long m2, unsigned long long m3, unsigned long long m4,
                                        unsigned long long m5, unsigned long long m6, unsigned long long m7,
                                        long long total) {
  kiln_begin();
  const unsigned long long marks[8] = {m0, m1, m2, m3, m4, m5, m6, m7};
  KILN_POINTS(total) {
    if ((marks[p / 64] >> (p % 64) & 1) != 0 && words[p] != 0) *ok = 0;
  }
}
#endif

#if defined(KILN_CLAIM)
// Resolves duplicates: the last entry with a target wins.
extern "C" __global__ void kiln_claim(const I* index, int* winner, unsigned long long* failed, long long total, long long length,
                                      long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    KILN_PLACE
    if (inside) atomicMax(&winner[WINNER_AT], (int)i);
    (void)a; (void)b;
  }
}
#endif

#if defined(KILN_SET_ONE)
// Writes a single entry, so there are no duplicates.
extern "C" __global__ void kiln_set_one(const E* source, const I* index, E* y, unsigned long long* failed, long long total,
                                        long long length, long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    KILN_PLACE
    if (inside) y[(b * length + at) * after + a] = source[p];
  }
}
#endif

#if defined(KILN_SET)
extern "C" __global__ void kiln_set(const E* source, const I* index, const int* winner, E* y, unsigned long long* failed,
                                    long long total, long long length, long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    KILN_PLACE
    if (inside && winner[WINNER_AT] == (int)i) y[(b * length + at) * after + a] = source[p];
  }
}
#endif

#if defined(KILN_COMBINE) || defined(KILN_COMBINE_FEW)
__device__ __forceinline__ void kiln_into(A* place, A x) {
#if defined(ATOMIC_ADD)
  atomicAdd(place, x);
#else
  WORD* word = reinterpret_cast<WORD*>(place);
  // A cached value may be stale. If the combine changes nothing, no compare-and-swap would detect that.
  WORD seen = *reinterpret_cast<volatile WORD*>(word), expected;
  do {
    expected = seen;
    const A old = kiln_bits<A>(expected);
    const WORD next = kiln_bits<WORD>((A)(COMBINE(old, x)));
    if (next == expected) return;
    seen = atomicCAS(word, expected, next);
  } while (seen != expected);
#endif
}

#endif

#if defined(KILN_COMBINE)
extern "C" __global__ void kiln_combine(const A* source, const I* index, A* y, unsigned long long* failed, long long total,
                                        long long length, long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    KILN_PLACE
    if (inside) kiln_into(&y[(b * length + at) * after + a], source[p]);
  }
}
#endif

#if defined(KILN_COMBINE_SORTED)
// Combines entries with their targets in the order of the entries. `keys` are the sorted entries of each line, `order`
// their places: for all lines the same, or [before, after, count]. LINE: the offset of the line in them. The thread of
// the first of equal keys combines all of them.
extern "C" __global__ void kiln_combine_sorted(const A* source, const I* keys, const int* order, A* y,
                                               unsigned long long* failed, long long total, long long length,
                                               long long count, long long after) {
  kiln_begin();
  KILN_POINTS(total) {
    const long long a = p % after, first = p / after % count, b = p / after / count, line = LINE;
    const I key = keys[line + first];
    if (first > 0 && keys[line + first - 1] == key) continue;
    const long long at = (long long)key;
    if (at < 0 || at >= length) {
      const long long i = order[line + first];
      kiln_fail(failed, key, FAILED_AT);
      continue;
    }
    A* to = &y[(b * length + at) * after + a];
    A value = *to;
    for (long long next = first; next < count && keys[line + next] == key; ++next) {
      const long long i = order[line + next];
      value = (A)(COMBINE(value, source[(b * count + i) * after + a]));
    }
    *to = value;
  }
}
#endif

#if defined(KILN_COMBINE_FEW)
// Sums for few targets: each block accumulates in shared memory, and then adds its sums to the tensor. PLACES: the
// capacity in shared memory. NOTHING: the additive identity.
extern "C" __global__ void kiln_combine_few(const A* source, const I* index, A* y, unsigned long long* failed, long long total,
                                            long long length) {
  __shared__ A sums[PLACES];
  for (int at = threadIdx.x; at < length; at += blockDim.x) sums[at] = NOTHING;
  __syncthreads();
  kiln_begin();
  KILN_POINTS(total) {
    const long long at = (long long)index[p];
    if (at >= 0 && at < length) {
      kiln_into(&sums[at], source[p]);
    } else {
      kiln_fail(failed, index[p], p);
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < length; at += blockDim.x) kiln_into(&y[at], sums[at]);
}
#endif
