// Fourier transforms of lines. T: float or double. Complex tensors store real and imaginary parts separately; roots of
// unity are interleaved.

struct alignas(2 * sizeof(T)) kiln_complex {
  T re, im;
};

__device__ __forceinline__ kiln_complex kiln_times(kiln_complex a, kiln_complex b) {
  kiln_complex y = {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  return y;
}

__device__ __forceinline__ kiln_complex kiln_listed(const T* list, long long at) {
  return reinterpret_cast<const kiln_complex*>(list)[at];
}

// Recovers the spectrum X of real lines from the spectrum of complex lines that pack two real elements each. With the
// transforms `even` and `odd` of both halves, X[k] = even[k] + root[k] odd[k], and X[length - k] is the conjugate of
// the difference. `a` is element k, `b` its mirror image.
__device__ __forceinline__ void kiln_split(kiln_complex& a, kiln_complex& b, kiln_complex root) {
  const kiln_complex even = {(T)0.5 * (a.re + b.re), (T)0.5 * (a.im - b.im)};
  const kiln_complex odd = {(T)0.5 * (a.im + b.im), (T)0.5 * (b.re - a.re)};
  const kiln_complex turned = kiln_times(odd, root);
  a.re = even.re + turned.re, a.im = even.im + turned.im;
  b.re = even.re - turned.re, b.im = turned.im - even.im;
}

// The inverse of kiln_split.
__device__ __forceinline__ void kiln_join(kiln_complex& a, kiln_complex& b, kiln_complex root) {
  const kiln_complex sum = {a.re + b.re, a.im - b.im}, rest = {a.re - b.re, a.im + b.im};
  const kiln_complex turned = {rest.im * root.re - rest.re * root.im, rest.re * root.re + rest.im * root.im};
  a.re = sum.re - turned.re, a.im = sum.im + turned.im;
  b.re = sum.re + turned.re, b.im = turned.im - sum.im;
}

#if defined(KILN_LINES) || defined(KILN_MAP)
// Element k of half a spectrum. The imaginary part of self-conjugate elements is ignored.
__device__ __forceinline__ kiln_complex kiln_frequency(const T* re, const T* im, long long start, long long k,
                                                       long long points) {
  kiln_complex y = {re[start + k], (T)0};
  if (2 * k % points != 0) y.im = SIGN * im[start + k];
  return y;
}
#endif

#if defined(KILN_ROOTS)
// exp(-2 pi i k / points) for k below `count`, from angles of at most an eighth of the circle.
extern "C" __global__ void kiln_fft_roots(T* roots, long long count, long long points) {
  kiln_begin();
  for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < count;
       k += gridDim.x * (long long)blockDim.x) {
    const long long octant = 8 * k / points, odd = octant & 1;
    const long long rest = odd ? (octant + 1) * points - 8 * k : 8 * k - octant * points;
    const double angle = 0.78539816339744830962 * (double)rest / (double)points;
    const double c = cos(angle), s = sin(angle);
    // Reduces the angle to one quarter of the circle.
    double re = odd ? s : c, im = odd ? -c : -s;
    for (long long quarter = octant / 2; quarter > 0; --quarter) {
      const double turned = im;
      im = -re;
      re = turned;
    }
    roots[2 * k] = (T)re;
    roots[2 * k + 1] = (T)im;
  }
}
#endif

#if defined(KILN_LINES)
// The padded index of an element in shared memory: the gaps avoid bank conflicts of threads that are eight elements
// apart.
#define KILN_PADDED(i) ((i) + (i) / 16)
// The padded length of a line.
#define KILN_ROW (LENGTH + LENGTH / 16 + 1)
// A root of unity of order LENGTH, from the list of those of order POINTS.
#define KILN_ROOT(turn) kiln_listed(roots, (turn) * (POINTS / LENGTH))

// One butterfly of radix R: sums of R complex elements, multiplied by roots of unity.
template <int R> struct kiln_radix {
  __device__ __forceinline__ static void run(kiln_complex* z, const T* roots) {
    kiln_complex y[R];
    for (int v = 0; v < R; ++v) {
      y[v] = z[0];
      for (int u = 1; u < R; ++u) {
        const kiln_complex turned = kiln_times(z[u], KILN_ROOT(u * v % R * (LENGTH / R)));
        y[v].re += turned.re;
        y[v].im += turned.im;
      }
    }
    for (int v = 0; v < R; ++v) z[v] = y[v];
  }
};

template <> struct kiln_radix<2> {
  __device__ __forceinline__ static void run(kiln_complex* z, const T*) {
    const kiln_complex a = z[0], b = z[1];
    z[0].re = a.re + b.re, z[0].im = a.im + b.im;
    z[1].re = a.re - b.re, z[1].im = a.im - b.im;
  }
};

