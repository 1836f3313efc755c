//! Convolutions and their gradients without a vendor's library: implicit GEMM over channels-first tensors.
//!
//! Each pass is a [`Contraction`] for each group. With `taps` for the positions of the kernel and `places` for the
//! spatial positions of a tensor:
//!
//! | pass | rows | columns | inner dimension |
//! |---|---|---|---|
//! | forward | output channels | batch × places of `y` | input channels × taps |
//! | input | input channels | batch × places of `x` | output channels × taps |
//! | weight | output channels | input channels × taps | batch × places of `y` |

use super::BlockKey;
use super::contraction::{Contraction, Element, THREADS, Tile, direct, sum_dtype, tiled};
use crate::Gpu;
use crate::driver::{Argument, Arguments, Convolution, Driver, Pass};
use crate::native::length;
use kiln_ir::{DType, Result, Shape};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, LANES, has_vectors, index};

/// The maximum number of rows whose elements single threads compute, as in depthwise convolutions.
const MOST_DIRECT_ROWS: usize = 4;

/// The minimum number of inner positions per part where a weight gradient has few blocks.
const LEAST_PART: usize = 1024;

/// The sizes of the matmuls of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    groups: usize,
    rows: usize,
    columns: usize,
    inner: usize,
}

/// The properties of a convolution on which the source of its kernel depends: all but the sizes of the tensors.
#[derive(Clone, Debug)]
struct Form {
    pass: Pass,
    dtype: DType,
    /// The dtype of the result: of sums, where parts of a sum are stored.
    result: DType,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    /// Whether the weights of a forward pass are read by vectors.
    has_vectors: bool,
}

impl Sizes {
    fn of(convolution: &Convolution) -> Sizes {
        let Convolution { pass, x, w, y, groups, .. } = convolution;
        let places = |shape: &Shape| shape[2..].iter().product::<usize>();
        let [out, channels, taps] = [y[1] / groups, w[1], places(w)];
        let [x_places, y_places] = [x[0] * places(x), y[0] * places(y)];
        let (rows, columns, inner) = match pass {
            Pass::Forward => (out, y_places, channels * taps),
            Pass::Input => (channels, x_places, out * taps),
            Pass::Weight => (out, channels * taps, y_places),
        };
        Sizes { groups: *groups, rows, columns, inner }
    }

    fn of_result(self) -> [usize; 2] {
        [self.rows, self.columns]
    }
}

/// The number of parts into which the sums of a weight gradient are split, so that there are enough blocks.
pub(crate) fn parts(convolution: &Convolution, multiprocessors: usize) -> usize {
    let Sizes { groups, rows, columns, inner } = Sizes::of(convolution);
    if convolution.pass != Pass::Weight {
        return 1;
    }
    let blocks = if rows <= MOST_DIRECT_ROWS {
        (groups * rows * columns).div_ceil(THREADS)
    } else {
        Tile::of(groups, [rows, columns], sum_dtype(convolution.dtype), multiprocessors)
            .blocks(groups, [rows, columns])
    };
    multiprocessors.div_ceil(blocks).min(inner / LEAST_PART).max(1)
}

impl<D: Driver> Gpu<D> {
    /// Queues a convolution of contiguous channels-first tensors, given as the arguments left factor, right factor and
    /// result: `w, x, y` forward, `w, y, x` for the input's and `y, x, w` for the weight's gradient. With several
    /// [`parts`], the result is a list of tensors in the dtype of sums, whose sum is the gradient.
    ///
    /// # Errors
    /// When the kernel does not compile, there are too many blocks, or the device failed.
    pub(crate) fn convolve_by_kernel(
        &self,
        convolution: &Convolution,
        parts: usize,
        mut arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        let form = Form::of(convolution, parts);
        let sizes = Sizes::of(convolution);
        let Convolution { x, w, y, groups, .. } = convolution;
        let part = sizes.inner.div_ceil(parts);
        arguments.extend([x[0], *groups, w[1], y[1] / groups, part].map(length));
        arguments.extend(x[2..].iter().chain(&y[2..]).copied().map(length));
        let batch = sizes.groups * parts;
        if sizes.rows <= MOST_DIRECT_ROWS {
            let total = batch * sizes.rows * sizes.columns;
            arguments.push(length(total));
            return self.run_points(form.key("convolution_direct"), || of_points(&form), total, arguments);
        }
        let tile =
            Tile::of(batch, sizes.of_result(), sum_dtype(form.dtype), self.driver.info().multiprocessors);
        let blocks = tile.blocks(batch, sizes.of_result());
        let form = Form { has_vectors: self.has_weight_vectors(convolution, &arguments), ..form };
        let key = tile.key().into_iter().fold(form.key("convolution"), |key, number| key.with(number));
        self.run_blocks(key, || of_tiles(&form, tile), blocks, arguments)
    }

