//! The arguments of a launch as wgpu takes them: ranges of buffers, and the words of one uniform buffer.

use kiln_gpu::driver::{Argument, DevicePtr, Grid, Window};
use kiln_ir::{Error, Result};
use kiln_kernel::print::{Entry, EntryParameter};
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits of a device that launches keep to.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// The name of the device.
    pub(crate) name: String,
    /// The offset of a binding is a multiple of this.
    pub(crate) storage_alignment: usize,
    /// The offset of the words of a launch is a multiple of this.
    pub(crate) uniform_alignment: usize,
    /// The maximum number of bytes of a binding, at least 256. Larger tensors are bound in parts.
    pub(crate) binding_bytes: usize,
    /// The maximum number of workgroups in one dimension.
    pub(crate) workgroups: usize,
}

/// A checked launch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The bound ranges: those of each tensor's parts.
    pub(crate) bindings: SmallVec<[Binding; 8]>,
    /// The number of parts of each tensor.
    pub(crate) parts: SmallVec<[usize; 8]>,
    /// The words of the uniform buffer.
    pub(crate) words: SmallVec<[u32; 32]>,
    /// The number of workgroups along x and y.
    pub(crate) workgroups: [u32; 2],
}

impl Prepared {
    /// Whether a tensor has several parts.
    pub(crate) fn is_split(&self) -> bool {
        self.parts.iter().any(|parts| *parts > 1)
    }
}

/// A bound range of the memory of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The number of the argument.
    pub(crate) argument: usize,
    /// The first byte.
    pub(crate) offset: u64,
    /// The number of bytes.
    pub(crate) bytes: u64,
}

/// Checks the arguments against the entry point, and lays them out. `size` returns the bytes of a block of memory.
///
/// # Errors
/// When the arguments do not match the entry point's parameters, or exceed the limits of the device.
pub(crate) fn prepare<M>(
    bounds: &Bounds,
    entry: &Entry,
    grid: Grid,
    arguments: &[Argument<M>],
    size: impl Fn(&M) -> usize,
) -> Result<Prepared> {
    let refused =
        |problem: String| Error::device(&bounds.name, format!("kernel `{}`: {problem}", entry.name));
    if arguments.len() != entry.parameters.len() {
        let (given, wanted) = (arguments.len(), entry.parameters.len());
        return Err(refused(format!("{given} arguments for {wanted} parameters")));
    }
    if grid.threads != entry.threads {
        return Err(refused(format!("{} threads per block, but it has {}", grid.threads, entry.threads)));
    }
    let mut prepared = Prepared {
        bindings: SmallVec::new(),
        parts: SmallVec::new(),
        words: SmallVec::new(),
        workgroups: workgroups(grid.blocks, bounds.workgroups)
            .ok_or_else(|| refused(format!("{} blocks are more than the device can launch", grid.blocks)))?,
    };
    prepared.words.push(grid.blocks as u32);
    let mut numbers: SmallVec<[u32; 32]> = SmallVec::new();
    for (place, (parameter, argument)) in entry.parameters.iter().zip(arguments).enumerate() {
        match (parameter, argument) {
            (EntryParameter::Tensor { dtype, .. }, Argument::Pointer(at)) => {
                let (window, first) =
                    bind(bounds, place, at, size(&at.memory), dtype.size()).map_err(refused)?;
                prepared.bindings.extend(window.ranges().map(|range| Binding {
                    argument: place,
                    offset: range.start as u64,
                    bytes: range.len() as u64,
                }));
                prepared.parts.push(window.parts());
                prepared.words.push(first);
            }
            (EntryParameter::Word(dtype), Argument::Word(word)) => {
                numbers.push(half(word, 0));
                if dtype.size() == 8 {
                    numbers.push(half(word, 4));
                }
            }
            (EntryParameter::Index, Argument::Word(word)) => numbers.push(half(word, 0)),
            (EntryParameter::Tensor { .. }, Argument::Word(_)) => {
                return Err(refused(format!("parameter {place} is a tensor, but its argument is a number")));
            }
            (EntryParameter::Word(_) | EntryParameter::Index, Argument::Pointer(_)) => {
                return Err(refused(format!("parameter {place} is a number, but its argument is a tensor")));
            }
        }
    }
    check_sharing(entry, arguments).map_err(refused)?;
    prepared.words.extend(numbers);
    Ok(prepared)
}

