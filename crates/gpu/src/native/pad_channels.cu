// Copies 16-bit [examples, channels, space] to channels-last and zero-pads channels to eight. step_..: strides of the
// operand in elements.

typedef kiln_pack<unsigned short, 8> KilnEight;

extern "C" __global__ void kiln_pad_channels(
    const unsigned short* from, KilnEight* to, INDEX total, INDEX space, int channels, INDEX step_example, INDEX step_channel,
    INDEX step_place) {
  kiln_begin();
  for (INDEX p = (INDEX)blockIdx.x * (INDEX)blockDim.x + (INDEX)threadIdx.x; p < total;
       p += (INDEX)gridDim.x * (INDEX)blockDim.x) {
    const unsigned short* place = from + (p / space * step_example + p % space * step_place);
    KilnEight eight;
    for (int c = 0; c < 8; ++c) eight.at[c] = c < channels ? place[c * step_channel] : 0;
    to[p] = eight;
  }
}