    /// Whether vectors of the weights of a forward pass are aligned and within one binding.
    fn has_weight_vectors(&self, convolution: &Convolution, arguments: &Arguments<D::Memory>) -> bool {
        let Convolution { pass, dtype, w, .. } = convolution;
        let is_aligned = match arguments.first() {
            Some(Argument::Pointer(at)) => {
                at.offset.is_multiple_of(LANES * dtype.size()) && self.is_one_binding(at)
            }
            Some(Argument::Word(_)) | None => false,
        };
        *pass == Pass::Forward
            && has_vectors(*dtype)
            && is_aligned
            && w[1..].iter().product::<usize>().is_multiple_of(LANES)
    }
}

impl Form {
    fn of(convolution: &Convolution, parts: usize) -> Form {
        let Convolution { pass, dtype, w, stride, padding, dilation, .. } = convolution;
        Form {
            pass: *pass,
            dtype: *dtype,
            result: if parts > 1 { sum_dtype(*dtype) } else { *dtype },
            kernel: w[2..].to_vec(),
            stride: stride.clone(),
            padding: padding.clone(),
            dilation: dilation.clone(),
            has_vectors: false,
        }
    }

    fn key(&self, name: &'static str) -> BlockKey {
        let key = BlockKey::new(name)
            .dtype(self.dtype)
            .dtype(self.result)
            .with(self.pass as usize)
            .with(self.has_vectors);
        let Form { kernel, stride, padding, dilation, .. } = self;
        let numbers = [kernel, stride, padding, dilation].into_iter().flatten();
        numbers.fold(key, |key, &number| key.with(number))
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
}

/// The kernel with tiles in shared memory.
fn of_tiles(form: &Form, tile: Tile) -> BlockKernel {
    let k = Builder::new("convolution", THREADS as u32);
    tiled(&k, &Call::new(&k, form), tile);
    k.finish()
}

/// The kernel whose threads compute single elements.
fn of_points(form: &Form) -> BlockKernel {
    let k = Builder::new("convolution_direct", THREADS as u32);
    let call = Call::new(&k, form);
    let total = k.length("total");
    direct(&k, &call, &total);
    k.finish()
}

/// The parameters of a kernel.
struct Call<'a> {
    form: &'a Form,
    factors: [Buffer; 2],
    result: Buffer,
    examples: Expression,
    groups: Expression,
    /// Input and output channels of a group.
    channels: Expression,
    out: Expression,
    /// Inner positions of a part.
    part: Expression,
    x: Space,
    y: Space,
}

/// The spatial dimensions of a tensor.
struct Space {
    lengths: Vec<Expression>,
    places: Expression,
}

impl Space {
    fn new(k: &Builder, lengths: Vec<Expression>) -> Space {
        let places = lengths.iter().fold(index(1), |places, length| places * length);
        Space { lengths, places: k.bind(&places) }
    }

    /// The indices of a place along each dimension.
    fn indices(&self, k: &Builder, place: &Expression) -> Vec<Expression> {
        split(k, place, &self.lengths)
    }

    /// The place with these indices, and whether all are in range.
    fn place(&self, indices: &[Expression]) -> (Expression, Expression) {
        let pairs = || indices.iter().zip(&self.lengths);
        let place = pairs().fold(index(0), |place, (at, length)| place * length + at);
        let inside = pairs().map(|(at, length)| at.ge(&index(0)) & &at.lt(length));
        let is_inside = inside.reduce(|all, one| all & &one);
        (place, is_inside.unwrap_or_else(|| index(0).eq(&index(0))))
    }
}

