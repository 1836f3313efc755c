//! The cache of compiled kernels, by source, in memory and on disk.

use crate::bundle::{Bundle, entry_points};
use crate::disk;
use crate::driver::Driver;
use crate::native::NativeKey;
use kiln_ir::{Error, FxBuildHasher, Result};
use kiln_kernel::print::{Dialect, Entry};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A kernel that is compiled once: the first caller compiles, other threads wait for the result.
type Slot<F> = Arc<OnceLock<Result<Arc<F>>>>;

/// Kernels by source and entry point.
type Loaded<F> = HashMap<(Arc<str>, Cow<'static, str>), Slot<F>, FxBuildHasher>;

/// The text of a module and its entry points.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) text: Arc<str>,
    pub(crate) entries: Vec<Entry>,
}

/// An entry point of hand-written C++, whose arguments are not checked.
pub(crate) fn unchecked(name: impl Into<Cow<'static, str>>) -> Entry {
    Entry { name: name.into(), threads: 0, parameters: Vec::new(), is_guarded: false }
}

/// The maximum number of sources compiled together, which amortizes the compiler's startup.
const TOGETHER: usize = 16;

/// Hand-written kernels by key.
type Natives<F> = HashMap<NativeKey, Arc<F>, FxBuildHasher>;

/// The kernel cache of one device.
pub(crate) struct Kernels<D: Driver> {
    driver: Arc<D>,
    loaded: Mutex<Loaded<D::Function>>,
    natives: Mutex<Natives<D::Function>>,
    preparing: Preparing,
    disk: Option<Disk>,
    compiled: AtomicU64,
}

impl<D: Driver> Kernels<D> {
    pub(crate) fn new(driver: Arc<D>) -> Kernels<D> {
        let info = driver.info();
        let disk = info.keeps_binaries.then(|| Disk::open(&info.target)).flatten();
        Kernels {
            driver,
            loaded: Mutex::default(),
            natives: Mutex::default(),
            preparing: Preparing::default(),
            disk,
            compiled: AtomicU64::new(0),
        }
    }

    /// Returns an entry point of a source, by number, compiled on a cache miss.
    ///
    /// # Errors
    /// When the source does not compile.
    pub(crate) fn function(&self, source: &Source, number: usize) -> Result<Arc<D::Function>> {
        let entry = &source.entries[number];
        let slot = self.slot(&source.text, entry.name.clone());
        if slot.get().is_none() {
            self.preparing.wait(&source.text);
        }
        slot.get_or_init(|| self.make(&source.text, entry).map(Arc::new)).clone()
    }

    /// Returns the entry point of a hand-written source, which is only generated on a cache miss.
    ///
    /// # Errors
    /// When the source does not compile.
    pub(crate) fn native(
        &self,
        known: NativeKey,
        source: impl FnOnce(&NativeKey) -> String,
    ) -> Result<Arc<D::Function>> {
        let natives = || self.natives.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = natives().get(&known) {
            return Ok(function.clone());
        }
        let source = Source { text: source(&known).into(), entries: vec![unchecked(known.entry)] };
        let function = self.function(&source, 0)?;
        natives().insert(known, function.clone());
        Ok(function)
    }

    /// Compiles sources ahead of their first use, several per translation unit. Cached sources are skipped. Sources
    /// that do not compile are left to their first use, which reports the error. Nothing is stored on disk.
    pub(crate) fn prepare(&self, sources: &[Arc<str>]) {
        // WGSL has no namespaces to put sources into one module.
        if self.driver.info().language.dialect == Dialect::Wgsl {
            return;
        }
        let claims = sources.iter().filter_map(|source| self.preparing.claim(source));
        let claims: Vec<Claim<'_>> = claims.filter(|claim| !self.is_known(&claim.source)).collect();
        let mut claims = claims.into_iter().peekable();
        while claims.peek().is_some() {
            let together: Vec<Claim<'_>> = claims.by_ref().take(TOGETHER).collect();
            let sources: Vec<Arc<str>> = together.iter().map(|claim| claim.source.clone()).collect();
            let bundle = Bundle::of(&sources);
            if let Ok(binary) = self.driver.compile(&bundle.text) {
                self.compiled.fetch_add(sources.len() as u64, Ordering::Relaxed);
                self.fill(&sources, &bundle, &binary);
            }
        }
    }

    fn is_known(&self, source: &Arc<str>) -> bool {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys =
            entry_points(source).into_iter().map(|entry| (source.clone(), entry.to_owned().into()));
        let is_loaded = keys.any(|key| loaded.contains_key(&key));
        drop(loaded);
        is_loaded || self.disk.as_ref().is_some_and(|disk| disk.find(source).is_some())
    }

