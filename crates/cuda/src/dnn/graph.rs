//! cuDNN graphs of operations: described by descriptors, matched by the library's engines, and run as one plan.

use super::Handle;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as Data, cudnnPointwiseMode_t as Pointwise,
    cudnnReduceTensorOp_t as Reduction,
};
use std::ffi::{c_char, c_int, c_void};

/// An error of the library, with its reason.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(pub(crate) String);

pub(super) type Outcome<T> = core::result::Result<T, Refusal>;

/// The alignment of tensors in bytes that the fastest engines require. Callers guarantee it.
pub(super) const ALIGNMENT: usize = 16;

/// Alignment of tensors in the workspace.
const WORKSPACE_ALIGNMENT: usize = 256;

/// The maximum number of configurations per request.
const CONFIGURATIONS: usize = 32;

/// A backend descriptor.
pub(super) struct Descriptor(sys::cudnnBackendDescriptor_t);

// SAFETY: finished descriptors are only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
        debug_assert!(destroyed == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS, "[cuda] {destroyed:?}");
    }
}

/// The value of an attribute, with the library's name of its type.
pub(super) trait Value: Copy {
    const TYPE: Type;
}

macro_rules! values {
    ($($value:ty, $name:ident;)*) => {$(
        impl Value for $value {
            const TYPE: Type = Type::$name;
        }
    )*};
}

values! {
    i64, CUDNN_TYPE_INT64;
    f32, CUDNN_TYPE_FLOAT;
    f64, CUDNN_TYPE_DOUBLE;
    bool, CUDNN_TYPE_BOOLEAN;
    u8, CUDNN_TYPE_CHAR;
    Data, CUDNN_TYPE_DATA_TYPE;
    Pointwise, CUDNN_TYPE_POINTWISE_MODE;
    Reduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    sys::cudnnConvolutionMode_t, CUDNN_TYPE_CONVOLUTION_MODE;
    sys::cudnnBackendHeurMode_t, CUDNN_TYPE_HEUR_MODE;
    sys::cudnnHandle_t, CUDNN_TYPE_HANDLE;
    *mut c_void, CUDNN_TYPE_VOID_PTR;
}

/// The result of a call. On failure it fetches the library's error text at once.
fn done(status: sys::cudnnStatus_t, what: &str) -> Outcome<()> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut said = [0 as c_char; 512];
    // SAFETY: the library writes at most the given number of bytes, the last of them 0.
    unsafe { sys::cudnnGetLastErrorString(said.as_mut_ptr(), said.len()) };
    let said: Vec<u8> = said.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    Err(Refusal(format!("{what}: {status:?}: {}", String::from_utf8_lossy(&said).trim())))
}