/// The element at a place of a channel; 0 if the place is outside.
fn element(k: &Builder, first: &Expression, (place, is_inside): (Expression, Expression)) -> Element {
    Element { at: k.bind(&(first + &place)), is_inside: Some(k.bind(&is_inside)) }
}

/// The indices of a row-major position along dimensions of these lengths.
fn split(k: &Builder, place: &Expression, lengths: &[Expression]) -> Vec<Expression> {
    let mut rest = place.clone();
    let mut indices = Vec::new();
    for (axis, length) in lengths.iter().enumerate().rev() {
        if axis == 0 {
            indices.push(rest.clone());
        } else {
            indices.push(k.bind(&(&rest % length)));
            rest = k.bind(&(&rest / length));
        }
    }
    indices.reverse();
    indices
}

impl<'a> Call<'a> {
    fn new(k: &Builder, form: &'a Form) -> Call<'a> {
        let factors = ["left", "right"].map(|name| k.input(name, form.dtype));
        let result = k.output("result", form.result);
        let [examples, groups, channels, out, part] =
            k.lengths(["examples", "groups", "channels", "out", "part"]);
        let [x, y] = [["x0", "x1", "x2"], ["y0", "y1", "y2"]]
            .map(|names| names[..form.kernel.len()].iter().map(|name| k.length(name)).collect::<Vec<_>>());
        let [x, y] = [Space::new(k, x), Space::new(k, y)];
        Call { form, factors, result, examples, groups, channels, out, part, x, y }
    }

    /// The group and the part of a member of the batch.
    fn group(&self, batch: &Expression) -> [Expression; 2] {
        if self.form.pass == Pass::Weight {
            [batch % &self.groups, batch / &self.groups]
        } else {
            [batch.clone(), index(0)]
        }
    }

    fn inner(&self) -> Expression {
        let taps = index(self.form.taps());
        match self.form.pass {
            Pass::Forward => &self.channels * taps,
            Pass::Input => &self.out * taps,
            Pass::Weight => &self.examples * &self.y.places,
        }
    }

    /// The channel and the indices of the tap at a position of channels × taps.
    fn tap(&self, k: &Builder, at: &Expression) -> (Expression, Vec<Expression>) {
        let taps = self.form.taps();
        if taps == 1 {
            return (at.clone(), vec![index(0); self.form.kernel.len()]);
        }
        let [channel, tap] = [k.bind(&(at / index(taps))), k.bind(&(at % index(taps)))];
        let lengths: Vec<Expression> = self.form.kernel.iter().map(|&length| index(length)).collect();
        (channel, split(k, &tap, &lengths))
    }

    /// The first element of a channel of an example of `x`, and of `y`.
    fn of_x(&self, example: &Expression, group: &Expression, channel: &Expression) -> Expression {
        ((example * &self.groups + group) * &self.channels + channel) * &self.x.places
    }

    fn of_y(&self, example: &Expression, group: &Expression, channel: &Expression) -> Expression {
        ((example * &self.groups + group) * &self.out + channel) * &self.y.places
    }

    /// The place of `y` that the tap leads to from a place of `x` (whose indices include the padding), and whether
    /// there is one.
    fn place_of_y(&self, k: &Builder, from: &[Expression], tap: &[Expression]) -> (Expression, Expression) {
        let Form { stride, dilation, .. } = self.form;
        let mut meets: Option<Expression> = None;
        let mut indices = Vec::new();
        for (axis, (from, tap)) in from.iter().zip(tap).enumerate() {
            let reached = k.bind(&(from - &(tap * index(dilation[axis]))));
            if stride[axis] == 1 {
                indices.push(reached);
                continue;
            }
            // Only positions that are not negative are divided.
            let positive = k.bind(&reached.max(&index(0)));
            let whole = reached.ge(&index(0)) & &(&positive % index(stride[axis])).eq(&index(0));
            meets = Some(match meets {
                Some(meets) => meets & &whole,
                None => whole,
            });
            indices.push(k.bind(&(positive / &index(stride[axis]))));
        }
        let (place, is_inside) = self.y.place(&indices);
        (place, meets.map_or(is_inside.clone(), |meets| is_inside & &meets))
    }
}

impl Contraction for Call<'_> {
    fn sum_dtype(&self) -> DType {
        sum_dtype(self.form.dtype)
    }

