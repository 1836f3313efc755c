//! Vectorizing map: functions of one example as functions of a batch.

use super::{Randomness, Structure, Tree, flattened, unflattened};
use crate::tensor::ok;
use crate::{AnyTensor, Error, OperandType, Result, Stack, VmapBackend};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{SliceAxis, Var};
use kiln_vmap::Vmap;

/// Returns a function of a batch from a function of one example.
///
/// Arguments and results have the batch axis in front; inside `f` it is hidden. A result that does not depend on the
/// argument is repeated. There is no loop over the examples: each op of `f` becomes one op on all of them.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::vmap;
/// use kiln_tensor::{Tensor, Vmap};
///
/// type E = Vmap<Flex>;
/// let device = Default::default();
/// let dot = |(a, b): (Tensor<E, 1>, Tensor<E, 1>)| (a * b).sum();
/// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
/// let b = Tensor::<Flex, 2>::from_floats([[10.0, 1.0], [0.0, 5.0]], &device);
/// let dots: Tensor<Flex, 2> = vmap(dot)((a, b));
/// assert_eq!(dots.into_data().to_vec::<f32>(), [12.0, 20.0]);
/// ```
///
/// Inside, reading a tensor is an error. So is [`nonzero`](kiln_ir::Op::NonZero), and every op based on it, because its
/// shape would differ between examples. An error in one example is an error of all.
///
/// # Panics
/// The returned function panics when arguments have no batch axis or different batch sizes, structures or ranks do not
/// match, or `f` returns a tensor from outside.
pub fn vmap<V, T, Y, X, Z, F>(f: F) -> impl Fn(X) -> Z
where
    V: VmapBackend,
    T: Tree<V>,
    Y: Tree<V>,
    X: Tree<V::InnerBackend>,
    Z: Tree<V::InnerBackend>,
    F: Fn(T) -> Y,
{
    vmap_with(VmapOptions::default(), f)
}

/// Like [`vmap`], with options: the batch axes, the number of examples that run at once, and the randomness.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::{VmapOptions, vmap_with};
/// use kiln_tensor::{Tensor, Vmap};
///
/// type E = Vmap<Flex>;
/// let device = Default::default();
/// let apply = |(m, x): (Tensor<E, 2>, Tensor<E, 1>)| m.matmul(x.unsqueeze_dim::<2>(1)).squeeze_dim::<1>(1);
/// let m = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
/// let columns = Tensor::<Flex, 2>::from_floats([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], &device);
/// // One matrix for all, and the columns of another as examples.
/// let options = VmapOptions::default().in_axes([None, Some(1)]).out_axes([1]);
/// let y: Tensor<Flex, 2> = vmap_with(options, apply)((m, columns));
/// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]);
/// ```
///
/// # Panics
/// As [`vmap`], and when options do not match the arguments.
pub fn vmap_with<V, T, Y, X, Z, F>(options: VmapOptions, f: F) -> impl Fn(X) -> Z
where
    V: VmapBackend,
    T: Tree<V>,
    Y: Tree<V>,
    X: Tree<V::InnerBackend>,
    Z: Tree<V::InnerBackend>,
    F: Fn(T) -> Y,
{
    move |x| {
        let (arguments, structure) = flattened::<V::InnerBackend, X>(x);
        let run = |arguments| {
            let x = unflattened::<V, T>(&structure, arguments).map_err(|error| {
                error.hint("inside `vmap` an argument has one axis less than outside: that of the examples")
            })?;
            Ok(flattened::<V, Y>(f(x)))
        };
        let (results, structure) = ok(options.run(arguments, &structure, &run));
        ok(unflattened(&structure, results).map_err(|error| {
            error.hint(
                "the result of `vmap` has one axis more than that of the function: that of the examples",
            )
        }))
    }
}

/// Options of [`vmap_with`]. By default the first axis of all arguments and results is the batch axis, all examples run
/// at once, and random numbers differ between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmapOptions {
    in_axes: Vec<Option<usize>>,
    out_axes: Vec<usize>,
    chunk_size: Option<usize>,
    randomness: Randomness,
}

/// A function of one example, of flat tensors.
type Example<'a> = dyn Fn(Vec<AnyTensor>) -> Result<(Vec<AnyTensor>, Structure)> + 'a;