impl Descriptor {
    pub(super) fn new(kind: Kind) -> Outcome<Descriptor> {
        let mut descriptor = core::ptr::null_mut();
        // SAFETY: the descriptor is written before the call returns.
        done(unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut descriptor) }, "creating a descriptor")?;
        Ok(Descriptor(descriptor))
    }

    pub(super) fn set<V: Value>(&self, name: Name, values: &[V]) -> Outcome<()> {
        // SAFETY: the values are of the named type.
        unsafe { self.set_raw(name, V::TYPE, values.len(), values.as_ptr().cast()) }
    }

    /// Sets an attribute to other descriptors.
    pub(super) fn refer(&self, name: Name, others: &[&Descriptor]) -> Outcome<()> {
        let others: Vec<sys::cudnnBackendDescriptor_t> = others.iter().map(|other| other.0).collect();
        // SAFETY: the descriptors are alive.
        unsafe {
            self.set_raw(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, others.len(), others.as_ptr().cast())
        }
    }

    /// # Safety
    /// There must be `count` values of the named type.
    unsafe fn set_raw(&self, name: Name, ty: Type, count: usize, values: *const c_void) -> Outcome<()> {
        // SAFETY: the descriptor is alive; the caller guarantees the values, which are copied.
        let status = unsafe { sys::cudnnBackendSetAttribute(self.0, name, ty, count as i64, values) };
        done(status, &format!("setting {name:?}"))
    }

    pub(super) fn finish(self, what: &str) -> Outcome<Descriptor> {
        // SAFETY: the descriptor is alive.
        done(unsafe { sys::cudnnBackendFinalize(self.0) }, what)?;
        Ok(self)
    }

    fn whole(&self, name: Name) -> Outcome<i64> {
        let (mut value, mut count) = (0i64, 0i64);
        // SAFETY: there is room for the one requested number.
        let status = unsafe {
            let to = (&raw mut value).cast();
            sys::cudnnBackendGetAttribute(self.0, name, Type::CUDNN_TYPE_INT64, 1, &mut count, to)
        };
        done(status, &format!("getting {name:?}"))?;
        Ok(value)
    }

    /// Reads a list of at most `most` descriptors, which the library fills.
    fn list(&self, name: Name, kind: Kind, most: usize) -> Outcome<Vec<Descriptor>> {
        let mut found = (0..most).map(|_| Descriptor::new(kind)).collect::<Outcome<Vec<_>>>()?;
        let mut raw: Vec<sys::cudnnBackendDescriptor_t> = found.iter().map(|one| one.0).collect();
        let mut count = 0;
        // SAFETY: there are as many descriptors as requested.
        let status = unsafe {
            let (ty, to) = (Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.as_mut_ptr().cast());
            sys::cudnnBackendGetAttribute(self.0, name, ty, most as i64, &mut count, to)
        };
        done(status, &format!("getting {name:?}"))?;
        found.truncate(usize::try_from(count).unwrap_or(0));
        Ok(found)
    }
}

