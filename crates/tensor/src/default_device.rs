//! The thread's default device, for calls without a device argument.

#[cfg(feature = "std")]
pub use scope::with_device;

/// Returns the default device of this thread, which calls without a device argument use, such as
/// `Tensor::from([1.0, 2.0])`. It is the device of the innermost [`with_device`] scope with a device of this type,
/// otherwise `D::default()`.
///
/// ```
/// use kiln_backends::{Cpu, Device};
/// use kiln_tensor::{Tensor, default_device};
///
/// let x = Tensor::<Cpu, 2>::zeros([2, 3], &default_device());
/// assert_eq!(x.device(), default_device());
/// assert_eq!(default_device::<Device>(), Device::cpu());
/// ```
///
/// Without the crate feature `std` it is always `D::default()`.
pub fn default_device<D: Clone + Default + 'static>() -> D {
    #[cfg(feature = "std")]
    if let Some(device) = scope::current::<D>() {
        return device;
    }
    D::default()
}

#[cfg(feature = "std")]
mod scope {
    use crate::DeviceValue;
    use std::any::Any;
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::vec::Vec;

    std::thread_local! {
        /// The devices of the scopes that this thread is in, outermost first.
        static SCOPES: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs `f` with another [default device](crate::default_device) in this thread, for all backends with this device
    /// type. Scopes nest; the previous default is restored when `f` returns or panics. Other threads are not affected.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_tensor::{Tensor, with_device};
    ///
    /// let x = with_device(&Device::flex(), || Tensor::<Dyn, 1>::from([1.0, 2.0]));
    /// assert_eq!(x.device(), Device::flex());
    /// assert_eq!(Tensor::<Dyn, 1>::from([1.0, 2.0]).device(), Device::cpu());
    /// ```
    #[doc(alias = "set_default_device")]
    #[doc(alias = "default_device")]
    pub fn with_device<D: DeviceValue, R>(device: &D, f: impl FnOnce() -> R) -> R {
        let device = Box::new(device.clone());
        SCOPES.with_borrow_mut(|scopes| scopes.push(device));
        let _scope = ScopeGuard;
        f()
    }

    /// Ends the innermost scope when dropped.
    struct ScopeGuard;

    impl Drop for ScopeGuard {
        fn drop(&mut self) {
            // The device is dropped after the borrow ends: dropping a device may run code that reads the default.
            let ended = SCOPES.with_borrow_mut(Vec::pop);
            drop(ended);
        }
    }

    /// Returns the device of the innermost scope of this type.
    pub(super) fn current<D: Clone + 'static>() -> Option<D> {
        let innermost = |scopes: &RefCell<Vec<Box<dyn Any>>>| {
            scopes.borrow().iter().rev().find_map(|device| device.downcast_ref::<D>()).cloned()
        };
        // A thread that ends has no scope any more.
        SCOPES.try_with(innermost).ok().flatten()
    }
}
