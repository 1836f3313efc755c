//! Conversion of CUDA library errors to engine errors.

use crate::dnn::Refusal;
use cudarc::cublaslt::result::CublasError;
use cudarc::cudnn::result::CudnnError;
use cudarc::cufft::result::CufftError;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::result::NvrtcError;
use kiln_ir::Error;

/// An error code of a CUDA library.
pub(crate) trait Failure {
    fn describe(&self, what: &str) -> (String, Option<&'static str>);

    /// The error of the operation `what` on a device.
    fn on(&self, device: &str, what: &str) -> Error {
        let (problem, hint) = self.describe(what);
        let error = Error::device(device, problem);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl Failure for DriverError {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        if self.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let hint = "free tensors, reduce the batch size, or end other programs on the device";
            return (format!("out of memory: {what} failed"), Some(hint));
        }
        let said = self.error_string().ok().map(|text| text.to_string_lossy().into_owned());
        (format!("{what} failed: {} ({:?})", said.unwrap_or_default(), self.0), None)
    }
}

impl Failure for NvrtcError {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        (format!("{what} failed: {:?}", self.0), None)
    }
}

impl Failure for CublasError {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        (format!("{what} failed: {:?}", self.0), None)
    }
}

impl Failure for CudnnError {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        (format!("{what} failed: {:?}", self.0), None)
    }
}

impl Failure for CufftError {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        (format!("{what} failed: {:?}", self.0), None)
    }
}

impl Failure for Refusal {
    fn describe(&self, what: &str) -> (String, Option<&'static str>) {
        (format!("{what} failed: {}", self.0), None)
    }
}
