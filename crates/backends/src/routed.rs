//! Several backends as one.
//!
//! [`Router`] is the backend, [`duo::MultiDevice`] and its companions are its devices.

use crate::device::{Device, DeviceInfo, Driver};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use kiln_router::{Member, Router as Engine, Statistics, TransferPolicy};
use kiln_tensor::{Backend, DeviceKey, MemoryConfig, MemoryUse, Result, Stack};

/// Several backends as one: tensors on devices of all of them are operands of one op. `T` is a tuple of 1 to 8 backends.
///
/// A tensor is on the device that it was made for, or moved to by `to_device`. Ops run there. Operands on several devices
/// meet as the [`TransferPolicy`] says, by default on the device with most of their bytes; the result stays where it was
/// computed, and [`Tensor::device`](kiln_tensor::Tensor::device) says where that is. The dtypes of new tensors are those of
/// the first backend. [Automatic differentiation](kiln_tensor::Autodiff) goes around the router: the gradient of a parameter
/// is on the parameter's device.
///
/// The type of devices is an enum with a variant for each backend: [`duo::MultiDevice`] for two, [`trio::MultiDevice`] for
/// three, and so on. The default is the default device of the first backend.
///
/// ```
/// use kiln_backends::router::duo::MultiDevice;
/// use kiln_backends::{Cpu, CpuDevice, Flex, FlexDevice, Router};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Router<(Flex, Cpu)>>;
/// let (first, second) = (MultiDevice::B1(FlexDevice), MultiDevice::B2(CpuDevice));
/// let weight = Tensor::<B, 1>::from_floats([1.0, 2.0], &first).require_grad();
/// let x = Tensor::<B, 1>::from_floats([3.0, 4.0], &second);
///
/// // Explicit moves and ops on both devices: gradients follow.
/// let y = weight.clone().to_device(&second).exp() + x * weight.clone();
/// let gradient = weight.grad(&y.sum().backward()).unwrap();
/// assert_eq!(gradient.device(), first);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Router<T>(PhantomData<T>);

impl<T> Router<T>
where
    Router<T>: Backend,
{
    /// Returns the transfers and ops so far, of all tensors of this backend in the process.
    pub fn statistics() -> Statistics {
        with_engine::<Router<T>, _>(Engine::statistics)
    }

    /// Sets all counts to 0.
    pub fn reset_statistics() {
        with_engine::<Router<T>, _>(Engine::reset_statistics);
    }

    /// Returns when operands are transferred automatically. Default: [`TransferPolicy::MoveSmaller`].
    pub fn transfer_policy() -> TransferPolicy {
        with_engine::<Router<T>, _>(Engine::policy)
    }

    /// Sets when operands are transferred automatically, from now on, for all tensors of this backend in the process.
    ///
    /// ```
    /// use kiln_backends::router::{TransferPolicy, duo::MultiDevice};
    /// use kiln_backends::{Flex, FlexDevice, NdArray, NdArrayDevice, Router};
    /// use kiln_tensor::Tensor;
    ///
    /// type B = Router<(Flex, NdArray)>;
    /// B::set_transfer_policy(TransferPolicy::Explicit);
    /// let x = Tensor::<B, 1>::from_floats([1.0], &MultiDevice::B1(FlexDevice));
    /// let y = Tensor::<B, 1>::from_floats([1.0], &MultiDevice::B2(NdArrayDevice::Cpu));
    /// let error = (x.clone() + y.clone()).try_into_data().unwrap_err().to_string();
    /// assert!(error.contains("several devices"), "{error}");
    /// assert_eq!((x.clone() + y.to_device(&x.device())).into_scalar::<f32>(), 2.0);
    /// ```
    pub fn set_transfer_policy(policy: TransferPolicy) {
        with_engine::<Router<T>, _>(|engine| engine.set_policy(policy));
    }
}

fn with_engine<R: Backend, T>(f: impl FnOnce(&Engine) -> T) -> T {
    let stack = R::stack(&R::Device::default());
    f(stack.find::<Engine>().expect("the stack of a router has its engine"))
}

/// The stack under which the members of one router are opened. `R` is the type of its backend.
struct Base<R>(PhantomData<R>);