/// The target of plans.
#[derive(Clone, Copy)]
pub(super) enum Machine<'a> {
    /// The device of a handle.
    Here(&'a Handle),
    /// A described device, which may be elsewhere.
    #[cfg(test)]
    Described(&'a Descriptor),
}

impl Machine<'_> {
    /// Sets the target on a descriptor, by the attribute that it has for either kind.
    fn name(self, descriptor: &Descriptor, handle: Option<Name>, properties: Option<Name>) -> Outcome<()> {
        debug_assert!(handle.is_some() || properties.is_some());
        match self {
            Machine::Here(here) => handle.map_or(Ok(()), |name| descriptor.set(name, &[here.0])),
            #[cfg(test)]
            Machine::Described(there) => properties.map_or(Ok(()), |name| descriptor.refer(name, &[there])),
        }
    }
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub(super) struct Tensor(usize);

/// A scalar constant of a plan.
#[derive(Clone, Copy)]
pub(super) enum Number {
    F32(f32),
    I32(i32),
}

/// Operations in topological order.
#[derive(Default)]
pub(super) struct Graph {
    operations: Vec<Descriptor>,
    tensors: Vec<(Descriptor, Vec<i64>)>,
    arguments: Vec<i64>,
    numbers: Vec<(i64, Number)>,
    scratch: Vec<(i64, usize)>,
}

/// The strides of a contiguous tensor.
pub(super) fn contiguous(lengths: &[i64]) -> Vec<i64> {
    let mut steps = vec![1; lengths.len()];
    for axis in (1..lengths.len()).rev() {
        steps[axis - 1] = steps[axis] * lengths[axis];
    }
    steps
}

impl Graph {
    fn tensor(&mut self, lengths: &[i64], steps: &[i64], data: Data, kind: Storage) -> Outcome<Tensor> {
        let tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        let id = self.tensors.len() as i64 + 1;
        tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, lengths)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_STRIDES, steps)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[kind == Storage::Virtual])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[kind == Storage::ByValue])?;
        self.tensors.push((tensor.finish("a tensor")?, lengths.to_vec()));
        Ok(Tensor(self.tensors.len() - 1))
    }

    /// Adds a tensor whose address is an argument of each run.
    pub(super) fn argument(&mut self, lengths: &[i64], steps: &[i64], data: Data) -> Outcome<Tensor> {
        let tensor = self.tensor(lengths, steps, data, Storage::External)?;
        self.arguments.push(tensor.id());
        Ok(tensor)
    }

    /// Adds a scalar that is the same in every run.
    pub(super) fn number(&mut self, number: Number) -> Outcome<Tensor> {
        let data = match number {
            Number::F32(_) => Data::CUDNN_DATA_FLOAT,
            Number::I32(_) => Data::CUDNN_DATA_INT32,
        };
        let tensor = self.tensor(&[1; 4], &[1; 4], data, Storage::ByValue)?;
        self.numbers.push((tensor.id(), number));
        Ok(tensor)
    }

    /// Adds an `f32` tensor in the workspace.
    pub(super) fn scratch(&mut self, lengths: &[i64]) -> Outcome<Tensor> {
        let data = Data::CUDNN_DATA_FLOAT;
        let tensor = self.tensor(lengths, &contiguous(lengths), data, Storage::External)?;
        let bytes = lengths.iter().product::<i64>() as usize * size_of::<f32>();
        self.scratch.push((tensor.id(), bytes.next_multiple_of(WORKSPACE_ALIGNMENT)));
        Ok(tensor)
    }

    /// Adds a virtual tensor, which is never stored in memory.
    pub(super) fn virtual_tensor(&mut self, lengths: &[i64], steps: &[i64], data: Data) -> Outcome<Tensor> {
        self.tensor(lengths, steps, data, Storage::Virtual)
    }

    fn at(&self, tensor: Tensor) -> &Descriptor {
        &self.tensors[tensor.0].0
    }

    /// Adds an operation with its tensors.
    pub(super) fn operation(
        &mut self,
        kind: Kind,
        how: Option<(Name, &Descriptor)>,
        tensors: &[(Name, Tensor)],
    ) -> Outcome<Descriptor> {
        let operation = Descriptor::new(kind)?;
        if let Some((name, how)) = how {
            operation.refer(name, &[how])?;
        }
        for &(name, tensor) in tensors {
            operation.refer(name, &[self.at(tensor)])?;
        }
        Ok(operation)
    }

    pub(super) fn push(&mut self, operation: Descriptor) -> Outcome<()> {
        self.operations.push(operation.finish("an operation")?);
        Ok(())
    }

    /// Adds a pointwise function of one or two operands, computed in `data`, with the result `to`.
    pub(super) fn pointwise(
        &mut self,
        function: Pointwise,
        operands: &[Tensor],
        to: Tensor,
        data: Data,
    ) -> Outcome<Tensor> {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        how.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[function])?;
        how.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[data])?;
        self.function(how, operands, to)
    }

    /// Adds an index generator: the index along an axis of a tensor.
    pub(super) fn index(&mut self, axis: i64, of: Tensor, to: Tensor) -> Outcome<Tensor> {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        how.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[Pointwise::CUDNN_POINTWISE_GEN_INDEX])?;
        how.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[Data::CUDNN_DATA_FLOAT])?;
        how.set(Name::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?;
        self.function(how, &[of], to)
    }

    fn function(&mut self, how: Descriptor, operands: &[Tensor], to: Tensor) -> Outcome<Tensor> {
        const NAMES: [Name; 3] = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let how = how.finish("a function")?;
        let mut tensors: Vec<(Name, Tensor)> = NAMES.into_iter().zip(operands.iter().copied()).collect();
        tensors.push((Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to));
        let kind = Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
        let operation =
            self.operation(kind, Some((Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &how)), &tensors)?;
        self.push(operation)?;
        Ok(to)
    }

    pub(super) fn matmul(&mut self, a: Tensor, b: Tensor, to: Tensor) -> Outcome<Tensor> {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        how.set(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &[Data::CUDNN_DATA_FLOAT])?;
        let how = how.finish("a matmul")?;
        let tensors = [
            (Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a),
            (Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b),
            (Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to),
        ];
        let kind = Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
        let operation =
            self.operation(kind, Some((Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &how)), &tensors)?;
        self.push(operation)?;
        Ok(to)
    }

    /// Adds a reduction along all axes whose length in `to` is 1.
    pub(super) fn reduce(&mut self, reduction: Reduction, x: Tensor, to: Tensor) -> Outcome<Tensor> {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        how.set(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[reduction])?;
        how.set(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &[Data::CUDNN_DATA_FLOAT])?;
        let how = how.finish("a reduction")?;
        let tensors = [
            (Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x),
            (Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to),
        ];
        let kind = Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
        let operation =
            self.operation(kind, Some((Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &how)), &tensors)?;
        self.push(operation)?;
        Ok(to)
    }

    /// Adds a reshape to the axes of `to`.
    pub(super) fn reshape(&mut self, x: Tensor, to: Tensor) -> Outcome<Tensor> {
        let tensors =
            [(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x), (Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to)];
        let kind = Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
        let operation = self.operation(kind, None, &tensors)?;
        self.push(operation)?;
        Ok(to)
    }

    /// The engine configurations that heuristics propose for the whole graph, likely fastest first.
    pub(super) fn configurations(&self, machine: Machine<'_>) -> Outcome<Vec<Descriptor>> {
        use sys::cudnnBackendHeurMode_t as Mode;
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.refer(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &self.operations.iter().collect::<Vec<_>>())?;
        machine.name(&graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?;
        let graph = graph.finish("a graph")?;
        let mut found = Vec::new();
        for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK] {
            let heuristic = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
            heuristic.refer(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph])?;
            heuristic.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
            machine.name(&heuristic, None, Some(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))?;
            // A heuristic that does not support the graph may fail.
            if let Ok(heuristic) = heuristic.finish("asking for engines") {
                let kind = Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
                found.extend(heuristic.list(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, CONFIGURATIONS)?);
            }
        }
        Ok(found)
    }

    /// Creates plans, up to the maximum number, from configurations whose notes `allowed` accepts and whose workspace
    /// is within `most_workspace`. Deterministic plans come first if `repeatable`.
    ///
    /// # Errors
    /// When there is none: the library's reason for the last configuration.
    pub(super) fn prepare(
        self,
        machine: Machine<'_>,
        bounds: &Bounds,
        allowed: impl Fn(&[c_int]) -> bool,
    ) -> Outcome<Prepared> {
        let mut found: Vec<(bool, Descriptor)> = Vec::new();
        for configuration in self.configurations(machine)? {
            let notes = notes(&configuration)?;
            if allowed(&notes) {
                let varies = bounds.repeatable
                    && notes.contains(
                        &(sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC as c_int),
                    );
                found.push((varies, configuration));
            }
        }
        found.sort_by_key(|(varies, _)| *varies);
        let of_scratch: usize = self.scratch.iter().map(|(_, bytes)| bytes).sum();
        let mut refusal = Refusal("no engine supports the graph".to_owned());
        let mut plans: Vec<Plan> = Vec::new();
        for (varies, configuration) in found {
            // Nondeterministic plans are a last resort.
            if plans.len() >= bounds.most_plans || (varies && !plans.is_empty()) {
                break;
            }
            match Plan::new(configuration, machine) {
                Ok(plan) if plan.workspace + of_scratch <= bounds.most_workspace => plans.push(plan),
                Ok(_) => {}
                Err(said) => refusal = said,
            }
        }
        if plans.is_empty() {
            return Err(refusal);
        }
        let workspace = plans.iter().map(|plan| plan.workspace).max().unwrap_or(0) + of_scratch;
        Ok(Prepared { graph: self, plans, workspace, fastest: std::sync::OnceLock::new() })
    }
}

