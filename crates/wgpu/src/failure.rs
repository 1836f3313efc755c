//! Failures of a device: errors of calls, and the loss of the device.

use kiln_ir::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// The failure of a device after which its memory is undefined: it was lost, or queued work was refused. Every later
/// call returns it.
pub(crate) struct Failure {
    name: String,
    first: Mutex<Option<Error>>,
}

impl Failure {
    pub(crate) fn new(name: &str) -> Arc<Failure> {
        Arc::new(Failure { name: name.to_owned(), first: Mutex::default() })
    }

    /// # Errors
    /// When the device failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Keeps the error for later calls, unless there is an earlier one, and returns the kept one.
    pub(crate) fn keep(&self, error: Error) -> Error {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error).clone()
    }

    /// Keeps the loss of the device.
    pub(crate) fn lost(&self, reason: &str) -> Error {
        let hint =
            "restart the program; a driver resets a device after a kernel that ran too long or a fault";
        self.keep(Error::device(&self.name, format!("the device was lost: {reason}")).hint(hint))
    }

    /// The error of the operation `what`.
    pub(crate) fn error(&self, what: &str, error: &wgpu::Error) -> Error {
        match error {
            wgpu::Error::OutOfMemory { .. } => self.out_of_memory(what),
            wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => {
                Error::device(&self.name, format!("{what} failed: {error}"))
            }
        }
    }

    pub(crate) fn out_of_memory(&self, what: &str) -> Error {
        let hint = "free tensors, reduce the batch size, or end other programs on the device";
        Error::device(&self.name, format!("out of memory: {what} failed")).hint(hint)
    }

    /// Calls `body` and converts the error that wgpu reports for it.
    ///
    /// # Errors
    /// When wgpu reports an error. It does not report the loss of the device; see [`is_lost`]. In a browser, errors arrive
    /// later: see [`watch`].
    pub(crate) fn done<T>(&self, device: &wgpu::Device, what: &str, body: impl FnOnce() -> T) -> Result<T> {
        match scoped(device, body) {
            (done, None) => Ok(done),
            (_, Some(error)) => Err(match is_refused(&error) && is_lost(device) {
                true => self.lost(&format!("{what} failed: {error}")),
                false => self.error(what, &error),
            }),
        }
    }
}

fn is_refused(error: &wgpu::Error) -> bool {
    match error {
        wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => true,
        wgpu::Error::OutOfMemory { .. } => false,
    }
}

/// Whether the device is lost. No error scope reports that, and only the program knows the callback of a device that it
/// opened: calls return invalid objects, and later calls refuse these. A mapped buffer tells if it is invalid.
fn is_lost(device: &wgpu::Device) -> bool {
    let described = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    };
    let (buffer, error) = scoped(device, || device.create_buffer(&described));
    error.is_none() && buffer.get_mapped_range(..).is_err()
}

/// Keeps errors that no scope catches, and the loss of the device. By default, wgpu panics on such errors.
pub(crate) fn watch(device: &wgpu::Device, failure: &Arc<Failure>) {
    let kept = failure.clone();
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let _ = kept.keep(kept.error("a queued operation", &error));
    }));
    let kept = failure.clone();
    device.set_device_lost_callback(move |reason, message| {
        let _ = kept.lost(&format!("{message} ({reason:?})"));
    });
}

/// Calls `body` and returns the first error that wgpu reports for it.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn scoped<T>(device: &wgpu::Device, body: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    let scopes = [Validation, OutOfMemory, Internal].map(|filter| device.push_error_scope(filter));
    let done = body();
    let mut found = None;
    for scope in scopes.into_iter().rev() {
        let error = kiln_ir::block_on(scope.pop());
        found = found.or(error);
    }
    (done, found)
}

/// Calls `body`. A browser reports errors asynchronously, to the handler of uncaught errors.
#[cfg(target_arch = "wasm32")]
pub(crate) fn scoped<T>(_: &wgpu::Device, body: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
    (body(), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::find;
    use crate::{Api, Wgpu, WgpuOptions};
    use kiln_gpu::driver::{DevicePtr, Driver};
    use kiln_ir::block_on;

    /// A device of the test alone, unless this machine has no adapter.
    fn opened() -> Option<Wgpu> {
        match block_on(find(Api::Auto)) {
            Ok(found) => Some(block_on(crate::open(&found[0], &WgpuOptions::default())).unwrap()),
            Err(error) => {
                println!("skipped: no adapter: {error}");
                None
            }
        }
    }

    #[test]
    fn a_refused_submission_is_the_error_of_every_later_call() {
        let Some(engine) = opened() else { return };
        let driver = engine.driver();
        let at = DevicePtr::new(Arc::new(driver.allocate(64).unwrap()), 0);
        driver.fill(&at, 64, 0).unwrap();
        // The recorded fill is not valid any more.
        at.memory.0.destroy();
        let error = block_on(driver.synchronize()).unwrap_err();
        assert!(error.to_string().contains("submitting work failed"), "{error}");
        assert_eq!(block_on(driver.synchronize()), Err(error.clone()));
        assert_eq!(block_on(driver.read(&at, 4)), Err(error.clone()));
        assert_eq!(driver.flush(), Err(error.clone()));
        assert_eq!(driver.write(&at, &[1; 64]), Err(error.clone()));
        assert_eq!(driver.fill(&at, 64, 0), Err(error.clone()));
        assert_eq!(driver.fill(&at, 64, 1), Err(error.clone()));
        assert_eq!(driver.allocate(64).err(), Some(error));
    }

    #[test]
    fn the_first_failure_is_returned_by_every_later_call() {
        let failure = Failure::new("vulkan:cpu");
        assert_eq!(failure.check(), Ok(()));
        let first = failure.lost("the driver reset it");
        assert!(first.to_string().starts_with("[vulkan:cpu] the device was lost: the driver reset it"));
        assert_eq!(failure.keep(Error::device("vulkan:cpu", "something else")), first);
        assert_eq!(failure.check(), Err(first));
    }

    #[test]
    fn an_exhausted_memory_is_an_error_of_that_kind() {
        assert!(Failure::new("vulkan:cpu").out_of_memory("allocating 8 bytes").is_out_of_memory());
    }
}
