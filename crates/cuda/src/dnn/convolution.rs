//! Convolutions and their gradients as graphs of cuDNN.

use super::graph::{Descriptor, Graph, Outcome, Refusal};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as Data,
};
use kiln_gpu::driver::{Convolution, Pass};
use kiln_ir::{DType, Shape};

/// The graph of a convolution, whose arguments are `x`, `w` and `y`.
///
/// # Errors
/// When the library does not support it; with the reason.
pub(super) fn graph(convolution: &Convolution) -> Outcome<Graph> {
    let (element, compute) = match convolution.dtype {
        DType::F64 => (Data::CUDNN_DATA_DOUBLE, Data::CUDNN_DATA_DOUBLE),
        DType::F32 => (Data::CUDNN_DATA_FLOAT, Data::CUDNN_DATA_FLOAT),
        DType::F16 => (Data::CUDNN_DATA_HALF, Data::CUDNN_DATA_FLOAT),
        DType::BF16 => (Data::CUDNN_DATA_BFLOAT16, Data::CUDNN_DATA_FLOAT),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => return Err(Refusal("the library convolves floats".to_owned())),
    };
    if hits_cudnn_bug(convolution) {
        return Err(Refusal("the library fails on such gradients with strides and dilation".to_owned()));
    }
    let mut graph = Graph::default();
    let mut argument = |shape: &Shape| {
        let lengths: Vec<i64> = shape.iter().map(|&length| length as i64).collect();
        graph.argument(&lengths, &steps(shape, convolution.channels_last), element)
    };
    let [x, w, y] = [argument(&convolution.x)?, argument(&convolution.w)?, argument(&convolution.y)?];
    let how = how(convolution, compute)?;
    let names = names(convolution.pass);
    let operation =
        graph.operation(names.kind, Some((names.how, &how)), &[(names.x, x), (names.w, w), (names.y, y)])?;
    if compute == Data::CUDNN_DATA_DOUBLE {
        operation.set(names.alpha, &[1f64])?;
        operation.set(names.beta, &[0f64])?;
    } else {
        operation.set(names.alpha, &[1f32])?;
        operation.set(names.beta, &[0f32])?;
    }
    graph.push(operation)?;
    Ok(graph)
}

/// Whether the convolution hits bugs of cuDNN. Some proposed plans divide by zero, which aborts the process (seen in 32
/// bits). Kernels of others execute an illegal instruction, which invalidates the context (seen in 16 bits).
fn hits_cudnn_bug(convolution: &Convolution) -> bool {
    let mut axes = convolution.stride.iter().zip(&convolution.dilation);
    convolution.pass == Pass::Input
        && convolution.stride.len() == 3
        && axes.any(|(&stride, &dilation)| stride > 1 && dilation > 1)
}

fn how(convolution: &Convolution, compute: Data) -> Outcome<Descriptor> {
    let whole = |numbers: &[usize]| -> Vec<i64> { numbers.iter().map(|&number| number as i64).collect() };
    let how = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[compute])?;
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[mode])?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[convolution.stride.len() as i64])?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &whole(&convolution.dilation))?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &whole(&convolution.stride))?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &whole(&convolution.padding))?;
    how.set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &whole(&convolution.padding))?;
    how.finish("a convolution")
}

/// The attribute names of an operation descriptor.
struct Names {
    kind: Kind,
    how: Name,
    x: Name,
    w: Name,
    y: Name,
    alpha: Name,
    beta: Name,
}

fn names(pass: Pass) -> Names {
    match pass {
        Pass::Forward => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            how: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        },
        Pass::Input => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            how: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        },
        Pass::Weight => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            how: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        },
    }
}

/// The strides of a contiguous `[batch, channels, space..]`, channels-first or channels-last.
fn steps(shape: &Shape, channels_last: bool) -> Vec<i64> {
    let mut steps = vec![0; shape.rank()];
    let space = (2..shape.rank()).rev();
    let inner: Vec<usize> =
        if channels_last { [1].into_iter().chain(space).collect() } else { space.chain([1]).collect() };
    let mut step = 1;
    for axis in inner.into_iter().chain([0]) {
        steps[axis] = step;
        step *= shape[axis] as i64;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_channels_first_and_channels_last() {
        let shape = Shape::from([2, 3, 4, 5]);
        assert_eq!(steps(&shape, false), [60, 20, 5, 1]);
        assert_eq!(steps(&shape, true), [60, 1, 15, 3]);
    }
}
