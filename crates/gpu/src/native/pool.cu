// Pooling of [rows, space..], or of [rows, space.., channels] (CHANNELS_LAST), in packs of V neighbouring channels. T:
// the dtype, with T_VALUE, T_READ and T_WRITTEN; A: the accumulator type; INDEX: an integer type that holds all
// indices. LENGTHS: the parameters x0, y0, x1, y1, ..: the lengths of the operand and of the result.
//
// Generated for each spec: SPACE and PLACES, the elements of the operand and of the result per row; OF_RESULT and
// OF_OPERAND, which split `rest` into the row and o0, o1, .. or i0, i1, ..; EACH_IN_WINDOW .. END, loops over the
// elements of a window, with their index `at`; EACH_WINDOW .. END, loops over the windows that may contain an element,
// with their index `window`; COUNT, the divisor of the window o0, o1, ...

#define KILN_POINTS(total) \
  for (INDEX p = (INDEX)blockIdx.x * (INDEX)blockDim.x + (INDEX)threadIdx.x; p < (total); \
       p += (INDEX)gridDim.x * (INDEX)blockDim.x)
#define KILN_EACH for (int s = 0; s < V; ++s)

// Splits off the pack of channels from `rest`, counted in packs.
#if defined(CHANNELS_LAST)
#define OF_CHANNEL const INDEX channel = rest % channels; rest /= channels;
#define STEP channels
#else
#define OF_CHANNEL const INDEX channel = 0;
#define STEP 1
#endif

template <typename E> using KilnPack = kiln_pack<E, V>;

#if defined(KILN_POOL_MAX)
// The first maximum of each window: its value, or its index in its row (WINNERS).
extern "C" __global__ void kiln_pool_max(const KilnPack<T>* x, KilnPack<W>* y, INDEX total, INDEX channels LENGTHS) {
  kiln_begin();
  KILN_POINTS(total) {
    INDEX rest = p;
    OF_CHANNEL
    OF_RESULT
    const KilnPack<T>* row = x + (rest * (SPACE) * STEP + channel);
    KilnPack<T> kept = {};
    KilnPack<W> found;
    INDEX best_at[V];
    T_VALUE best[V];
    KILN_EACH best_at[s] = -1, best[s] = (T_VALUE)0;
    EACH_IN_WINDOW
      const KilnPack<T> read = row[at * STEP];
      KILN_EACH {
        const T_VALUE next = T_READ(read.at[s]);
        if (best_at[s] >= 0 && (best[s] != best[s] || (next <= best[s] && next == next))) continue;
        best[s] = next, best_at[s] = at, kept.at[s] = read.at[s];
      }
    END
#if defined(WINNERS)
    KILN_EACH found.at[s] = (W)best_at[s];
#else
    KILN_EACH found.at[s] = kept.at[s];
#endif
    y[p] = found;
  }
}
#endif

#if defined(KILN_POOL_AVERAGE)
extern "C" __global__ void kiln_pool_average(const KilnPack<T>* x, KilnPack<T>* y, INDEX total, INDEX channels LENGTHS) {
  kiln_begin();
  KILN_POINTS(total) {
    INDEX rest = p;
    OF_CHANNEL
    OF_RESULT
    const KilnPack<T>* row = x + (rest * (SPACE) * STEP + channel);
    A sum[V];
    KILN_EACH sum[s] = (A)0;
    EACH_IN_WINDOW
      const KilnPack<T> read = row[at * STEP];
      KILN_EACH sum[s] += (A)T_READ(read.at[s]);
    END
    KilnPack<T> found;
    KILN_EACH found.at[s] = T_WRITTEN((T_VALUE)(sum[s] / (A)(COUNT)));
    y[p] = found;
  }
}
#endif

#if defined(KILN_POOL_MAX_GRAD)
extern "C" __global__ void kiln_pool_max_grad(
    const KilnPack<T>* grad, const KilnPack<int>* winners, KilnPack<T>* y, INDEX total, INDEX channels LENGTHS) {
  kiln_begin();
  KILN_POINTS(total) {
    INDEX rest = p;
    OF_CHANNEL
    const INDEX place = rest;
    OF_OPERAND
    const INDEX row = rest * (PLACES) * STEP + channel, own = place - rest * (SPACE);
    A sum[V];
    KILN_EACH sum[s] = (A)0;
    EACH_WINDOW
      const KilnPack<int> winner = winners[row + window * STEP];
      const KilnPack<T> sent = grad[row + window * STEP];
      KILN_EACH {
        if (winner.at[s] == own) sum[s] += (A)T_READ(sent.at[s]);
      }
    END
    KilnPack<T> found;
    KILN_EACH found.at[s] = T_WRITTEN((T_VALUE)sum[s]);
    y[p] = found;
  }
}
#endif

#if defined(KILN_POOL_AVERAGE_GRAD)
extern "C" __global__ void kiln_pool_average_grad(
    const KilnPack<T>* grad, KilnPack<T>* y, INDEX total, INDEX channels LENGTHS) {
  kiln_begin();
  KILN_POINTS(total) {
    INDEX rest = p;
    OF_CHANNEL
    OF_OPERAND
    const INDEX row = rest * (PLACES) * STEP + channel;
    A sum[V];
    KILN_EACH sum[s] = (A)0;
    EACH_WINDOW
      const KilnPack<T> sent = grad[row + window * STEP];
      KILN_EACH sum[s] += (A)T_READ(sent.at[s]) / (A)(COUNT);
    END
    KilnPack<T> found;
    KILN_EACH found.at[s] = T_WRITTEN((T_VALUE)sum[s]);
    y[p] = found;
  }
}
#endif