    /// Fills the slots of sources from a bundle's binary.
    fn fill(&self, sources: &[Arc<str>], bundle: &Bundle, binary: &[u8]) {
        let here = bundle.entries.iter().flatten().map(|(_, here)| unchecked(here.clone()));
        let here: Vec<Entry> = here.collect();
        let Ok(functions) = self.driver.load(binary, &here.iter().collect::<Vec<_>>()) else { return };
        let of_source = |(source, entries)| core::iter::repeat(source).zip(entries);
        let places = sources.iter().zip(&bundle.entries).flat_map(of_source);
        for ((source, (entry, _)), function) in places.zip(functions) {
            if let Some(function) = function {
                // The slot may have been requested before it was claimed.
                let _ = self.slot(source, entry.clone().into()).set(Ok(Arc::new(function)));
            }
        }
    }

    fn slot(&self, source: &Arc<str>, entry: Cow<'static, str>) -> Slot<D::Function> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.entry((source.clone(), entry)).or_default().clone()
    }

    /// The number of compiled sources, without those found on disk.
    pub(crate) fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    fn make(&self, source: &str, entry: &Entry) -> Result<D::Function> {
        if let Some(binary) = self.disk.as_ref().and_then(|disk| disk.find(source))
            && let Ok(function) = self.load(&binary, entry)
        {
            return Ok(function);
        }
        let binary = self.driver.compile(source)?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let function = self.load(&binary, entry)?;
        if let Some(disk) = &self.disk {
            disk.keep(source, &binary);
        }
        Ok(function)
    }
}

impl<D: Driver> Kernels<D> {
    fn load(&self, binary: &[u8], entry: &Entry) -> Result<D::Function> {
        self.driver.load(binary, &[entry])?.pop().flatten().ok_or_else(|| {
            let problem = format!("a compiled kernel lacks its entry point `{}`", entry.name);
            Error::device(&self.driver.info().name, problem)
        })
    }
}

/// Sources that some thread compiles in a bundle. Other threads that need one wait.
#[derive(Default)]
struct Preparing {
    sources: Mutex<HashSet<Arc<str>>>,
    ended: Condvar,
}

/// Marks a source as being prepared, until dropped.
struct Claim<'a> {
    preparing: &'a Preparing,
    source: Arc<str>,
}

impl Preparing {
    /// Claims a source; `None` if another thread compiles it already.
    fn claim(&self, source: &Arc<str>) -> Option<Claim<'_>> {
        let is_new = self.lock().insert(source.clone());
        is_new.then(|| Claim { preparing: self, source: source.clone() })
    }

    fn wait(&self, source: &str) {
        let sources = self.lock();
        let waited = self.ended.wait_while(sources, |sources| sources.contains(source));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.preparing.lock().remove(&self.source);
        self.preparing.ended.notify_all();
    }
}

/// The disk cache: binaries in files, each with its source, so that hash collisions are detected.
struct Disk {
    folder: PathBuf,
}

/// Longer files are ignored: the cache does not write such files.
const LONGEST: u64 = 64 << 20;

impl Disk {
    /// Opens the [folder](disk::folder) for a target; `None` if nothing is cached.
    fn open(target: &str) -> Option<Disk> {
        disk::folder("kernels", target).map(|folder| Disk { folder })
    }

    fn path(&self, source: &str) -> PathBuf {
        self.folder.join(format!("{:016x}", disk::hash(source)))
    }

    fn find(&self, source: &str) -> Option<Vec<u8>> {
        let bytes = disk::read(&self.path(source), LONGEST)?;
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let (source_len, binary_len) = (word(&head[..8])?, word(&head[8..])?);
        let whole = source_len.checked_add(binary_len)? == rest.len();
        let (kept, binary) = rest.split_at_checked(source_len)?;
        (whole && kept == source.as_bytes()).then(|| binary.to_vec())
    }

    /// Stores a binary. A failure, such as a full disk, only means that the kernel is compiled again next time.
    fn keep(&self, source: &str, binary: &[u8]) {
        // A compiler that only records sources returns an empty binary.
        if binary.is_empty() {
            return;
        }
        let lengths = [source.len(), binary.len()].map(|length| (length as u64).to_le_bytes());
        let parts = [&lengths[0][..], &lengths[1], source.as_bytes(), binary];
        let _ = disk::replace(&self.path(source), &parts);
    }
}

