// Pooling of [rows, space..]. T: the dtype, with T_VALUE, T_READ and T_WRITTEN; A: what is added up in. LENGTHS: the
// parameters x0, y0, x1, y1, ..: the lengths of the operand and of the result.
//
// Written for each spec: SPACE and PLACES, how many elements of the operand and of the result a row has; OF_RESULT and
// OF_OPERAND, which split `rest` into the row and o0, o1, .. or i0, i1, ..; EACH_IN_WINDOW .. END, loops over the elements of
// a window, with their place `at`; EACH_WINDOW .. END, loops over the windows that may hold an element, with their place
// `window`; COUNT, the number of elements that count in the window o0, o1, ...

#define KILN_POINTS(total) \
  for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < (total); p += gridDim.x * (long long)blockDim.x)

#if defined(KILN_POOL_MAX)
// The first greatest element of each window: itself, or its place in its row (WINNERS).
extern "C" __global__ void kiln_pool_max(const T* x, W* y, long long total LENGTHS) {
  KILN_POINTS(total) {
    long long rest = p;
    OF_RESULT
    const T* row = x + rest * (SPACE);
    long long best_at = -1;
    T_VALUE best = (T_VALUE)0;
    EACH_IN_WINDOW
      const T_VALUE next = T_READ(row[at]);
      if (best_at < 0 || (best == best && (next > best || next != next))) best = next, best_at = at;
    END
#if defined(WINNERS)
    y[p] = (W)best_at;
#else
    y[p] = row[best_at];
#endif
  }
}
#endif

#if defined(KILN_POOL_AVERAGE)
extern "C" __global__ void kiln_pool_average(const T* x, T* y, long long total LENGTHS) {
  KILN_POINTS(total) {
    long long rest = p;
    OF_RESULT
    const T* row = x + rest * (SPACE);
    A sum = (A)0;
    EACH_IN_WINDOW
      sum += (A)T_READ(row[at]);
    END
    y[p] = T_WRITTEN((T_VALUE)(sum / (A)(COUNT)));
  }
}
#endif

#if defined(KILN_POOL_MAX_GRAD)
extern "C" __global__ void kiln_pool_max_grad(const T* grad, const int* winners, T* y, long long total LENGTHS) {
  KILN_POINTS(total) {
    long long rest = p;
    OF_OPERAND
    const long long row = rest * (PLACES), own = p - rest * (SPACE);
    A sum = (A)0;
    EACH_WINDOW
      if (winners[row + window] == own) sum += (A)T_READ(grad[row + window]);
    END
    y[p] = T_WRITTEN((T_VALUE)sum);
  }
}
#endif

#if defined(KILN_POOL_AVERAGE_GRAD)
extern "C" __global__ void kiln_pool_average_grad(const T* grad, T* y, long long total LENGTHS) {
  KILN_POINTS(total) {
    long long rest = p;
    OF_OPERAND
    const long long row = rest * (PLACES);
    A sum = (A)0;
    EACH_WINDOW
      sum += (A)T_READ(grad[row + window]) / (A)(COUNT);
    END
    y[p] = T_WRITTEN((T_VALUE)sum);
  }
}
#endif