template <> struct kiln_radix<4> {
  __device__ __forceinline__ static void run(kiln_complex* z, const T*) {
    const kiln_complex a = z[0], b = z[1], c = z[2], d = z[3];
    const kiln_complex s = {a.re + c.re, a.im + c.im}, t = {a.re - c.re, a.im - c.im};
    const kiln_complex u = {b.re + d.re, b.im + d.im}, v = {b.re - d.re, b.im - d.im};
    z[0].re = s.re + u.re, z[0].im = s.im + u.im;
    z[1].re = t.re + v.im, z[1].im = t.im - v.re;
    z[2].re = s.re - u.re, z[2].im = s.im - u.im;
    z[3].re = t.re - v.im, z[3].im = t.im + v.re;
  }
};

template <> struct kiln_radix<8> {
  __device__ __forceinline__ static void run(kiln_complex* z, const T* roots) {
    const T half = (T)0.70710678118654752440;
    kiln_complex even[4] = {z[0], z[2], z[4], z[6]}, odd[4] = {z[1], z[3], z[5], z[7]};
    kiln_radix<4>::run(even, roots);
    kiln_radix<4>::run(odd, roots);
    const kiln_complex o1 = {half * (odd[1].re + odd[1].im), half * (odd[1].im - odd[1].re)};
    const kiln_complex o2 = {odd[2].im, -odd[2].re};
    const kiln_complex o3 = {half * (odd[3].im - odd[3].re), -half * (odd[3].re + odd[3].im)};
    odd[1] = o1, odd[2] = o2, odd[3] = o3;
    for (int k = 0; k < 4; ++k) {
      z[k].re = even[k].re + odd[k].re, z[k].im = even[k].im + odd[k].im;
      z[k + 4].re = even[k].re - odd[k].re, z[k + 4].im = even[k].im - odd[k].im;
    }
  }
};

// One Stockham pass: combines transforms of DONE points, R at a time, for all lines of the block. Threads hold their
// inputs in registers until all threads have read, so one buffer in shared memory suffices. The first pass reads by
// `load` where that is in order.
template <int R, int LEFT, int DONE, class Load>
__device__ __forceinline__ void kiln_pass(kiln_complex* a, const T* roots, Load load) {
  const int each = LENGTH / R, all = LINES * each, rounds = (all + THREADS - 1) / THREADS;
  kiln_complex z[rounds][R];
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int t = threadIdx.x + round * THREADS, line = t / each, p = t % each / DONE, q = t % DONE;
    if (t >= all) break;
#pragma unroll
    for (int u = 0; u < R; ++u) {
      const int i = (p + u * LEFT) * DONE + q;
      z[round][u] = IN_ORDER && DONE == 1 ? load(line, i) : a[line * KILN_ROW + KILN_PADDED(i)];
    }
  }
  if (!IN_ORDER || DONE > 1) __syncthreads();
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int t = threadIdx.x + round * THREADS, line = t / each, p = t % each / DONE, q = t % DONE;
    if (t >= all) break;
    kiln_radix<R>::run(z[round], roots);
    if (LEFT > 1) {
      kiln_complex w[R < 8 ? 8 : R];
      if (R == 8) {
        // Multiplying two roots costs less than scattered loads.
        w[1] = KILN_ROOT(p * DONE), w[2] = KILN_ROOT(2 * p * DONE), w[4] = KILN_ROOT(4 * p * DONE);
        w[3] = kiln_times(w[1], w[2]), w[5] = kiln_times(w[1], w[4]);
        w[6] = kiln_times(w[2], w[4]), w[7] = kiln_times(w[3], w[4]);
      } else {
        for (int v = 1; v < R; ++v) w[v] = KILN_ROOT(p * v * DONE);
      }
      for (int v = 1; v < R; ++v) z[round][v] = kiln_times(z[round][v], w[v]);
    }
    for (int v = 0; v < R; ++v) a[line * KILN_ROW + KILN_PADDED((p * R + v) * DONE + q)] = z[round][v];
  }
  __syncthreads();
}