fn word(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceInfo, DryDriver};
    use std::fs;

    fn disk(name: &str) -> Disk {
        let folder = std::env::temp_dir().join(format!("kiln-kernels-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Disk { folder }
    }

    /// Sources with two entry points, and with one.
    const SOURCES: [&str; 2] =
        ["__global__ void f() {} __global__ void g() {}", "extern \"C\" __global__ void f(int x) {}"];

    /// A kernel cache without a disk, and the counter of its compilations.
    fn kernels(
        compile: impl Fn(&str) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> (Kernels<DryDriver>, Arc<AtomicU64>) {
        let calls = Arc::new(AtomicU64::new(0));
        let info = DeviceInfo {
            name: "dry:0".to_owned(),
            model: "nothing".to_owned(),
            target: "nothing".to_owned(),
            memory: 1 << 30,
            multiprocessors: 1,
            ..DeviceInfo::absent("")
        };
        let count = calls.clone();
        let driver = DryDriver::new(info, move |source| {
            count.fetch_add(1, Ordering::Relaxed);
            compile(source)
        });
        let kernels = Kernels {
            driver: Arc::new(driver),
            loaded: Mutex::default(),
            natives: Mutex::default(),
            preparing: Preparing::default(),
            disk: None,
            compiled: AtomicU64::new(0),
        };
        (kernels, calls)
    }

    fn function(kernels: &Kernels<DryDriver>, text: &Arc<str>, entry: &'static str) {
        let source = Source { text: text.clone(), entries: vec![unchecked(entry)] };
        kernels.function(&source, 0).unwrap();
    }

    #[test]
    fn prepared_kernels_are_not_recompiled() {
        let (kernels, calls) = kernels(|_| Ok(vec![1]));
        let sources = SOURCES.map(Arc::<str>::from);
        kernels.prepare(&[sources[0].clone(), sources[1].clone(), sources[0].clone()]);
        kernels.prepare(&sources);
        for (source, entry) in [(0, "f"), (0, "g"), (1, "f")] {
            function(&kernels, &sources[source], entry);
        }
        assert_eq!((calls.load(Ordering::Relaxed), kernels.compiled()), (1, 2));
    }

    #[test]
    fn kernels_found_on_disk_do_not_count_as_compiled() {
        let folder = disk("counted").folder;
        let source = Arc::<str>::from(SOURCES[0]);
        for expected in [1, 0] {
            let (made, calls) = kernels(|_| Ok(vec![1]));
            let kernels = Kernels { disk: Some(Disk { folder: folder.clone() }), ..made };
            function(&kernels, &source, "f");
            assert_eq!((calls.load(Ordering::Relaxed), kernels.compiled()), (expected, expected));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sources_that_fail_in_a_batch_are_compiled_alone() {
        let error = || Error::unsupported("dry", "namespaces");
        let (kernels, calls) =
            kernels(move |source| if source.contains("namespace") { Err(error()) } else { Ok(vec![1]) });
        let sources = SOURCES.map(Arc::<str>::from);
        kernels.prepare(&sources);
        function(&kernels, &sources[1], "f");
        assert_eq!((calls.load(Ordering::Relaxed), kernels.compiled()), (2, 1));
    }

    #[test]
    fn a_function_under_compilation_is_waited_for() {
        let (begun, begins) = std::sync::mpsc::channel();
        let begun = Mutex::new(begun);
        let (kernels, calls) = kernels(move |_| {
            begun.lock().unwrap().send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            Ok(vec![1])
        });
        let sources = SOURCES.map(Arc::<str>::from);
        std::thread::scope(|scope| {
            scope.spawn(|| kernels.prepare(&sources));
            begins.recv().unwrap();
            function(&kernels, &sources[1], "f");
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn binaries_are_cached_by_full_source() {
        let disk = disk("found");
        disk.keep("one", &[1, 2, 3]);
        assert_eq!(disk.find("one"), Some(vec![1, 2, 3]));
        assert_eq!(disk.find("two"), None);
        disk.keep("two", &[]);
        assert_eq!(disk.find("two"), None);
        // Simulates a hash collision.
        fs::rename(disk.path("one"), disk.path("two")).unwrap();
        assert_eq!(disk.find("two"), None);
        fs::remove_dir_all(&disk.folder).unwrap();
    }

    #[test]
    fn damaged_cache_files_are_ignored() {
        let disk = disk("damaged");
        disk.keep("source", &[7; 100]);
        let whole = fs::read(disk.path("source")).unwrap();
        for cut in 0..whole.len() {
            fs::write(disk.path("source"), &whole[..cut]).unwrap();
            assert_eq!(disk.find("source"), None, "cut at {cut}");
        }
        for at in 0..16 {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            fs::write(disk.path("source"), &bytes).unwrap();
            assert_eq!(disk.find("source"), None, "changed at {at}");
        }
        fs::remove_dir_all(&disk.folder).unwrap();
    }
}