impl VmapOptions {
    /// Sets the batch axis of each argument. The list has an entry for each tensor of the arguments in order, one for
    /// each part of a tuple, array or vector (for all tensors of the part), or one for all. `None`: the argument is the
    /// same for all examples.
    #[must_use]
    pub fn in_axes(mut self, axes: impl IntoIterator<Item = Option<usize>>) -> VmapOptions {
        self.in_axes = axes.into_iter().collect();
        self
    }

    /// Sets the batch axis of each result: an entry for each tensor of the results in order, or one for all.
    #[must_use]
    pub fn out_axes(mut self, axes: impl IntoIterator<Item = usize>) -> VmapOptions {
        self.out_axes = axes.into_iter().collect();
        self
    }

    /// Sets the maximum number of examples that run at once, which trades time for memory. The last chunk may be
    /// smaller.
    ///
    /// # Panics
    /// When `examples` is 0.
    #[must_use]
    #[track_caller]
    pub fn chunk_size(mut self, examples: usize) -> VmapOptions {
        assert!(examples > 0, "[vmap] the chunk size must be at least 1");
        self.chunk_size = Some(examples);
        self
    }

    /// Sets how the function draws random numbers. With a key for each example, the numbers depend on that key alone.
    /// With one key for all, the numbers of [`Randomness::Different`] depend on the chunk size.
    #[must_use]
    pub fn randomness(mut self, randomness: Randomness) -> VmapOptions {
        self.randomness = randomness;
        self
    }

    fn run(
        &self,
        arguments: Vec<AnyTensor>,
        structure: &Structure,
        f: &Example<'_>,
    ) -> Result<(Vec<AnyTensor>, Structure)> {
        let batch = Batch::new(self, arguments, structure)?;
        let chunk = self.chunk_size.unwrap_or(usize::MAX).min(batch.examples.max(1));
        let (first, structure) = batch.part(0, chunk.min(batch.examples), f)?;
        let axes = self.axes_of_results(first.len())?;
        let mut parts: Vec<Vec<AnyTensor>> = first.into_iter().map(|result| Vec::from([result])).collect();
        for start in (chunk..batch.examples).step_by(chunk) {
            let (results, _) = batch.part(start, chunk.min(batch.examples - start), f)?;
            parts.iter_mut().zip(results).for_each(|(parts, result)| parts.push(result));
        }
        let joined = |(mut parts, axis): (Vec<AnyTensor>, usize)| match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => AnyTensor::cat(parts, axis),
        };
        Ok((parts.into_iter().zip(axes).map(joined).collect::<Result<_>>()?, structure))
    }

    /// Returns an entry for each tensor of the arguments.
    fn axes_of_arguments(
        &self,
        arguments: &[AnyTensor],
        structure: &Structure,
    ) -> Result<Vec<Option<usize>>> {
        let count = arguments.len();
        let parts = match structure {
            Structure::Node(parts) => parts.as_slice(),
            Structure::Leaf | Structure::Map(_) => &[],
        };
        match self.in_axes.as_slice() {
            [] => Ok(alloc::vec![Some(0); count]),
            [axis] => Ok(alloc::vec![*axis; count]),
            axes if axes.len() == count => Ok(axes.to_vec()),
            axes if axes.len() == parts.len() => {
                let repeated = |(axis, part): (&Option<usize>, &Structure)| {
                    core::iter::repeat_n(*axis, part.num_leaves())
                };
                Ok(axes.iter().zip(parts).flat_map(repeated).collect())
            }
            axes => {
                let problem = format!("`in_axes` has {} entries for {count} arguments", axes.len());
                Err(Error::type_error("vmap", problem, &types(arguments)).hint(
                    "pass one for each tensor, one for each part of the tuple of arguments, or one for all",
                ))
            }
        }
    }

    fn axes_of_results(&self, count: usize) -> Result<Vec<usize>> {
        match self.out_axes.as_slice() {
            [] => Ok(alloc::vec![0; count]),
            [axis] => Ok(alloc::vec![*axis; count]),
            axes if axes.len() == count => Ok(axes.to_vec()),
            axes => {
                let problem = format!("`out_axes` has {} entries for {count} results", axes.len());
                Err(Error::type_error("vmap", problem, &[]).hint("pass one for each tensor, or one for all"))
            }
        }
    }
}

