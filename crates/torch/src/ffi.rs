//! The shim over LibTorch, opened at run time: the one module with unsafe code.
//!
//! The functions are those of `shim/shim.cpp`. A [`Tensor`] owns a handle, which the shim counts as one reference.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use kiln_ir::{Error, Result};
use libloading::Library;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The version of the interface, as `KILN_ABI` in the shim.
const ABI: i32 = 1;

/// More axes than any tensor of Kiln has.
const MAX_AXES: usize = 64;

/// The name of the engine in errors that concern every device.
pub(crate) const ENGINE: &str = "libtorch";

/// The lines to run where LibTorch is missing.
const INSTALL: &str = "run `apt-get install libtorch-dev` or `pip install torch`, or set `LIBTORCH` to the folder of one; then \
                       `cargo clean -p kiln-torch` and build again";

/// The reason that LibTorch gives for a failed call.
#[derive(Debug)]
pub struct Failure(pub(crate) String);

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An argument of an op, as `KilnArgument` in the shim.
#[repr(C)]
struct RawArgument {
    tag: i32,
    unused: i32,
    integer: i64,
    real: f64,
    pointer: *const c_void,
}

/// An argument of an op.
#[derive(Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// An optional argument that is left out.
    None,
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number, or one that stands for a dtype or a memory format.
    Int(i64),
    /// A number.
    Real(f64),
    /// A flag.
    Bool(bool),
    /// Lengths or axes.
    Ints(&'a [i64]),
    /// Flags.
    Bools(&'a [bool]),
    /// Tensors.
    Tensors(&'a [Tensor]),
    /// A name.
    Text(&'a str),
}

impl Argument<'_> {
    fn raw(self) -> RawArgument {
        let none = core::ptr::null();
        let raw = |tag, integer, real, pointer| RawArgument { tag, unused: 0, integer, real, pointer };
        match self {
            Argument::None => raw(0, 0, 0.0, none),
            Argument::Tensor(tensor) => raw(1, 0, 0.0, tensor.0.as_ptr()),
            Argument::Int(number) => raw(2, number, 0.0, none),
            Argument::Real(number) => raw(3, 0, number, none),
            Argument::Bool(flag) => raw(4, i64::from(flag), 0.0, none),
            Argument::Ints(list) => raw(5, list.len() as i64, 0.0, list.as_ptr().cast()),
            Argument::Bools(list) => raw(6, list.len() as i64, 0.0, list.as_ptr().cast()),
            Argument::Tensors(list) => raw(7, list.len() as i64, 0.0, list.as_ptr().cast()),
            Argument::Text(text) => raw(8, text.len() as i64, 0.0, text.as_ptr().cast()),
        }
    }
}

/// A device of LibTorch: its type, as `c10::DeviceType` numbers them, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: i32,
    pub(crate) index: i32,
}

impl Place {
    /// Whether the elements are in host memory.
    pub(crate) fn is_processor(self) -> bool {
        self.kind == 0
    }
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?, $symbol:literal;)*) => {
        /// The functions of the shim.
        struct Functions { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// The library is the shim of this version of the crate.
            unsafe fn of(library: &Library) -> core::result::Result<Functions, libloading::Error> {
                // SAFETY: the types are those of the definitions in the shim.
                unsafe { Ok(Functions { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    version: fn() -> *const c_char, c"kiln_torch_version";
    error: fn() -> *const c_char, c"kiln_torch_error";
    configure: fn() -> i32, c"kiln_torch_configure";
    threads: fn() -> i32, c"kiln_torch_threads";
    devices: fn(i32) -> i32, c"kiln_torch_devices";
    synchronize: fn(i32, i32) -> i32, c"kiln_torch_synchronize";
    write: fn(*const c_void, usize, *const i64, usize, i32, i32, i32) -> *mut c_void, c"kiln_torch_write";
    read: fn(*const c_void, *mut c_void, usize) -> i32, c"kiln_torch_read";
    dtype: fn(*const c_void) -> i32, c"kiln_torch_dtype";
    lengths: fn(*const c_void, *mut i64, usize) -> i64, c"kiln_torch_lengths";
    share: fn(*const c_void) -> *mut c_void, c"kiln_torch_share";
    free: fn(*mut c_void), c"kiln_torch_free";
    call: fn(*const c_char, *const RawArgument, usize, *mut *mut c_void, i64) -> i64, c"kiln_torch_call";
}

impl Functions {
    /// The reason why the last call of this thread failed.
    fn failure(&self) -> Failure {
        // SAFETY: the shim returns a string that ends with 0, which stays until this thread calls it again.
        let text = unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned();
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        Failure(first.trim().to_owned())
    }

    fn done(&self, status: i32) -> core::result::Result<i32, Failure> {
        if status < 0 { Err(self.failure()) } else { Ok(status) }
    }
}

/// The shim, opened once for the process and never closed: LibTorch's own threads run code of it.
fn functions() -> Result<&'static Functions> {
    static OPENED: OnceLock<Result<Functions>> = OnceLock::new();
    OPENED.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// The functions, where a tensor or an earlier call proves that the shim is open.
fn opened() -> &'static Functions {
    functions().expect("the shim stays open")
}

fn open() -> Result<Functions> {
    let missing = env!("KILN_TORCH_MISSING");
    let places = places();
    let Some(path) = places.iter().find(|place| place.is_file()) else {
        if !missing.is_empty() {
            let problem = format!("this program was built without LibTorch: {missing}");
            return Err(Error::device(ENGINE, problem).hint(INSTALL));
        }
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let problem = format!("the shim over LibTorch is missing: looked for {}", looked.join(", "));
        return Err(Error::device(ENGINE, problem)
            .hint("put it beside the program, or set `KILN_TORCH_SHIM` to the file that the build made"));
    };
    load(path).map_err(|reason| {
        let problem = format!("{} does not open: {reason}", path.display());
        Error::device(ENGINE, problem).hint(INSTALL)
    })
}

fn load(path: &Path) -> core::result::Result<Functions, String> {
    // SAFETY: the file is the shim by its name or by the user's word; its initialisers are those of LibTorch.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    // SAFETY: the function has this type in every version of the shim.
    let abi = unsafe { library.get::<unsafe extern "C" fn() -> i32>(c"kiln_torch_abi").map(|abi| abi()) };
    match abi {
        Ok(ABI) => {}
        Ok(other) => return Err(format!("it is of another version of Kiln (interface {other}, not {ABI})")),
        Err(_) => return Err("it is no shim of Kiln".into()),
    }
    // SAFETY: the number of the interface is that of this file.
    let functions = unsafe { Functions::of(&library) }.map_err(|error| error.to_string())?;
    core::mem::forget(library);
    // SAFETY: it takes no arguments.
    functions.done(unsafe { (functions.configure)() }).map_err(|failure| failure.0)?;
    Ok(functions)
}

/// The files to try as the shim: the user's, one beside the program, the one that the build made.
fn places() -> Vec<PathBuf> {
    let built = Some(env!("KILN_TORCH_SHIM")).filter(|path| !path.is_empty()).map(PathBuf::from);
    let name = format!("{}kiln_torch{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(name)));
    let named = std::env::var_os("KILN_TORCH_SHIM").map(PathBuf::from);
    [named, beside, built].into_iter().flatten().collect()
}

/// The version of LibTorch's headers, such as `1.13.1`.
pub(crate) fn version() -> Result<String> {
    let functions = functions()?;
    // SAFETY: the shim returns a constant that ends with 0.
    Ok(unsafe { CStr::from_ptr((functions.version)()) }.to_string_lossy().into_owned())
}

/// The threads of an op on the processor.
pub(crate) fn threads() -> usize {
    // SAFETY: it takes no arguments.
    usize::try_from(unsafe { (opened().threads)() }).unwrap_or(1).max(1)
}

/// The number of devices of a type.
pub(crate) fn devices(kind: i32) -> Result<usize> {
    let functions = functions()?;
    // SAFETY: every number is allowed.
    Ok(usize::try_from(unsafe { (functions.devices)(kind) }).unwrap_or(0))
}

/// Waits for the work of a device.
pub(crate) fn synchronize(place: Place) -> core::result::Result<(), Failure> {
    let functions = opened();
    // SAFETY: every number is allowed.
    functions.done(unsafe { (functions.synchronize)(place.kind, place.index) }).map(|_| ())
}

/// A tensor of LibTorch.
#[repr(transparent)]
pub struct Tensor(NonNull<c_void>);

// SAFETY: a handle is a counted reference, counted atomically, to a tensor that the engine never changes once it is shared.
unsafe impl Send for Tensor {}
// SAFETY: see `Send`; ops on a tensor only read it.
unsafe impl Sync for Tensor {}

impl Clone for Tensor {
    /// Another reference to the same elements.
    fn clone(&self) -> Tensor {
        // SAFETY: the handle is alive.
        let handle = unsafe { (opened().share)(self.0.as_ptr()) };
        Tensor(NonNull::new(handle).expect("[libtorch] no memory for a handle"))
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the handle is alive, and nothing uses it afterwards.
        unsafe { (opened().free)(self.0.as_ptr()) }
    }
}

impl Tensor {
    /// A tensor on a device with these elements, of one of LibTorch's dtypes.
    pub(crate) fn write(
        bytes: &[u8],
        lengths: &[i64],
        dtype: i32,
        place: Place,
    ) -> core::result::Result<Tensor, Failure> {
        let functions = opened();
        let (start, rank) = (bytes.as_ptr().cast(), lengths.len());
        // SAFETY: both slices are alive during the call, which reads them within their lengths.
        let handle = unsafe {
            (functions.write)(start, bytes.len(), lengths.as_ptr(), rank, dtype, place.kind, place.index)
        };
        NonNull::new(handle).map(Tensor).ok_or_else(|| functions.failure())
    }

    /// Copies the elements, in row-major order, to exactly so many bytes.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> core::result::Result<(), Failure> {
        let functions = opened();
        // SAFETY: the shim writes no more than the length of the slice.
        let status = unsafe { (functions.read)(self.0.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
        functions.done(status).map(|_| ())
    }

    /// The dtype, as LibTorch numbers them.
    pub(crate) fn dtype(&self) -> i32 {
        // SAFETY: the handle is alive.
        unsafe { (opened().dtype)(self.0.as_ptr()) }
    }

    /// The lengths.
    pub(crate) fn lengths(&self) -> Vec<i64> {
        let mut lengths = [0; MAX_AXES];
        // SAFETY: the handle is alive, and the shim writes no more than the length of the array.
        let rank = unsafe { (opened().lengths)(self.0.as_ptr(), lengths.as_mut_ptr(), MAX_AXES) };
        lengths[..usize::try_from(rank).unwrap_or(0).min(MAX_AXES)].to_vec()
    }
}

/// Calls an op of PyTorch's schema by `name` or `name.overload`, which has `N` results. Arguments that are left out at the end take their
/// defaults.
pub(crate) fn call<const N: usize>(
    op: &CStr,
    arguments: &[Argument<'_>],
) -> core::result::Result<[Tensor; N], Failure> {
    let functions = opened();
    let raw: Vec<RawArgument> = arguments.iter().map(|argument| argument.raw()).collect();
    let mut handles = [core::ptr::null_mut(); N];
    // SAFETY: the arguments hold handles and lists that are alive during the call; `handles` has room for `N` results.
    let count =
        unsafe { (functions.call)(op.as_ptr(), raw.as_ptr(), raw.len(), handles.as_mut_ptr(), N as i64) };
    let name = op.to_string_lossy();
    if count < 0 {
        return Err(Failure(format!("{name}: {}", functions.failure())));
    }
    let tensors: Vec<Tensor> = handles.into_iter().filter_map(NonNull::new).map(Tensor).collect();
    tensors.try_into().map_err(|_| Failure(format!("{name}: {count} results instead of {N}")))
}