/// Opens a member that is in reserve.
type Open = Box<dyn Fn() -> Member + Send + Sync>;

/// Opens the default device of a backend.
type OpenStack = fn() -> Stack;

/// A stack of the router `R` for a device whose own stack is `member`. `reserve` has the default device of each backend, the
/// first of which is a member from the beginning.
fn routed<R: 'static>(
    device: impl kiln_tensor::DeviceValue,
    member: &Stack,
    reserve: fn() -> Vec<OpenStack>,
) -> Stack {
    let base = Stack::opened::<Base<R>>(DeviceKey::Index(0), || {
        let reserve = reserve();
        let first = reserve[0]();
        let open = reserve.into_iter().skip(1).map(|open| Box::new(move || member_of(&open())) as Open);
        let engine = Engine::new([member_of(&first)]).with_reserve(open);
        Stack::of_device(Arc::new(engine), (), "router", first.float_dtype(), first.int_dtype())
    });
    let engine = base.find::<Engine>().expect("the stack of a router has its engine");
    let number = engine.add(member_of(member));
    let open = || base.with_numbered_device(device, &name_of(member), number);
    Stack::opened::<R>(DeviceKey::Index(number as u64), open)
}

fn member_of(stack: &Stack) -> Member {
    Member::new(format!("{stack:?}"), stack.shared_engine())
}

fn name_of(member: &Stack) -> alloc::string::String {
    format!("router:{}", member.device_name())
}

/// Devices of one router over the devices given, in their order.
pub(crate) fn over<const N: usize>(devices: &[Device; N]) -> [Device; N] {
    let stacks = devices.each_ref().map(|device| -> &Stack { device.as_ref() });
    let Some(first) = stacks.first() else { return devices.clone() };
    let engine = Engine::new([member_of(first)]);
    let numbers = stacks.map(|stack| engine.add(member_of(stack)));
    let (float, int) = (first.float_dtype(), first.int_dtype());
    let base = Stack::of_device(Arc::new(engine), (), "router", float, int);
    let mut numbers = numbers.into_iter();
    stacks.map(|stack| {
        let number = numbers.next().unwrap_or_default();
        Device::from(base.with_numbered_device(number, &name_of(stack), number))
    })
}

/// The kind `router`: the CPU and all GPUs of this machine.
pub(crate) const DRIVER: Driver = Driver { open: of_machine, list: || Ok(list()) };

/// The members of the machine's router.
fn members() -> Vec<Device> {
    #[allow(unused_mut, reason = "GPUs are a feature")]
    let mut members = vec![Device::cpu()];
    #[cfg(feature = "cuda")]
    members.extend((0..crate::CudaDevice::count()).map(Device::cuda));
    members
}

fn list() -> Vec<DeviceInfo> {
    let info = |(index, member): (usize, Device)| DeviceInfo::new("router", index, name_of(member.as_ref()));
    members().into_iter().enumerate().map(info).collect()
}

/// Device number `index` of the machine's router.
fn of_machine(index: usize) -> Result<Device> {
    let members = members();
    let Some(member) = members.get(index) else {
        let problem = format!("there is no device {index} in the router over {members:?}");
        let hint = "number 0 is the CPU, GPUs follow";
        return Err(kiln_tensor::Error::device("router", problem).hint(hint));
    };
    struct OfMachine;
    let reserve = || vec![default_stack::<crate::Cpu> as OpenStack];
    Ok(Device::from(routed::<OfMachine>(index, member.as_ref(), reserve)))
}

