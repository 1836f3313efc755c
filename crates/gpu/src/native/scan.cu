// Scans of columns. T: the dtype, with T_VALUE, T_READ and T_WRITTEN. A: the accumulator type, U: the unsigned integer of its
// size. COMBINE: the combine function. AT(j): the offset of element `j` in scan order. EXCLUSIVE: whether the scan is
// exclusive.

// One thread scans each line of [before, length, after].
extern "C" __global__ void kiln_scan_columns(const T* x, T* y, A identity, long long lines, long long length,
                                             long long after) {
  kiln_begin();
  for (long long line = blockIdx.x * (long long)blockDim.x + threadIdx.x; line < lines;
       line += gridDim.x * (long long)blockDim.x) {
    const long long start = line / after * length * after + line % after;
    A total = identity;
    for (long long j = 0; j < length; ++j) {
      const long long at = start + AT(j) * after;
      const A before = total;
      total = COMBINE(before, (A)T_READ(x[at]));
      y[at] = T_WRITTEN((T_VALUE)(EXCLUSIVE ? before : total));
    }
  }
}