/// Arguments with their batch axes.
struct Batch<'a> {
    options: &'a VmapOptions,
    arguments: Vec<(AnyTensor, Option<usize>)>,
    examples: usize,
    /// The stack on which the function runs.
    inside: Stack,
}

impl<'a> Batch<'a> {
    fn new(options: &'a VmapOptions, arguments: Vec<AnyTensor>, structure: &Structure) -> Result<Batch<'a>> {
        let axes = options.axes_of_arguments(&arguments, structure)?;
        let examples = number_of_examples(&arguments, &axes)?;
        let first = arguments.first().map(|argument| argument.stack().with_vmap());
        let inside = first.ok_or_else(nothing_to_count)?;
        Ok(Batch { options, arguments: arguments.into_iter().zip(axes).collect(), examples, inside })
    }

    /// Returns the results of a chunk of examples.
    fn part(&self, start: usize, count: usize, f: &Example<'_>) -> Result<(Vec<AnyTensor>, Structure)> {
        let mut inside = Vec::with_capacity(self.arguments.len());
        for (argument, axis) in &self.arguments {
            let stack = argument.stack().with_vmap();
            let value = match (axis, stack.outermost::<Vmap>()) {
                (Some(axis), Some(layer)) => layer.batch(self.slice(argument, *axis, start, count), *axis),
                (_, _) => argument.value().clone(),
            };
            inside.push(AnyTensor::new(stack, value));
        }
        let Some(layer) = self.inside.outermost::<Vmap>() else { return Err(nothing_to_count()) };
        let (results, structure) = layer.scope(count, self.options.randomness, || f(inside))?;
        let axes = self.options.axes_of_results(results.len())?;
        let outward = |(result, axis): (AnyTensor, usize)| {
            if !result.stack().same_domain(&self.inside) {
                return Err(self.outside(&result));
            }
            if axis > result.rank() {
                let problem = format!("the result has no axis {axis} for the examples");
                return Err(Error::type_error("vmap", problem, &[result.ty().into()])
                    .hint("`out_axes` counts the axes of the result with that of the examples"));
            }
            let below = result.stack().below().unwrap_or(result.stack()).clone();
            Ok(AnyTensor::new(below, layer.unbatch(result.value(), count, axis)))
        };
        Ok((results.into_iter().zip(axes).map(outward).collect::<Result<_>>()?, structure))
    }

    fn slice(&self, argument: &AnyTensor, axis: usize, start: usize, count: usize) -> kiln_ir::Value {
        if count == self.examples {
            return argument.value().clone();
        }
        let all = Var::new(argument.stack().engine(), argument.value().clone());
        all.slice_axis(axis, SliceAxis::range(start..start + count)).into_value()
    }

    fn outside(&self, result: &AnyTensor) -> Error {
        let problem =
            format!("the function returns a tensor on {:?}, not on {:?}", result.stack(), self.inside);
        Error::type_error("vmap", problem, &[result.ty().into()])
            .hint("bring tensors from outside in with `lift`: `x.lift(outside)`")
    }
}

fn number_of_examples(arguments: &[AnyTensor], axes: &[Option<usize>]) -> Result<usize> {
    let mut found: Option<(usize, usize)> = None;
    for (place, (argument, axis)) in arguments.iter().zip(axes).enumerate() {
        let Some(axis) = *axis else { continue };
        let Some(&count) = argument.shape().get(axis) else {
            let problem = format!("argument {place} has no axis {axis} of examples");
            return Err(Error::type_error("vmap", problem, &types(arguments))
                .hint("add the axis to the argument, or select another with `in_axes`; `None` shares the argument among all examples"));
        };
        match found {
            Some((first, expected)) if expected != count => {
                let problem =
                    format!("argument {first} has {expected} examples, argument {place} has {count}");
                return Err(Error::type_error("vmap", problem, &types(arguments)).hint(
                    "all batched arguments have the same number of examples, along the axis of `in_axes`",
                ));
            }
            Some(_) => {}
            None => found = Some((place, count)),
        }
    }
    Ok(found.ok_or_else(nothing_to_count)?.1)
}

fn nothing_to_count() -> Error {
    Error::type_error("vmap", "no argument has an axis of examples", &[])
        .hint("at least one entry of `in_axes` is `Some`, of a tensor")
}

fn types(arguments: &[AnyTensor]) -> Vec<OperandType<'_>> {
    arguments.iter().map(|argument| argument.ty().into()).collect()
}