macro_rules! routers {
    ($($(#[$doc:meta])* $module:ident: $first:ident $($member:ident)*;)*) => {$(
        $(#[$doc])*
        pub mod $module {
            use super::*;

            /// A device of one of the backends of a [`Router`].
            pub enum MultiDevice<$first: Backend, $($member: Backend),*> {
                #[doc = concat!("A device of `", stringify!($first), "`.")]
                $first($first::Device),
                $(
                    #[doc = concat!("A device of `", stringify!($member), "`.")]
                    $member($member::Device),
                )*
            }

            impl<$first: Backend, $($member: Backend),*> Clone for MultiDevice<$first, $($member),*> {
                fn clone(&self) -> Self {
                    match self {
                        MultiDevice::$first(device) => MultiDevice::$first(device.clone()),
                        $(MultiDevice::$member(device) => MultiDevice::$member(device.clone()),)*
                    }
                }
            }

            impl<$first: Backend, $($member: Backend),*> PartialEq for MultiDevice<$first, $($member),*> {
                fn eq(&self, other: &Self) -> bool {
                    match (self, other) {
                        (MultiDevice::$first(a), MultiDevice::$first(b)) => a == b,
                        $((MultiDevice::$member(a), MultiDevice::$member(b)) => a == b,)*
                        #[allow(unreachable_patterns, reason = "a router of one backend has one variant")]
                        _ => false,
                    }
                }
            }

            impl<$first: Backend, $($member: Backend),*> Default for MultiDevice<$first, $($member),*> {
                fn default() -> Self {
                    MultiDevice::$first(Default::default())
                }
            }

            impl<$first: Backend, $($member: Backend),*> fmt::Debug for MultiDevice<$first, $($member),*> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    match self {
                        MultiDevice::$first(device) => {
                            f.debug_tuple(stringify!($first)).field(device).finish()
                        }
                        $(MultiDevice::$member(device) => {
                            f.debug_tuple(stringify!($member)).field(device).finish()
                        })*
                    }
                }
            }

            impl<$first: Backend, $($member: Backend),*> MultiDevice<$first, $($member),*> {
                /// The stack of the backend itself.
                fn member(&self) -> Stack {
                    match self {
                        MultiDevice::$first(device) => $first::stack(device),
                        $(MultiDevice::$member(device) => $member::stack(device),)*
                    }
                }
            }

            impl<$first: Backend, $($member: Backend),*> Backend for Router<($first, $($member,)*)> {
                type Device = MultiDevice<$first, $($member),*>;
                type FloatElem = $first::FloatElem;
                type IntElem = $first::IntElem;
                type BoolElem = $first::BoolElem;

                fn stack(device: &Self::Device) -> Stack {
                    let reserve =
                        || vec![default_stack::<$first> as OpenStack, $(default_stack::<$member>),*];
                    routed::<Self>(device.clone(), &device.member(), reserve)
                }

                fn memory(device: &Self::Device) -> Option<MemoryUse> {
                    match device {
                        MultiDevice::$first(device) => $first::memory(device),
                        $(MultiDevice::$member(device) => $member::memory(device),)*
                    }
                }

                fn configure_memory(device: &Self::Device, config: MemoryConfig) -> Result<()> {
                    match device {
                        MultiDevice::$first(device) => $first::configure_memory(device, config),
                        $(MultiDevice::$member(device) => $member::configure_memory(device, config),)*
                    }
                }

                fn memory_cleanup(device: &Self::Device) {
                    match device {
                        MultiDevice::$first(device) => $first::memory_cleanup(device),
                        $(MultiDevice::$member(device) => $member::memory_cleanup(device),)*
                    }
                }

                fn reset_peak_memory(device: &Self::Device) {
                    match device {
                        MultiDevice::$first(device) => $first::reset_peak_memory(device),
                        $(MultiDevice::$member(device) => $member::reset_peak_memory(device),)*
                    }
                }
            }
        }
    )*};
}

fn default_stack<B: Backend>() -> Stack {
    B::stack(&Default::default())
}

routers! {
    /// Devices of a router over one backend, of which it may use several devices.
    solo: B1;
    /// Devices of a router over two backends.
    duo: B1 B2;
    /// Devices of a router over three backends.
    trio: B1 B2 B3;
    /// Devices of a router over four backends.
    quad: B1 B2 B3 B4;
    /// Devices of a router over five backends.
    quint: B1 B2 B3 B4 B5;
    /// Devices of a router over six backends.
    sext: B1 B2 B3 B4 B5 B6;
    /// Devices of a router over seven backends.
    sept: B1 B2 B3 B4 B5 B6 B7;
    /// Devices of a router over eight backends.
    oct: B1 B2 B3 B4 B5 B6 B7 B8;
}
