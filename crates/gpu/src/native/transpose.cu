// Transposes matrices of 16-bit elements. Rows and columns are multiples of 8, and begin at
// multiples of 16 bytes.

#define TILE 64
// The shared-memory pitch in words; one extra word avoids bank conflicts between columns.
#define PITCH (TILE / 2 + 1)

// Eight elements as words.
typedef kiln_pack<unsigned, 4> KilnEight;

extern "C" __global__ void __launch_bounds__(256) kiln_transpose(const KilnEight* from, KilnEight* to, int rows, int columns) {
  kiln_begin();
  __shared__ unsigned tile[TILE * PITCH];
  const int across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
  const int column = blockIdx.x % across * TILE, row = blockIdx.x / across % down * TILE;
  const long long matrix = (long long)(blockIdx.x / across / down) * rows * columns;
  const int line = threadIdx.x / 8, place = threadIdx.x % 8 * 8;
  for (int l = line; l < TILE; l += 32) {
    if (row + l >= rows || column + place >= columns) continue;
    const KilnEight eight = from[(matrix + (long long)(row + l) * columns + column + place) / 8];
    for (int w = 0; w < 4; ++w) tile[l * PITCH + place / 2 + w] = eight.at[w];
  }
  __syncthreads();
  for (int l = line; l < TILE; l += 32) {
    if (column + l >= columns || row + place >= rows) continue;
    KilnEight eight;
    for (int w = 0; w < 4; ++w) {
      const unsigned first = tile[(place + 2 * w) * PITCH + l / 2] >> l % 2 * 16;
      const unsigned second = tile[(place + 2 * w + 1) * PITCH + l / 2] >> l % 2 * 16;
      eight.at[w] = (first & 0xffffu) | second << 16;
    }
    to[(matrix + (long long)(column + l) * rows + row + place) / 8] = eight;
  }
}
