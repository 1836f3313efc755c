//! Interpolation (image resizing).

use crate::Gpu;
use crate::array::Array;
use crate::block::BlockKey;
use crate::block::resize::{Sampling, resize};
use crate::driver::{Arguments, Driver};
use crate::native::{Native, length};
use crate::pool::{parameters, product, split};
use crate::view::tensor;
use kiln_ir::{Operands, ResizeMode, Result, TensorType, Values};
use smallvec::smallvec;

const SOURCE: &str = include_str!("native/resize.cu");

impl<D: Driver> Gpu<D> {
    /// [`Op::Resize`](kiln_ir::Op::Resize), all axes at once.
    pub(crate) fn resize(
        &self,
        mode: ResizeMode,
        align_corners: bool,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (x, ty) = tensor::<D>(inputs, 0)?;
        let x = self.contiguous(x, ty.dtype)?;
        let result = self.uninit(&results[0])?;
        let axes = ty.shape.rank() - 2;
        let total = results[0].num_elements();
        let mut arguments: Arguments<D::Memory> =
            smallvec![x.place(ty.dtype), result.place(ty.dtype), length(total)];
        for axis in 2..ty.shape.rank() {
            arguments.extend([length(ty.shape[axis]), length(results[0].shape[axis])]);
        }
        if !self.has_native() {
            let is_wide = (2..ty.shape.rank()).any(|axis| is_wide(ty.shape[axis], results[0].shape[axis]));
            let sampling = Sampling { mode, align_corners, dtype: ty.dtype, is_wide };
            let key = BlockKey::new("resize").with(mode as usize).with(align_corners).dtype(ty.dtype);
            self.run_points(key.with(is_wide).with(axes), || resize(&sampling, axes), total, arguments)?;
            return Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])]);
        }
        let taps = match mode {
            ResizeMode::Nearest => "1",
            ResizeMode::Linear => "2",
            ResizeMode::Cubic => "4",
        };
        let native = Native::new(SOURCE, "kiln_resize")
            .name("TAPS", taps)
            .name("INDEX", "long long")
            .name("ALIGNED", align_corners)
            .name("LENGTHS", parameters(axes))
            .name("SPACE", product(axes, 'x'))
            .name("OF_RESULT", split(axes, 'y', 'o'))
            .name("TAPS_OF_AXES", taps_of_axes(axes))
            .name("EACH_TAP", each_tap(axes))
            .name("END", format!("(void)0; {}", "}".repeat(axes)))
            .dtype("T", ty.dtype);
        self.native(native, total, arguments)?;
        Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])])
    }
}

/// Whether the product of a coordinate in half samples and a length may exceed 31 bits.
fn is_wide(from: usize, to: usize) -> bool {
    i32::try_from(to.saturating_mul(2).saturating_mul(from)).is_err()
}

fn taps_of_axes(axes: usize) -> String {
    let along = |axis| {
        format!(
            "long long at{axis}[TAPS]; T_VALUE weight{axis}[TAPS]; \
             kiln_taps(o{axis}, x{axis}, y{axis}, at{axis}, weight{axis}); "
        )
    };
    (0..axes).map(along).collect()
}

fn each_tap(axes: usize) -> String {
    let loops: String =
        (0..axes).map(|axis| format!("for (int k{axis} = 0; k{axis} < TAPS; ++k{axis}) {{ ")).collect();
    let mut at = "at0[k0]".to_owned();
    let mut weight = "weight0[k0]".to_owned();
    for axis in 1..axes {
        at = format!("({at}) * x{axis} + at{axis}[k{axis}]");
        weight += &format!(" * weight{axis}[k{axis}]");
    }
    format!("{loops}const long long at = {at}; const T_VALUE weight = {weight};")
}