/// Checks the limits that depend on the sizes of a launch's tensors: an index of WGSL has 32 bits, and a kernel has few
/// bindings.
/// `size` returns the bytes of a block of memory, and `most` is the maximum number of bindings.
///
/// # Errors
/// When the tensors are too large for the kernel.
pub(crate) fn check<M>(
    bounds: &Bounds,
    most: usize,
    entry: &Entry,
    arguments: &[Argument<M>],
    size: impl Fn(&M) -> usize,
) -> Result<()> {
    let refused = |problem: String| {
        let problem = format!("kernel `{}`: {problem}", entry.name);
        Err(Error::unsupported(&bounds.name, problem).hint("run the op on slices of the tensors"))
    };
    let (mut needed, mut bytes) = (0, SmallVec::<[usize; 8]>::new());
    for (parameter, argument) in entry.parameters.iter().zip(arguments) {
        match (parameter, argument) {
            (EntryParameter::Index, Argument::Word(word)) => {
                let number = i64::from_le_bytes(*word);
                if i32::try_from(number).is_err() {
                    return refused(format!("a length or stride of {number} elements exceeds 32 bits"));
                }
            }
            (EntryParameter::Tensor { .. }, Argument::Pointer(at)) => {
                let window = Window::of(at, size(&at.memory), bounds.binding_bytes);
                needed += window.parts();
                bytes.push(window.len());
            }
            (EntryParameter::Word(_) | EntryParameter::Index | EntryParameter::Tensor { .. }, _) => {}
        }
    }
    if needed > most {
        let limit = bounds.binding_bytes;
        return refused(format!(
            "tensors of {bytes:?} bytes need {needed} bindings of up to {limit} bytes, and a kernel has at most {most}"
        ));
    }
    Ok(())
}

/// The number of words of an entry point's uniform buffer.
pub(crate) fn count_words(entry: &Entry) -> usize {
    let words = entry.parameters.iter().map(|parameter| match parameter {
        EntryParameter::Word(dtype) if dtype.size() == 8 => 2,
        EntryParameter::Tensor { .. } | EntryParameter::Word(_) | EntryParameter::Index => 1,
    });
    1 + words.sum::<usize>()
}

/// The number of workgroups along x and y, for at least that many blocks; `None` if there are too many.
fn workgroups(blocks: usize, limit: usize) -> Option<[u32; 2]> {
    let rows = blocks.div_ceil(limit).max(1);
    let columns = blocks.div_ceil(rows).max(1);
    (rows <= limit).then_some([columns as u32, rows as u32])
}

/// The window to bind for a tensor, and the index of its first element in it. If the block fits a binding, it is the whole
/// block: elements at negative strides are before the first.
fn bind<M>(
    bounds: &Bounds,
    argument: usize,
    at: &DevicePtr<M>,
    size: usize,
    element: usize,
) -> core::result::Result<(Window, u32), String> {
    let offset = at.offset;
    if offset >= size {
        return Err(format!("argument {argument} starts at byte {offset} of a block of {size} bytes"));
    }
    if !offset.is_multiple_of(element) {
        return Err(format!(
            "argument {argument} starts at byte {offset}, not at a multiple of {element} bytes"
        ));
    }
    let window = Window::of(at, size, bounds.binding_bytes);
    let first = (offset - window.start()) / element;
    Ok((window, first as u32))
}