    fn sizes(&self) -> [Expression; 2] {
        match self.form.pass {
            Pass::Forward => [self.out.clone(), &self.examples * &self.y.places],
            Pass::Input => [self.channels.clone(), &self.examples * &self.x.places],
            Pass::Weight => [self.out.clone(), &self.channels * index(self.form.taps())],
        }
    }

    fn inner_range(&self, k: &Builder, batch: &Expression) -> [Expression; 2] {
        let inner = k.bind(&self.inner());
        if self.form.pass != Pass::Weight {
            return [index(0), inner];
        }
        let [_, part] = self.group(batch);
        let first = k.bind(&(part * &self.part));
        let end = k.bind(&(&first + &self.part).min(&inner));
        [first, end]
    }

    fn is_inner_contiguous(&self) -> [bool; 2] {
        [true, self.form.pass == Pass::Weight]
    }

    fn has_vectors(&self) -> [bool; 3] {
        [self.form.has_vectors, false, false]
    }

    fn buffers(&self) -> [Buffer; 3] {
        let [left, right] = self.factors;
        [left, right, self.result]
    }

    fn row(&self, k: &Builder, batch: &Expression, row: &Expression) -> Vec<Expression> {
        let taps = index(self.form.taps());
        let [group, _] = self.group(batch);
        let first = match self.form.pass {
            Pass::Forward => (group * &self.out + row) * &(&self.channels * taps),
            Pass::Input => (group * &(&self.out * &self.channels) + row) * &taps,
            Pass::Weight => (group * &self.out + row) * &self.y.places,
        };
        vec![k.bind(&first)]
    }

    fn left(&self, k: &Builder, row: &[Expression], inner: &Expression) -> Element {
        let taps = self.form.taps();
        let at = match self.form.pass {
            Pass::Forward => inner.clone(),
            Pass::Input => {
                let out = k.bind(&(inner / index(taps)));
                let tap = inner - &(&out * index(taps));
                out * &(&self.channels * index(taps)) + &tap
            }
            Pass::Weight => {
                let example = k.bind(&(inner / &self.y.places));
                let place = inner - &(&example * &self.y.places);
                self.of_y(&example, &index(0), &index(0)) + &place
            }
        };
        Element { at: at + &row[0], is_inside: None }
    }

    /// The first element of an example or channel, then an index for each spatial dimension.
    fn column(&self, k: &Builder, batch: &Expression, column: &Expression) -> Vec<Expression> {
        let Form { stride, padding, dilation, .. } = self.form;
        let [group, _] = self.group(batch);
        let none = index(0);
        let (first, indices): (Expression, Vec<Expression>) = match self.form.pass {
            Pass::Forward => {
                let example = k.bind(&(column / &self.y.places));
                let at = self.y.indices(k, &k.bind(&(column % &self.y.places)));
                let from = at.iter().zip(stride).zip(padding);
                let from = from.map(|((at, &stride), &padding)| at * index(stride) - &index(padding));
                (self.of_x(&example, &group, &none), from.collect())
            }
            Pass::Input => {
                let example = k.bind(&(column / &self.x.places));
                let at = self.x.indices(k, &k.bind(&(column % &self.x.places)));
                let from = at.iter().zip(padding).map(|(at, &padding)| at + index(padding));
                (self.of_y(&example, &group, &none), from.collect())
            }
            Pass::Weight => {
                let (channel, tap) = self.tap(k, column);
                let from = tap.iter().zip(dilation).zip(padding);
                let from = from.map(|((tap, &dilation), &padding)| tap * index(dilation) - &index(padding));
                (self.of_x(&none, &group, &channel), from.collect())
            }
        };
        core::iter::once(first).chain(indices).map(|value| k.bind(&value)).collect()
    }