impl Tensor {
    fn id(self) -> i64 {
        self.0 as i64 + 1
    }
}

/// The storage of a tensor of a cuDNN graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// Memory that the caller passes to each run.
    External,
    /// A scalar that the plan holds by value.
    ByValue,
    /// A virtual tensor of cuDNN: an intermediate without memory.
    Virtual,
}

/// Limits on plans.
pub(super) struct Bounds {
    /// The maximum number of plans.
    pub(super) most_plans: usize,
    /// The maximum workspace in bytes.
    pub(super) most_workspace: usize,
    /// Whether deterministic plans are preferred.
    pub(super) repeatable: bool,
}

/// The numerical notes of a configuration's engine.
fn notes(configuration: &Descriptor) -> Outcome<Vec<c_int>> {
    let kind = Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    let engines = configuration.list(Name::CUDNN_ATTR_ENGINECFG_ENGINE, kind, 1)?;
    let mut notes = [0 as c_int; 32];
    let mut count = 0;
    for engine in &engines {
        // SAFETY: there is room for the requested number of notes, whose type is a C enumeration.
        let status = unsafe {
            let (ty, to) = (Type::CUDNN_TYPE_NUMERICAL_NOTE, notes.as_mut_ptr().cast());
            let name = Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE;
            sys::cudnnBackendGetAttribute(engine.0, name, ty, notes.len() as i64, &mut count, to)
        };
        done(status, "asking for notes")?;
    }
    Ok(notes[..usize::try_from(count).unwrap_or(0).min(notes.len())].to_vec())
}