/// Checks that no block of memory is bound both read-only and written. wgpu compares whole buffers rather than ranges: a
/// dispatch may use a buffer in several bindings that all read, or in several that are all declared `read_write`.
/// Browsers also refuse overlapping ranges of the latter.
fn check_sharing<M>(entry: &Entry, arguments: &[Argument<M>]) -> core::result::Result<(), String> {
    let tensors: SmallVec<[(usize, &Arc<M>, bool); 8]> = entry
        .parameters
        .iter()
        .zip(arguments)
        .enumerate()
        .filter_map(|(place, pair)| match pair {
            (EntryParameter::Tensor { is_written, .. }, Argument::Pointer(at)) => {
                Some((place, &at.memory, *is_written))
            }
            (EntryParameter::Tensor { .. } | EntryParameter::Word(_) | EntryParameter::Index, _) => None,
        })
        .collect();
    for (number, (place, memory, is_written)) in tensors.iter().enumerate() {
        for (other, other_memory, other_is_written) in &tensors[..number] {
            let clashes = is_written != other_is_written || (*is_written && cfg!(target_arch = "wasm32"));
            if clashes && Arc::ptr_eq(memory, other_memory) {
                return Err(format!(
                    "arguments {other} and {place} are in one buffer, and the kernel writes only to one of them; WebGPU \
                     needs both declared `read_write`, or one parameter for both"
                ));
            }
        }
    }
    Ok(())
}