    fn right(&self, k: &Builder, column: &[Expression], inner: &Expression) -> Element {
        let Form { stride, dilation, .. } = self.form;
        let (first, from) = (&column[0], &column[1..]);
        match self.form.pass {
            Pass::Forward => {
                let (channel, tap) = self.tap(k, inner);
                let at = from.iter().zip(&tap).zip(dilation);
                let at = at.map(|((from, tap), &dilation)| k.bind(&(tap * index(dilation) + from)));
                let place = self.x.place(&at.collect::<Vec<_>>());
                element(k, &(&channel * &self.x.places + first), place)
            }
            Pass::Input => {
                let (channel, tap) = self.tap(k, inner);
                let place = self.place_of_y(k, from, &tap);
                element(k, &(&channel * &self.y.places + first), place)
            }
            Pass::Weight => {
                let example = k.bind(&(inner / &self.y.places));
                let place = k.bind(&(inner - &(&example * &self.y.places)));
                let indices = self.y.indices(k, &place);
                let at = indices.iter().zip(stride).zip(from);
                let at = at.map(|((at, &stride), from)| k.bind(&(at * index(stride) + from)));
                let place = self.x.place(&at.collect::<Vec<_>>());
                element(k, &(self.of_x(&example, &index(0), &index(0)) + first), place)
            }
        }
    }

    fn result(&self, k: &Builder, batch: &Expression, row: &Expression, column: &Expression) -> Expression {
        let [group, part] = self.group(batch);
        match self.form.pass {
            Pass::Forward => {
                let example = k.bind(&(column / &self.y.places));
                self.of_y(&example, &group, row) + &(column % &self.y.places)
            }
            Pass::Input => {
                let example = k.bind(&(column / &self.x.places));
                self.of_x(&example, &group, row) + &(column % &self.x.places)
            }
            Pass::Weight => {
                let channel = (part * &self.groups + &group) * &self.out + row;
                channel * &(&self.channels * index(self.form.taps())) + column
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    fn form(pass: Pass, dtype: DType, axes: usize, step: usize) -> Form {
        Form {
            pass,
            dtype,
            result: dtype,
            kernel: vec![3; axes],
            stride: vec![step; axes],
            padding: vec![1; axes],
            dilation: vec![step; axes],
            has_vectors: false,
        }
    }

    #[test]
    fn kernels_print_for_all_passes_and_dtypes() {
        for pass in [Pass::Forward, Pass::Input, Pass::Weight] {
            for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
                for (axes, step) in [(2, 1), (2, 2), (3, 2)] {
                    let form = form(pass, dtype, axes, step);
                    for sizes in [[8, 1000], [1000, 1000]] {
                        let tile = Tile::of(1, sizes, sum_dtype(dtype), 8);
                        assert_within(&of_tiles(&form, tile), WEBGPU_SHARED);
                        if pass == Pass::Forward && has_vectors(dtype) {
                            let form = Form { has_vectors: true, ..form.clone() };
                            assert_within(&of_tiles(&form, tile), WEBGPU_SHARED);
                        }
                    }
                    assert_within(&of_points(&form), WEBGPU_SHARED);
                    assert_within(&of_points(&Form { kernel: vec![1; axes], ..form }), WEBGPU_SHARED);
                }
            }
        }
    }

    #[test]
    fn long_sums_of_weight_gradients_are_split() {
        let of = |pass, batch: usize| Convolution {
            pass,
            dtype: DType::F32,
            x: [batch, 16, 32, 32].into(),
            w: [16, 16, 3, 3].into(),
            y: [batch, 16, 32, 32].into(),
            channels_last: false,
            stride: vec![1, 1],
            padding: vec![1, 1],
            dilation: vec![1, 1],
            groups: 1,
        };
        assert_eq!(parts(&of(Pass::Forward, 64), 100), 1);
        assert_eq!(parts(&of(Pass::Weight, 1), 100), 1);
        assert_eq!(parts(&of(Pass::Weight, 64), 90), 30);
        let Sizes { groups, rows, columns, inner } = Sizes::of(&of(Pass::Weight, 64));
        assert_eq!((groups, rows, columns, inner), (1, 16, 144, 65_536));
    }
}
