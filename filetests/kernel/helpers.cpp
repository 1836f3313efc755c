typedef int kiln_index;


// Loaded and stored as one access of up to 16 bytes.
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) kiln_pack { T at[N]; };

// Programmatic dependent launch. Waits for the previous kernel to end, then lets the next one start: started earlier, it would
// let the one after it start too, which would occupy SMs that this kernel needs.
__device__ __forceinline__ void kiln_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename B, typename A> __device__ __forceinline__ B kiln_bits(A x) {
  union { A a; B b; } both;
  both.a = x;
  return both.b;
}

// Round to odd: rounding the result to 16 bits again then equals rounding once.
__device__ __forceinline__ float kiln_odd(double x) {
  const float nearest = (float)x;
  const unsigned bits = kiln_bits<unsigned>(nearest);
  if ((double)nearest == x || x != x || (bits & 1u)) return nearest;
  const double wide = nearest;
  const bool too_far = (wide < 0 ? -wide : wide) > (x < 0 ? -x : x);
  return kiln_bits<float>(too_far ? bits - 1u : bits + 1u);
}

__device__ __forceinline__ float kiln_from_f16(unsigned short h) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  // A NaN keeps its bits, since a kernel may only copy the value.
  return x == x ? x : kiln_bits<float>((h & 0x8000u) << 16 | 0x7f800000u | (h & 0x3ffu) << 13);
#else
  const unsigned sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return kiln_bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return kiln_bits<float>(sign | ((rest << 13) + 0x38000000u));
  const float small = (float)rest * 5.9604645e-8f;
  return sign ? -small : small;
#endif
}

__device__ __forceinline__ unsigned short kiln_to_f16(float x) {
#if defined(__CUDA_ARCH__)
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  if (x == x) return h;
  const unsigned nan = kiln_bits<unsigned>(x), fraction = nan >> 13 & 0x3ffu;
  return (unsigned short)((nan >> 16 & 0x8000u) | 0x7c00u | (fraction ? fraction : 0x200u));
#else
  const unsigned bits = kiln_bits<unsigned>(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) {
    const unsigned fraction = rest >> 13 & 0x3ffu;
    return (unsigned short)(sign | 0x7c00u | (fraction ? fraction : 0x200u));
  }
  if (rest >= 0x47800000u) return (unsigned short)(sign | 0x7c00u);
  if (rest < 0x38800000u) {
    // Adding one half shifts the kept bits to the end, rounded to even.
    const float shifted = kiln_bits<float>(rest) + 0.5f;
    return (unsigned short)(sign | (kiln_bits<unsigned>(shifted) - 0x3f000000u));
  }
  return (unsigned short)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
#endif
}

__device__ __forceinline__ float kiln_from_bf16(unsigned short h) {
  return kiln_bits<float>((unsigned)h << 16);
}

__device__ __forceinline__ unsigned short kiln_to_bf16(float x) {
  const unsigned bits = kiln_bits<unsigned>(x);
  if (x != x) return (unsigned short)(bits >> 16 | (bits >> 16 & 0x7fu ? 0u : 0x40u));
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Rounds to the nearest bf16 value; NaN for NaN.
__device__ __forceinline__ float kiln_round_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  return kiln_bits<float>(bits);
#else
  return kiln_from_bf16(kiln_to_bf16(x));
#endif
}

// The bf16 bits of a value that bf16 represents exactly.
__device__ __forceinline__ unsigned short kiln_cut_bf16(float x) { return (unsigned short)(kiln_bits<unsigned>(x) >> 16); }

template <int N> __device__ __forceinline__ kiln_pack<unsigned, N / 2> kiln_cut_pairs(const kiln_pack<float, N>& x) {
  kiln_pack<unsigned, N / 2> pairs;
  #pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    pairs.at[i] = kiln_bits<unsigned>(x.at[2 * i]) >> 16 | (kiln_bits<unsigned>(x.at[2 * i + 1]) & 0xffff0000u);
  }
  return pairs;
}

