// Resizes [rows, space..]. T: the dtype, with T_VALUE, T_READ and T_WRITTEN. LENGTHS: the parameters x0, y0, x1, y1,
// ..: the lengths before and after. TAPS: input samples per output sample along each axis. ALIGNED: whether first and
// last samples coincide (align_corners).
//
// Generated for each rank: OF_RESULT, which splits `rest` into the row and o0, o1, ..; TAPS_OF_AXES, which finds the
// samples; EACH_TAP .. END, loops over them with their index `at` and their `weight`.

// The coordinate of an output sample in the input.
__device__ __forceinline__ double kiln_source(long long place, long long from, long long to) {
  if (!ALIGNED) return ((double)place + 0.5) * (double)from / (double)to - 0.5;
  return to > 1 ? (double)place * ((double)from - 1.0) / ((double)to - 1.0) : 0.0;
}

__device__ __forceinline__ double kiln_cubic(double distance) {
  const double a = -0.75, d = distance < 0 ? -distance : distance;
  if (d <= 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  return d < 2.0 ? ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a : 0.0;
}

// The indices and weights of the input samples of an output sample.
__device__ __forceinline__ void kiln_taps(long long place, long long from, long long to, long long* at, T_VALUE* weight) {
  const long long last = from - 1;
#if TAPS == 1
  at[0] = place * from / to;
  weight[0] = (T_VALUE)1;
  (void)last;
#elif TAPS == 2
  double source = kiln_source(place, from, to);
  if (source < 0.0) source = 0.0;
  long long below = (long long)source;
  if (below > last) below = last;
  double part = source - (double)below;
  if (part > 1.0) part = 1.0;
  at[0] = below;
  at[1] = below < last ? below + 1 : last;
  weight[0] = (T_VALUE)(1.0 - part);
  weight[1] = (T_VALUE)part;
#else
  const double source = kiln_source(place, from, to), below = floor(source);
  for (int i = 0; i < 4; ++i) {
    const double sample = below + (double)(i - 1);
    at[i] = sample < 0.0 ? 0 : sample > (double)last ? last : (long long)sample;
    weight[i] = (T_VALUE)kiln_cubic(sample - source);
  }
#endif
}

extern "C" __global__ void kiln_resize(const T* x, T* y, long long total LENGTHS) {
  kiln_begin();
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < total;
       p += gridDim.x * (long long)blockDim.x) {
    long long rest = p;
    OF_RESULT
    const T* row = x + rest * (SPACE);
    TAPS_OF_AXES
    T_VALUE sum = (T_VALUE)0;
    EACH_TAP
      sum += T_READ(row[at]) * weight;
    END
    y[p] = T_WRITTEN(sum);
  }
}
