//! The backend and its device.

use super::connection;
use super::engine::{RemoteEngine, Statistics};
use kiln_ir::{CacheStrategy, Error, FxHasher, MemoryConfig, Result};
use kiln_tensor::{Backend, DType, DeviceKey, Stack};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The backend of a device on another machine, which a `Server` serves.
///
/// Ops are sent in batches, and run there as on a local device, fused. Only reading a tensor waits. Add gradients as to any
/// backend: `Autodiff<RemoteBackend>`. If the server cannot be reached or is lost, tensors carry the error until one is
/// read; [`RemoteDevice::open`] returns it at once.
///
/// ```
/// use kiln_remote::{RemoteBackend, RemoteDevice};
/// use kiln_tensor::Tensor;
///
/// // Nobody listens there.
/// let device = RemoteDevice::new("ws://127.0.0.1:1");
/// let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
/// let error = (x * 2).try_into_data().unwrap_err();
/// assert!(error.to_string().contains("ws://127.0.0.1:1"), "{error}");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBackend;

/// The address of a server, with the credentials for it.
///
/// The default is the first of `KILN_REMOTE` in the environment, or `ws://127.0.0.1:3000`. Devices of one address and one token are
/// one session: their tensors may be operands of one op. The session begins with the first use of a device, and ends with the last
/// tensor and the last device, clones included; the server then frees everything.
#[derive(Clone)]
pub struct RemoteDevice {
    url: String,
    token: Option<String>,
    roots: Option<PathBuf>,
    session: Hold,
}

/// Keeps the session of a device and its clones open, with its stream of random keys, while no tensor does. `None` in
/// [without_session](RemoteDevice::without_session) devices.
#[derive(Clone, Default)]
struct Hold(Option<Arc<Mutex<Option<Stack>>>>);

impl RemoteDevice {
    /// Returns the device at an address: `ws://host:3000`, or `wss://host:3000` for TLS. It is opened on first use. The
    /// token is that of `KILN_TOKEN` in the environment, if there is one.
    pub fn new(url: impl Into<String>) -> RemoteDevice {
        let token = kiln_ir::setting("KILN_TOKEN", "a token", |text| Some(text.to_string()));
        RemoteDevice { url: url.into(), token, roots: None, session: Hold::new() }
    }

    /// Returns the device, with the token that its server asks for.
    #[must_use]
    pub fn with_token(self, token: impl Into<String>) -> RemoteDevice {
        RemoteDevice { token: Some(token.into()), session: Hold::new(), ..self }
    }

    /// Returns the device, where TLS trusts the certificates in this file (PEM) in place of the usual ones. For servers
    /// with a certificate of their own.
    #[must_use]
    pub fn with_root_certificates(self, path: impl Into<PathBuf>) -> RemoteDevice {
        RemoteDevice { roots: Some(path.into()), session: Hold::new(), ..self }
    }

    /// Connects now.
    ///
    /// # Errors
    /// When the address is invalid, nobody answers, or the server refuses; the error names the address.
    pub fn open(&self) -> Result<()> {
        self.lost().map_or(Ok(()), Err)
    }

    /// Returns the error with which the server was lost, if it was.
    pub fn lost(&self) -> Option<Error> {
        RemoteBackend::stack(self).find::<RemoteEngine>()?.lost()
    }

    /// Returns the traffic of the session so far.
    pub fn statistics(&self) -> Statistics {
        RemoteBackend::stack(self).find::<RemoteEngine>().map(RemoteEngine::statistics).unwrap_or_default()
    }