/// An execution plan of a graph.
struct Plan {
    plan: Descriptor,
    /// The configuration from which the plan was made.
    _configuration: Descriptor,
    /// The workspace in bytes, rounded up for alignment.
    workspace: usize,
}

impl Plan {
    fn new(configuration: Descriptor, machine: Machine<'_>) -> Outcome<Plan> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&configuration])?;
        let properties = Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP;
        machine.name(&plan, Some(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE), Some(properties))?;
        let plan = plan.finish("a plan")?;
        let workspace = plan.whole(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let workspace = usize::try_from(workspace).unwrap_or(0).next_multiple_of(WORKSPACE_ALIGNMENT);
        Ok(Plan { plan, _configuration: configuration, workspace })
    }
}

/// A graph with its plans.
pub(super) struct Prepared {
    graph: Graph,
    /// The plans; at least one.
    plans: Vec<Plan>,
    /// The workspace in bytes, besides the arguments.
    pub(super) workspace: usize,
    /// The index of the fastest plan, once measured.
    pub(super) fastest: std::sync::OnceLock<usize>,
}

impl Prepared {
    pub(super) fn plans(&self) -> usize {
        self.plans.len()
    }

    /// Queues a plan in the stream of the handle.
    ///
    /// # Safety
    /// The arguments must have the sizes of the graph's tensors, and the workspace its size.
    pub(super) unsafe fn queue(
        &self,
        plan: usize,
        handle: &Handle,
        arguments: &[*mut c_void],
        workspace: *mut c_void,
    ) -> Outcome<()> {
        let plan = &self.plans[plan];
        let mut ids = self.graph.arguments.clone();
        let mut addresses = arguments.to_vec();
        for (id, number) in &self.graph.numbers {
            ids.push(*id);
            addresses.push(match number {
                Number::F32(number) => core::ptr::from_ref(number).cast_mut().cast(),
                Number::I32(number) => core::ptr::from_ref(number).cast_mut().cast(),
            });
        }
        let mut offset = plan.workspace;
        for &(id, bytes) in &self.graph.scratch {
            ids.push(id);
            addresses.push(workspace.wrapping_byte_add(offset));
            offset += bytes;
        }
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])?;
        let pack = pack.finish("a run's arguments")?;
        // SAFETY: the plan and the arguments are complete. The caller guarantees the memory, and scalars are read
        // before the call returns.
        done(unsafe { sys::cudnnBackendExecute(handle.0, plan.plan.0, pack.0) }, "running a plan")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_tensors_have_row_major_strides() {
        assert_eq!(contiguous(&[2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(contiguous(&[7]), [1]);
    }
}