// Transforms lines in shared memory. LENGTH: of a complex line. POINTS: the same, or twice that if each element packs
// two real ones. LINES: per block of THREADS threads. PASSES: all radix passes. FORM: 0 for complex to complex, 1 for
// real to complex, 2 for complex to real. IN_ORDER: whether the first pass finds elements next to each other in the
// source. SIGN: 1, or -1 to conjugate a spectrum. Line layout: `inner` adjacent lines, group stride `jump`, element
// stride `step`; FROM_NEAR and TO_NEAR: whether the element stride is 1. TWIST: element k of line n is multiplied by
// root n % columns * k of a list.
extern "C" __global__ void __launch_bounds__(THREADS) kiln_fft(const T* x_re, const T* x_im, T* y_re, T* y_im, const T* roots, const T* twiddles,
                                    long long lines, long long columns, long long from_inner, long long from_jump,
                                    long long from_step, long long to_inner, long long to_jump, long long to_step) {
  kiln_begin();
  __shared__ kiln_complex a[LINES * KILN_ROW];
  const long long first = blockIdx.x * (long long)LINES;
#if FORM == 2
  for (int e = threadIdx.x; e < LINES * (LENGTH / 2 + 1); e += blockDim.x) {
    const int line = e / (LENGTH / 2 + 1), k = e % (LENGTH / 2 + 1), mirrored = LENGTH - k;
    kiln_complex here = {(T)0, (T)0}, there = {(T)0, (T)0};
    if (first + line < lines) {
      const long long start = (first + line) * (POINTS / 2 + 1);
      here = kiln_frequency(x_re, x_im, start, k, POINTS);
#if POINTS == LENGTH
      // A positive exponent is a negative one for the spectrum in reverse order.
      there = here;
      here.im = -here.im;
#else
      there = kiln_frequency(x_re, x_im, start, mirrored, POINTS);
      kiln_join(here, there, kiln_listed(roots, k));
      const kiln_complex swapped = here;
      here = there, there = swapped;
#endif
    }
    a[line * KILN_ROW + KILN_PADDED(k)] = here;
    if (k > 0) a[line * KILN_ROW + KILN_PADDED(mirrored)] = there;
  }
#endif
  const auto load = [&](int line, int i) {
    const long long number = first + line;
    kiln_complex z = {(T)0, (T)0};
    if (number < lines) {
#if FORM == 0
      const long long at = number / from_inner * from_jump + number % from_inner + i * from_step;
      z.re = x_re[at], z.im = x_im[at];
#elif FORM == 1 && POINTS == LENGTH
      z.re = x_re[number * POINTS + i];
#elif FORM == 1
      z = kiln_listed(x_re, number * LENGTH + i);
#endif
    }
    return z;
  };
  if (FORM != 2 && !IN_ORDER) {
    for (int e = threadIdx.x; e < LINES * LENGTH; e += blockDim.x) {
      const int line = FROM_NEAR ? e / LENGTH : e % LINES, i = FROM_NEAR ? e % LENGTH : e / LINES;
      a[line * KILN_ROW + KILN_PADDED(i)] = load(line, i);
    }
  }
  if (!IN_ORDER) __syncthreads();
  PASSES
#if FORM == 1
  for (int e = threadIdx.x; e < LINES * (LENGTH / 2 + 1); e += blockDim.x) {
    const int line = e / (LENGTH / 2 + 1), k = e % (LENGTH / 2 + 1);
    if (first + line >= lines) continue;
    const long long start = (first + line) * (POINTS / 2 + 1);
    kiln_complex here = a[line * KILN_ROW + KILN_PADDED(k)];
#if POINTS == LENGTH
    y_re[start + k] = here.re, y_im[start + k] = k > 0 ? SIGN * here.im : (T)0;
#else
    const int mirrored = LENGTH - k;
    kiln_complex there = a[line * KILN_ROW + KILN_PADDED(k > 0 ? mirrored : 0)];
    kiln_split(here, there, kiln_listed(roots, k));
    y_re[start + k] = here.re, y_im[start + k] = k > 0 ? SIGN * here.im : (T)0;
    y_re[start + mirrored] = there.re, y_im[start + mirrored] = k > 0 ? SIGN * there.im : (T)0;
#endif
  }
#else
  for (int e = threadIdx.x; e < LINES * LENGTH; e += blockDim.x) {
    const int line = TO_NEAR ? e / LENGTH : e % LINES, i = TO_NEAR ? e % LENGTH : e / LINES;
    const long long number = first + line;
    if (number >= lines) continue;
    kiln_complex z = a[line * KILN_ROW + KILN_PADDED(i)];
#if FORM == 0
    if (TWIDDLE) z = kiln_times(z, kiln_listed(twiddles, number % columns * i));
    const long long at = number / to_inner * to_jump + number % to_inner + i * to_step;
    y_re[at] = z.re, y_im[at] = z.im;
#elif POINTS == LENGTH
    y_re[number * POINTS + i] = z.re;
#else
    reinterpret_cast<kiln_complex*>(y_re)[number * LENGTH + i] = z;
#endif
  }
#endif
}
#endif

#if defined(KILN_MAP)
__device__ __forceinline__ kiln_complex kiln_at(const T* re, const T* im, long long at) {
  kiln_complex y = {re[at], im[at]};
  return y;
}

// The chirp exp(-pi i k^2 / points), from a list of the roots of order 2 * points.
__device__ __forceinline__ kiln_complex kiln_chirp(const T* roots, long long k, long long points) {
  return kiln_listed(roots, (long long)((unsigned long long)k * (unsigned long long)k % (2ull * points)));
}