    /// Returns the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "read where there is TLS"))]
    pub(super) fn root_certificates(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    /// The device without a hold on a session: for the session's own parts.
    pub(super) fn without_session(&self) -> RemoteDevice {
        RemoteDevice { session: Hold::default(), ..self.clone() }
    }

    /// All that tells devices apart.
    fn parts(&self) -> (&str, Option<&str>, Option<&Path>) {
        (&self.url, self.token.as_deref(), self.roots.as_deref())
    }

    /// The address, and a number for all else in which devices differ.
    fn key(&self) -> DeviceKey {
        if self.token.is_none() && self.roots.is_none() {
            return DeviceKey::Url(self.url.clone());
        }
        let mut hasher = FxHasher::default();
        self.parts().hash(&mut hasher);
        DeviceKey::Url(format!("{}#{:016x}", self.url, hasher.finish()))
    }
}

impl Hold {
    fn new() -> Hold {
        Hold(Some(Arc::default()))
    }

    /// Keeps this session, in place of the one before. Not a lost one: the next use then connects again.
    fn keep(&self, stack: &Stack) {
        self.replace(Some(stack).filter(|stack| !is_lost(stack)).cloned());
    }

    /// Lets a lost session go.
    fn release_lost(&self) {
        let Some(session) = &self.0 else { return };
        if session.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_lost) {
            self.replace(None);
        }
    }

    fn replace(&self, stack: Option<Stack>) {
        let Some(session) = &self.0 else { return };
        // The end of a session waits for the server, so it is outside the lock.
        let before = std::mem::replace(&mut *session.lock().unwrap_or_else(PoisonError::into_inner), stack);
        drop(before);
    }
}

fn is_lost(stack: &Stack) -> bool {
    stack.find::<RemoteEngine>().is_some_and(|engine| engine.lost().is_some())
}

impl PartialEq for RemoteDevice {
    fn eq(&self, other: &RemoteDevice) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for RemoteDevice {}

impl Hash for RemoteDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl RemoteEngine {
    /// Returns an engine with a session of its own at a server. Ops that the server does not run need
    /// [`Expand`](kiln_ir::Expand) around it, as every stack has.
    ///
    /// # Errors
    /// Those of [`RemoteDevice::open`].
    pub fn connect(device: &RemoteDevice) -> Result<RemoteEngine> {
        connection::open(device).map(|(engine, _)| engine)
    }
}

impl Default for RemoteDevice {
    fn default() -> RemoteDevice {
        let first = |text: &str| text.split(',').next().map(|url| url.trim().to_string());
        let url = kiln_ir::setting("KILN_REMOTE", "an address such as `ws://host:3000`", first);
        RemoteDevice::new(url.unwrap_or_else(|| "ws://127.0.0.1:3000".into()))
    }
}

/// Without the token.
impl fmt::Debug for RemoteDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteDevice({})", self.url)
    }
}

impl Backend for RemoteBackend {
    type Device = RemoteDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &RemoteDevice) -> Stack {
        let open = || {
            let (engine, dtypes) = match connection::open(device) {
                Ok((engine, offer)) => (engine, offer.default_dtypes),
                Err(error) => (RemoteEngine::unreachable(error), [DType::F32, DType::I32]),
            };
            Stack::of_device(Arc::new(engine), device.without_session(), &device.url, dtypes[0], dtypes[1])
        };
        device.session.release_lost();
        let stack = Stack::opened::<RemoteBackend>(device.key(), open);
        device.session.keep(&stack);
        stack
    }

    /// Limits the bytes of the session's tensors, within the quota of the server. Other sessions are unaffected.
    ///
    /// # Errors
    /// For another cache strategy than the automatic one, which is the server's; when the server was lost, or its device does
    /// not track memory.
    fn configure_memory(device: &RemoteDevice, config: MemoryConfig) -> Result<()> {
        device.open()?;
        let stack = RemoteBackend::stack(device);
        if config.cache != CacheStrategy::Automatic {
            let problem = format!("{:?} is a cache strategy for all clients of {}", config.cache, device.url);
            return Err(
                Error::unsupported("remote", problem).hint("leave it automatic, or set it on the server")
            );
        }
        let untracked =
            || Error::unsupported("remote", format!("the device of {} does not track memory", device.url));
        stack.memory().ok_or_else(untracked)?.configure(config);
        Ok(())
    }
}