fn half(word: &[u8; 8], start: usize) -> u32 {
    u32::from_ne_bytes([word[start], word[start + 1], word[start + 2], word[start + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_gpu::driver::Reach;
    use kiln_ir::DType;

    fn bounds() -> Bounds {
        Bounds {
            name: "wgpu".into(),
            storage_alignment: 256,
            uniform_alignment: 256,
            binding_bytes: 4096,
            workgroups: 100,
        }
    }

    fn entry(parameters: &[EntryParameter]) -> Entry {
        Entry { name: "kernel".into(), threads: 64, parameters: parameters.to_vec(), is_guarded: false }
    }

    fn tensor(dtype: DType, is_written: bool) -> EntryParameter {
        EntryParameter::Tensor { dtype, is_written }
    }

    /// A pointer into memory, which is its size in bytes.
    fn pointer(memory: &Arc<usize>, offset: usize) -> Argument<usize> {
        Argument::Pointer(DevicePtr::new(memory.clone(), offset))
    }

    fn word(low: u32, high: u32) -> Argument<usize> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&low.to_ne_bytes());
        bytes[4..].copy_from_slice(&high.to_ne_bytes());
        Argument::Word(bytes)
    }

    fn prepared(entry: &Entry, blocks: usize, arguments: &[Argument<usize>]) -> Result<Prepared> {
        prepare(&bounds(), entry, Grid { blocks, threads: 64 }, arguments, |size| *size)
    }

    #[test]
    fn lengths_beyond_32_bits_and_too_many_bindings_are_errors() {
        let entry = entry(&[tensor(DType::F32, false), EntryParameter::Index]);
        let (small, large) = (Arc::new(4096), Arc::new(4 * 4096));
        let length = |length: i64| Argument::Word(length.to_le_bytes());
        let checked =
            |memory, number| check(&bounds(), 3, &entry, &[pointer(memory, 0), length(number)], |size| *size);
        assert_eq!(checked(&small, i64::from(i32::MAX)), Ok(()));
        assert_eq!(checked(&small, -7), Ok(()));
        let error = checked(&small, 1 << 31).unwrap_err().to_string();
        assert!(error.contains("a length or stride of 2147483648 elements exceeds 32 bits"), "{error}");
        let error = checked(&large, 1).unwrap_err().to_string();
        assert!(error.contains("tensors of [16384] bytes need 4 bindings of up to 4096 bytes"), "{error}");
    }

    #[test]
    fn words_follow_the_calling_convention() {
        let parameters = [
            EntryParameter::Index,
            tensor(DType::F32, false),
            EntryParameter::Word(DType::I64),
            tensor(DType::U8, true),
        ];
        let (x, y) = (Arc::new(1024), Arc::new(2048));
        let arguments = [word(5, 9), pointer(&x, 264), word(1, 2), pointer(&y, 3)];
        let entry = entry(&parameters);
        let launch = prepared(&entry, 10, &arguments).unwrap();
        assert_eq!(launch.words[..], [10, 66, 3, 5, 1, 2]);
        assert_eq!(launch.words.len(), count_words(&entry));
        let bindings = [
            Binding { argument: 1, offset: 0, bytes: 1024 },
            Binding { argument: 3, offset: 0, bytes: 2048 },
        ];
        assert_eq!(launch.bindings[..], bindings);
        assert!(!launch.is_split());
        assert_eq!(launch.workgroups, [10, 1]);
    }

    #[test]
    fn a_tensor_over_the_limit_is_bound_in_parts() {
        let (x, y) = (Arc::new(10_240), Arc::new(8192));
        let entry = entry(&[tensor(DType::F32, false), tensor(DType::U8, true)]);
        let slice = DevicePtr { reach: Reach::of(5000..6000), ..DevicePtr::new(y.clone(), 5000) };
        let launch = prepared(&entry, 1, &[pointer(&x, 8), Argument::Pointer(slice)]).unwrap();
        let binding = |argument, offset, bytes| Binding { argument, offset, bytes };
        let bindings =
            [binding(0, 0, 4096), binding(0, 4096, 4096), binding(0, 8192, 2048), binding(1, 4864, 1280)];
        assert_eq!(launch.bindings[..], bindings);
        assert_eq!((launch.words[..].to_vec(), launch.parts[..].to_vec()), (vec![1, 2, 136], vec![3, 1]));
        assert!(launch.is_split());
    }

    #[test]
    fn many_blocks_are_spread_over_two_dimensions() {
        assert_eq!(workgroups(1, 100), Some([1, 1]));
        assert_eq!(workgroups(100, 100), Some([100, 1]));
        assert_eq!(workgroups(101, 100), Some([51, 2]));
        assert_eq!(workgroups(10_000, 100), Some([100, 100]));
        assert_eq!(workgroups(10_001, 100), None);
    }

    #[test]
    fn arguments_that_do_not_match_are_errors_that_name_the_kernel() {
        let memory = Arc::new(1024);
        let one = entry(&[tensor(DType::F32, true)]);
        let number = entry(&[EntryParameter::Index]);
        let cases = [
            (prepared(&one, 1, &[]), "0 arguments for 1 parameters"),
            (prepared(&one, 1, &[word(0, 0)]), "parameter 0 is a tensor"),
            (prepared(&number, 1, &[pointer(&memory, 0)]), "parameter 0 is a number"),
            (prepared(&one, 1, &[pointer(&memory, 6)]), "not at a multiple of 4 bytes"),
            (prepared(&one, 1, &[pointer(&memory, 1024)]), "starts at byte 1024 of a block of 1024"),
            (prepared(&one, 100_000, &[pointer(&memory, 0)]), "100000 blocks"),
        ];
        for (found, part) in cases {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("`kernel`"), "{error}");
        }
        let threads =
            prepare(&bounds(), &number, Grid { blocks: 1, threads: 32 }, &[word(0, 0)], |size| *size);
        assert!(threads.unwrap_err().to_string().contains("32 threads per block"));
    }

    #[test]
    fn a_buffer_is_either_read_or_written_by_a_launch() {
        let memory = Arc::new(1024);
        let arguments = [pointer(&memory, 0), pointer(&memory, 512)];
        let mixed = entry(&[tensor(DType::F32, false), tensor(DType::F32, true)]);
        let error = prepared(&mixed, 1, &arguments).unwrap_err().to_string();
        assert!(error.contains("arguments 0 and 1 are in one buffer"), "{error}");
        let read = entry(&[tensor(DType::F32, false), tensor(DType::F32, false)]);
        assert!(prepared(&read, 1, &arguments).is_ok());
        let written = entry(&[tensor(DType::F32, true), tensor(DType::F32, true)]);
        assert!(prepared(&written, 1, &arguments).is_ok());
    }
}
