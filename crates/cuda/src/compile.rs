//! Kernel compilation by NVRTC.

use crate::failure::Failure;
use cudarc::nvrtc::{result, sys};
use kiln_ir::{Error, Result};
use std::ffi::{CString, c_char};

/// An NVRTC program; freed on drop.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made by `create_program` and is freed once.
        let freed = unsafe { result::destroy_program(self.0) };
        debug_assert!(freed.is_ok(), "[cuda] {freed:?}");
    }
}

/// The version of the compiler.
pub(crate) fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are written before the call returns.
    let asked = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    if asked == sys::nvrtcResult::NVRTC_SUCCESS { (major, minor) } else { (0, 0) }
}

/// The first version with `--minimal`, which omits declarations that our kernels do not use: textures, the runtime's
/// functions, dynamic parallelism. Parsing them takes longer than compiling most kernels.
const KNOWS_MINIMAL: (i32, i32) = (12, 4);

/// Compiles a source to machine code for an architecture such as `sm_90`.
///
/// Multiply-add is not contracted to `fma` (`--fmad=false`): products are rounded as by the separate ops, so that two
/// kernels compute bitwise equal values. Sources call `fma` explicitly where they need it.
pub(crate) fn compile(source: &str, architecture: &str, device: &str) -> Result<Vec<u8>> {
    let text =
        CString::new(source).map_err(|_| Error::device(device, "a kernel's source contains a zero byte"))?;
    let failed = |error: result::NvrtcError| error.on(device, "compiling a kernel");
    let program = Program(result::create_program(&text, None).map_err(failed)?);
    let mut options = vec![
        format!("--gpu-architecture={architecture}"),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
    ];
    if version() >= KNOWS_MINIMAL {
        options.push("--minimal".to_owned());
    }
    // SAFETY: the program is alive, and so is its source.
    if let Err(error) = unsafe { result::compile_program(program.0, &options) } {
        return Err(Error::device(
            device,
            format!("a kernel does not compile ({:?}):\n{}\n{source}", error.0, log(&program)),
        ));
    }
    binary(&program).map_err(failed)
}

fn binary(program: &Program) -> core::result::Result<Vec<u8>, result::NvrtcError> {
    let mut len = 0;
    // SAFETY: the program is alive and compiled.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &mut len).result()? };
    let mut bytes = vec![0u8; len];
    // SAFETY: there is room for the number of bytes that the compiler returned.
    unsafe { sys::nvrtcGetCUBIN(program.0, bytes.as_mut_ptr().cast::<c_char>()).result()? };
    Ok(bytes)
}

/// The compiler's log.
fn log(program: &Program) -> String {
    // SAFETY: the program is alive, and was compiled.
    let said = unsafe { result::get_program_log(program.0) };
    let bytes: Vec<u8> =
        said.unwrap_or_default().into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
