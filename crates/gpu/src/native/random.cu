// Random numbers by Philox4x32-10. KEY: the key's parameter, KEY_READ: its value. E: the element type. EACH: elements
// per block of four words. DRAW_BITS, DRAW_UNIFORM (with SHIFT and SCALE) or DRAW_NORMAL: the distribution. ROUNDED:
// converts a number to an element.

__device__ __forceinline__ void kiln_philox(unsigned long long key, unsigned long long block, unsigned* w) {
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  w[0] = (unsigned)block;
  w[1] = (unsigned)(block >> 32);
  w[2] = 0u;
  w[3] = 0u;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = (unsigned long long)w[0] * 0xD2511F53u, b = (unsigned long long)w[2] * 0xCD9E8D57u;
    w[0] = (unsigned)(b >> 32) ^ w[1] ^ k0;
    w[1] = (unsigned)b;
    w[2] = (unsigned)(a >> 32) ^ w[3] ^ k1;
    w[3] = (unsigned)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

__device__ __forceinline__ unsigned long long kiln_pair(const unsigned* w, int i) {
  return w[2 * i] | (unsigned long long)w[2 * i + 1] << 32;
}

extern "C" __global__ void kiln_random(KEY key_of, E* y, long long total) {
  kiln_begin();
  const unsigned long long key = KEY_READ(key_of);
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b * EACH < total; b += step) {
    unsigned w[4];
    kiln_philox(key, (unsigned long long)b, w);
    kiln_pack<E, EACH> drawn;
#if defined(DRAW_NORMAL)
    // Box-Muller, in pairs.
    for (int i = 0; i < 2; ++i) {
      const double u = ((double)w[2 * i] + 1.0) * 0x1p-32, v = (double)w[2 * i + 1] * 0x1p-32;
      const double radius = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
      drawn.at[2 * i] = ROUNDED(radius * cos(angle));
      drawn.at[2 * i + 1] = ROUNDED(radius * sin(angle));
    }
#else
    for (int i = 0; i < EACH; ++i) {
#if EACH == 2
      const unsigned long long word = kiln_pair(w, i);
#else
      const unsigned word = w[i];
#endif
#if defined(DRAW_UNIFORM)
      drawn.at[i] = ROUNDED((word >> SHIFT) * SCALE);
#else
      drawn.at[i] = (E)word;
#endif
    }
#endif
    const long long at = b * EACH;
    if (at + EACH <= total) {
      *reinterpret_cast<kiln_pack<E, EACH>*>(y + at) = drawn;
    } else {
      for (int i = 0; at + i < total; ++i) y[at + i] = drawn.at[i];
    }
  }
}