template <int N> __device__ __forceinline__ kiln_pack<unsigned, N / 2> kiln_round_pairs(const kiln_pack<float, N>& x) {
  kiln_pack<unsigned, N / 2> pairs;
  #pragma unroll
  for (int i = 0; i < N / 2; ++i) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs.at[i]) : "f"(x.at[2 * i + 1]), "f"(x.at[2 * i]));
#else
    pairs.at[i] = kiln_to_bf16(x.at[2 * i]) | (unsigned)kiln_to_bf16(x.at[2 * i + 1]) << 16;
#endif
  }
  return pairs;
}

// For results of 16 bits: within 1e-7 of the true value, and within 6e-5 of it relatively. The polynomial is -log2(erfc(x)) / x.
__device__ __forceinline__ float kiln_erf16(float x) {
  const float a = fabsf(x);
  float q = fmaf(4.5359088e-5f, a, -4.4551067e-4f);
  q = fmaf(q, a, 1.4894486e-3f);
  q = fmaf(q, a, 7.7462229e-4f);
  q = fmaf(q, a, -2.8253678e-2f);
  q = fmaf(q, a, 0.14848161f);
  q = fmaf(q, a, 0.91841639f);
  q = fmaf(q, a, 1.6279086f);
#if defined(__CUDA_ARCH__)
  float tail;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(-a * q));
#else
  const float tail = exp2f(-a * q);
#endif
  return a < 1.953125e-3f ? x * 1.1283792f : copysignf(1.0f - tail, x);
}

template <typename T> __device__ __forceinline__ T kiln_sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}

template <typename T> __device__ __forceinline__ T kiln_min(T a, T b) {
  return a != a || a < b ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float kiln_min(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
#endif

template <typename T> __device__ __forceinline__ T kiln_max(T a, T b) {
  return a != a || a > b ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float kiln_max(float a, float b) {
  float greatest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greatest) : "f"(a), "f"(b));
  return greatest;
}
#endif

template <typename T, typename U> __device__ __forceinline__ T kiln_div(T a, T b) {
  if (b == T(0)) return T(0);
  return T(-1) < T(0) && b == T(-1) ? T(U(0) - U(a)) : T(a / b);
}

template <typename T> __device__ __forceinline__ T kiln_rem(T a, T b) {
  return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}

template <typename T, typename U> __device__ __forceinline__ T kiln_pow(T base, T exponent) {
  if (exponent < T(0)) {
    if (base == T(-1)) return exponent & T(1) ? T(-1) : T(1);
    return base == T(1) ? T(1) : T(0);
  }
  U power = 1, square = U(base), rest = U(exponent);
  for (; rest > 0; rest >>= 1) {
    if (rest & 1) power *= square;
    square *= square;
  }
  return T(power);
}

template <typename T, typename U> __device__ __forceinline__ T kiln_shl(T a, T b) {
  return b < T(0) || b >= T(sizeof(T) * 8) ? T(0) : T(U(a) << b);
}

template <typename T> __device__ __forceinline__ T kiln_shr(T a, T b) {
  return b < T(0) || b >= T(sizeof(T) * 8) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
}

// Truncated, saturated; 0 for NaN.
template <typename T, typename F> __device__ __forceinline__ T kiln_whole(F x, F low, F high, T least, T most) {
  return x != x ? T(0) : x <= low ? least : x >= high ? most : T(x);
}

// Keeps the first failing point and its index.
template <typename T> __device__ __forceinline__ void kiln_fail(unsigned long long* failed, T index, long long point) {
  const bool negative = index < T(0);
  long long shown = (long long)index;
  if (negative && shown < -2147483647) shown = -2147483647 - 1;
  if (!negative && (shown < 0 || shown > 2147483647)) shown = 2147483647;
  const unsigned long long before = point < 4294967294 ? 4294967295 - point : 1;
  atomicMax(failed, before << 32 | (unsigned)shown);
}

template <typename T> __device__ __forceinline__ T kiln_checked(T index, T bound, unsigned long long* failed, long long point) {
  if (index < T(0) || index >= bound) kiln_fail(failed, index, point);
  return index;
}

__device__ __forceinline__ kiln_index kiln_least(kiln_index a, kiln_index b) { return a < b ? a : b; }