// Elementwise pre- and post-processing of lines. `points`: length of a real or padded line. `length`: length of a
// complex line. EVEN: whether each complex number packs two real ones. SIGN: 1, or -1 for conjugates.
extern "C" __global__ void kiln_fft_map(const T* x_re, const T* x_im, const T* z_re, const T* z_im, T* y_re, T* y_im,
                                        const T* roots, long long total, long long points, long long length) {
  kiln_begin();
  for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < total;
       e += gridDim.x * (long long)blockDim.x) {
#if KILN_MAP == 0
    // Pack: real lines as complex lines.
    const long long start = e / length * points, i = e % length;
    y_re[e] = EVEN ? x_re[start + 2 * i] : x_re[start + i];
    y_im[e] = EVEN ? x_re[start + 2 * i + 1] : (T)0;
#elif KILN_MAP == 1
    // Split: half the spectrum of real lines from the transform of their packed form.
    const long long bins = points / 2 + 1, start = e / bins * length, k = e % bins;
    kiln_complex y = kiln_at(x_re, x_im, start + k % length);
    if (EVEN) {
      kiln_complex mirrored = kiln_at(x_re, x_im, start + (length - k % length) % length);
      kiln_split(y, mirrored, kiln_listed(roots, k));
    }
    y_re[e] = y.re;
    y_im[e] = 2 * k % points == 0 ? (T)0 : SIGN * y.im;
#elif KILN_MAP == 2
    // Join: packs half a spectrum. The transform in reverse order is the packed real line.
    const long long bins = points / 2 + 1, start = e / length * bins, k = e % length;
    const long long far = EVEN ? length - k : points - k;
    kiln_complex y;
    if (EVEN) {
      kiln_complex mirrored = kiln_frequency(x_re, x_im, start, far, points);
      y = kiln_frequency(x_re, x_im, start, k, points);
      kiln_join(y, mirrored, kiln_listed(roots, k));
    } else {
      y = kiln_frequency(x_re, x_im, start, k < bins ? k : far, points);
      if (k >= bins) y.im = -y.im;
    }
    const long long at = e - k + (length - k) % length;
    y_re[at] = y.re, y_im[at] = y.im;
#elif KILN_MAP == 3
    // Unpack: real lines from packed complex lines.
    const long long start = e / length * points, i = e % length;
    if (EVEN) {
      y_re[start + 2 * i] = x_re[e], y_re[start + 2 * i + 1] = x_im[e];
    } else {
      y_re[start + i] = x_re[e];
    }
#elif KILN_MAP == 4
    // Pad: multiplies by the chirp and zero-pads.
    const long long start = e / length * points, i = e % length;
    kiln_complex y = {(T)0, (T)0};
    if (i < points) y = kiln_times(kiln_at(x_re, x_im, start + i), kiln_chirp(roots, i, points));
    y_re[e] = y.re, y_im[e] = y.im;
#elif KILN_MAP == 5
    // Filtered: multiplies by the spectrum of the filter.
    const kiln_complex y = kiln_times(kiln_at(x_re, x_im, e), kiln_at(z_re, z_im, e % length));
    y_re[e] = y.re, y_im[e] = y.im;
#elif KILN_MAP == 6
    // Cut: removes the padding and multiplies by the chirp.
    const long long start = e / points * length, i = e % points;
    const kiln_complex y = kiln_times(kiln_at(x_re, x_im, start + i), kiln_chirp(roots, i, points));
    y_re[e] = y.re, y_im[e] = y.im;
#elif KILN_MAP == 7
    // Filter: the conjugate chirp on both sides of 0, divided by the length.
    const long long k = e < points ? e : length - e;
    kiln_complex y = {(T)0, (T)0};
    if (k < points) y = kiln_chirp(roots, k, points);
    y_re[e] = y.re / (T)length, y_im[e] = -y.im / (T)length;
#elif KILN_MAP == 8
    // Interleave: real and imaginary parts into one tensor.
    y_re[2 * e] = x_re[e], y_re[2 * e + 1] = x_im[e];
#elif KILN_MAP == 9
    // InterleaveHalf: the parts of half a spectrum into one tensor.
    const long long bins = points / 2 + 1;
    const kiln_complex y = kiln_frequency(x_re, x_im, e - e % bins, e % bins, points);
    y_re[2 * e] = y.re, y_re[2 * e + 1] = y.im;
#elif KILN_MAP == 10
    // Separate: interleaved parts into two tensors.
    y_re[e] = x_re[2 * e], y_im[e] = SIGN * x_re[2 * e + 1];
#else
    // Turn: transposes the columns of each line's matrix into rows of `length` elements.
    const long long place = e % points, from = e - place + place % length * (points / length) + place / length;
    y_re[e] = x_re[from], y_im[e] = x_im[from];
#endif
  }
}
#endif
