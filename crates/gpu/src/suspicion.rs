//! Deferred bounds checks: a kernel reports an index out of range by a flag on the device; reading a value checks its flags.
//!
//! A kernel that checks an index has a flag, one word of memory. Flags are stored in pages, so that a value refers to
//! all its flags by a few bits, whatever the number of kernels before it. A read copies the value and the flags in one
//! submission, after all earlier work. All values drop a page without set flags, and the page is reused.

use crate::Gpu;
use crate::driver::{Argument, DevicePtr, Driver, Step};
use crate::memory::Block;
use kiln_ir::{BoxFuture, Error, IndexUser, Result, Shape};
use kiln_kernel::Check;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The error of a set word: an index that is out of range for an axis.
#[derive(Clone)]
pub(crate) enum Wrong {
    /// A check of a fused kernel.
    Fused(Arc<Check>),
    /// A check of a native kernel. The word encodes a point of the index tensor, which has this shape.
    Native { op: &'static str, axis: usize, length: usize, indices: Shape },
    /// A check of an index that a user's function passed; the error names that function.
    User { user: IndexUser, length: usize, indices: Shape },
}

impl Wrong {
    /// The error that a word encodes, as kernels write it: see
    /// [`GpuArgument::Failed`](kiln_kernel::print::GpuArgument::Failed).
    fn error(&self, word: u64) -> Error {
        let point = (u32::MAX - (word >> 32) as u32) as usize;
        let index = match word as u32 as i32 {
            i32::MAX => format!("{} or more", i32::MAX),
            i32::MIN => format!("{} or less", i32::MIN),
            index => index.to_string(),
        };
        match self {
            Wrong::Fused(check) => {
                Error::index_out_of_range(check.op, index, &check.position(point), check.axis, check.length)
            }
            Wrong::Native { op, axis, length, indices } => {
                Error::index_out_of_range(op, index, &position(indices, point), *axis, *length)
            }
            Wrong::User { user, length, indices } => {
                user.out_of_range(Some((&index, &position(indices, point))), *length)
            }
        }
    }
}

/// The row-major coordinates of a point in a tensor of that shape.
fn position(shape: &Shape, point: usize) -> Shape {
    let (mut position, mut rest) = (*shape, point);
    for axis in (0..shape.rank()).rev() {
        position[axis] = rest % shape[axis].max(1);
        rest /= shape[axis].max(1);
    }
    position
}

/// Words per page.
pub(crate) const WORDS: usize = 512;

/// Bytes per word.
const BYTES: usize = 8;

/// A deferred bounds-check flag: a word that a kernel sets when an index is out of range.
pub(crate) struct Suspicion<D: Driver> {
    page: Arc<Page<D>>,
    word: usize,
}

/// A block of words that are initially 0.
struct Page<D: Driver> {
    block: Arc<Block<D>>,
    /// The error of each word if it is set.
    errors: Mutex<Vec<Wrong>>,
    /// Whether all kernels that may set its words have run without setting one.
    is_clean: AtomicBool,
}

/// The flags of all kernels that led to a value. They are shared, since few values add a flag to those of their
/// operands.
pub(crate) struct Suspicions<D: Driver>(Option<Arc<Vec<Marks<D>>>>);

/// A subset of the words of a page.
struct Marks<D: Driver> {
    page: Arc<Page<D>>,
    words: [u64; WORDS / 64],
}

/// The pages of an engine.
pub(crate) struct Pages<D: Driver> {
    state: Mutex<State<D>>,
    /// Op calls that have not returned: their kernels may not be queued yet.
    running: AtomicUsize,
}

struct State<D: Driver> {
    /// The page that new words are allocated from.
    current: Option<Arc<Page<D>>>,
    /// Full pages that have not been checked.
    full: Vec<Weak<Page<D>>>,
}

/// An op that is being executed.
pub(crate) struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Driver> Default for Pages<D> {
    fn default() -> Self {
        let state = Mutex::new(State { current: None, full: Vec::new() });
        Pages { state, running: AtomicUsize::new(0) }
    }
}

impl<D: Driver> Pages<D> {
    /// Marks an op as being executed until the guard is dropped.
    pub(crate) fn run(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(&self.running)
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Page<D> {
    fn new(block: Arc<Block<D>>) -> Arc<Page<D>> {
        Arc::new(Page { block, errors: Mutex::default(), is_clean: AtomicBool::new(false) })
    }

    fn errors(&self) -> MutexGuard<'_, Vec<Wrong>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_clean(&self) -> bool {
        self.is_clean.load(Ordering::SeqCst)
    }
}

impl<D: Driver> Suspicion<D> {
    /// The device pointer of the word.
    pub(crate) fn at(&self) -> DevicePtr<D::Memory> {
        self.page.block.at(self.word * BYTES)
    }

    /// The device pointer of the word, as an argument.
    pub(crate) fn place(&self) -> Argument<D::Memory> {
        Argument::Pointer(self.at())
    }
}

impl<D: Driver> Clone for Marks<D> {
    fn clone(&self) -> Self {
        Marks { page: self.page.clone(), words: self.words }
    }
}

impl<D: Driver> Clone for Suspicions<D> {
    fn clone(&self) -> Self {
        Suspicions(self.0.clone())
    }
}

impl<D: Driver> Suspicions<D> {
    pub(crate) fn new() -> Self {
        Suspicions(None)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open().next().is_none()
    }

    /// The flags of pages that have not been checked.
    fn open(&self) -> impl Iterator<Item = &Marks<D>> {
        self.0.iter().flat_map(|all| all.iter()).filter(|marks| !marks.page.is_clean())
    }

    /// Pages that may have a set word, each with a bit mask of its words.
    pub(crate) fn places(&self) -> impl Iterator<Item = (DevicePtr<D::Memory>, [u64; WORDS / 64])> {
        self.open().map(|marks| (marks.page.block.at(0), marks.words))
    }

    /// Whether it contains all flags of `other`.
    fn covers(&self, other: &Suspicions<D>) -> bool {
        other.open().all(|theirs| self.open().any(|mine| mine.covers(theirs)))
    }

    /// Adds a flag.
    pub(crate) fn push(&mut self, suspicion: &Suspicion<D>) {
        let mut words = [0; WORDS / 64];
        words[suspicion.word / 64] = 1 << (suspicion.word % 64);
        self.add(core::iter::once(&Marks { page: suspicion.page.clone(), words }));
    }

    /// Adds all flags of another value.
    pub(crate) fn join(&mut self, other: &Suspicions<D>) {
        let is_same =
            self.0.as_ref().zip(other.0.as_ref()).is_some_and(|(mine, theirs)| Arc::ptr_eq(mine, theirs));
        if is_same || self.covers(other) {
            return;
        }
        if other.covers(self) {
            *self = other.clone();
        } else {
            self.add(other.open());
        }
    }

    fn add<'a>(&mut self, more: impl Iterator<Item = &'a Marks<D>>)
    where
        D: 'a,
    {
        let all = Arc::make_mut(self.0.get_or_insert_default());
        all.retain(|marks| !marks.page.is_clean());
        for Marks { page, words } in more {
            match all.iter_mut().find(|marks| Arc::ptr_eq(&marks.page, page)) {
                Some(marks) => marks.words.iter_mut().zip(words).for_each(|(mine, more)| *mine |= more),
                None => all.push(Marks { page: page.clone(), words: *words }),
            }
        }
    }
}

impl<D: Driver> Marks<D> {
    fn covers(&self, other: &Marks<D>) -> bool {
        let words = self.words.iter().zip(&other.words);
        Arc::ptr_eq(&self.page, &other.page)
            && words.fold(0, |left, (mine, theirs)| left | theirs & !mine) == 0
    }
}

impl<D: Driver> Gpu<D> {
    /// Allocates a flag for a kernel, with the error that it reports.
    pub(crate) fn suspicion(&self, wrong: Wrong) -> Result<Suspicion<D>> {
        let mut words = self.consecutive(core::iter::once(wrong))?;
        words.pop().ok_or_else(|| Error::unsupported("gpu", "no flag was allocated"))
    }

    /// Allocates consecutive words, at most a page of them.
    pub(crate) fn consecutive(
        &self,
        wrong: impl ExactSizeIterator<Item = Wrong>,
    ) -> Result<SmallVec<[Suspicion<D>; 1]>> {
        let mut state = self.pages.lock();
        if state.current.as_ref().is_none_or(|page| page.errors().len() + wrong.len() > WORDS) {
            let block = Arc::new(self.block(WORDS * BYTES)?);
            self.queue.push(Step::Fill { to: block.at(0), bytes: WORDS * BYTES, value: 0 })?;
            let full = state.current.replace(Page::new(block));
            state.full.retain(|page| page.strong_count() > 0);
            state.full.extend(full.as_ref().map(Arc::downgrade));
        }
        let page = state.current.clone().ok_or_else(|| Error::unsupported("gpu", "no page was allocated"))?;
        let mut errors = page.errors();
        let first = errors.len();
        errors.extend(wrong);
        let words = first..errors.len();
        drop(errors);
        Ok(words.map(|word| Suspicion { page: page.clone(), word }).collect())
    }

    /// Starts to copy bytes and the flags of their value from the device, in one submission. Without `from` only the flags
    /// are copied. The future returns the bytes, or the first error that the device reported for the flags.
    ///
    /// Words of other values are copied too, so that pages without a set word become clean.
    ///
    /// # Errors
    /// When the device failed, here or in the future.
    pub(crate) fn read_checked(
        &self,
        from: Option<(DevicePtr<D::Memory>, usize)>,
        suspicions: &Suspicions<D>,
    ) -> Result<BoxFuture<'_, Result<Vec<u8>>>> {
        let sweep = self.pages.sweep();
        let own: Vec<Marks<D>> = suspicions.open().cloned().collect();
        let mut pages: Vec<Arc<Page<D>>> = sweep.pages().cloned().collect();
        for Marks { page, .. } in &own {
            if !pages.iter().any(|other| Arc::ptr_eq(other, page)) {
                pages.push(page.clone());
            }
        }
        let has_value = from.is_some();
        let flags = pages.iter().map(|page| (page.block.at(0), WORDS * BYTES));
        let ranges: Vec<_> = from.into_iter().chain(flags).collect();
        if ranges.is_empty() {
            return Ok(Box::pin(core::future::ready(Ok(Vec::new()))));
        }
        let copied = self.queue.read_all(&ranges)?;
        Ok(Box::pin(async move {
            let mut copied = copied.await?.into_iter();
            let bytes = if has_value { copied.next().unwrap_or_default() } else { Vec::new() };
            let seen = Seen(pages.into_iter().zip(copied.map(|bytes| words(&bytes))).collect());
            sweep.end(&seen);
            own.iter().try_for_each(|marks| marks.judge(&seen))?;
            Ok(bytes)
        }))
    }
}

/// The words of pages, as one read found them.
struct Seen<D: Driver>(Vec<(Arc<Page<D>>, Vec<u64>)>);

impl<D: Driver> Seen<D> {
    /// The words of a page that was read.
    fn words(&self, page: &Arc<Page<D>>) -> &[u64] {
        self.0.iter().find(|(read, _)| Arc::ptr_eq(read, page)).map_or(&[], |(_, words)| words)
    }

    fn is_set(&self, page: &Arc<Page<D>>) -> bool {
        self.words(page).iter().any(|word| *word != 0)
    }
}

/// The words in the bytes of a page.
fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<BYTES>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

impl<D: Driver> Marks<D> {
    /// Returns the error of the first set flag.
    fn judge(&self, seen: &Seen<D>) -> Result<()> {
        // Another thread may have marked the page clean meanwhile. Words set since then belong to the page's next use.
        if self.page.is_clean() {
            return Ok(());
        }
        let words = seen.words(&self.page);
        let is_marked = |i: usize| self.words[i / 64] & (1 << (i % 64)) != 0;
        match words.iter().enumerate().find(|(i, word)| **word != 0 && is_marked(*i)) {
            Some((i, word)) => Err(self.page.errors()[i].error(*word)),
            None => Ok(()),
        }
    }
}

/// Pages whose words a read checks for all values. Until it [ends](Sweep::end), no other read checks them so.
struct Sweep<'a, D: Driver> {
    pages: &'a Pages<D>,
    /// The page that words were allocated from.
    current: Option<Arc<Page<D>>>,
    full: Vec<Arc<Page<D>>>,
}

impl<D: Driver> Pages<D> {
    /// Takes all pages with words, if all kernels that may set the words were queued. Meanwhile, words of other threads
    /// are allocated from other pages.
    fn sweep(&self) -> Sweep<'_, D> {
        let mut sweep = Sweep { pages: self, current: None, full: Vec::new() };
        let mut state = self.lock();
        if self.running.load(Ordering::Acquire) == 0 {
            sweep.full = state.full.drain(..).filter_map(|page| page.upgrade()).collect();
            sweep.current = state.current.take_if(|page| !page.errors().is_empty());
        }
        drop(state);
        sweep
    }
}

impl<D: Driver> Sweep<'_, D> {
    fn pages(&self) -> impl Iterator<Item = &Arc<Page<D>>> {
        self.full.iter().chain(&self.current)
    }

    /// Marks pages without a set word as clean. Words are allocated from the last one again, unless an op is running: its
    /// kernel may read the words of the page ([`Op::Recover`](kiln_ir::Op::Recover)), and would find later ones.
    fn end(mut self, seen: &Seen<D>) {
        for page in self.full.drain(..).filter(|page| !seen.is_set(page)) {
            page.is_clean.store(true, Ordering::Release);
        }
        let Some(page) = self.current.take().filter(|page| !seen.is_set(page)) else { return };
        page.is_clean.store(true, Ordering::SeqCst);
        let mut state = self.pages.lock();
        if state.current.is_none() && self.pages.running.load(Ordering::SeqCst) == 0 {
            state.current = Some(Page::new(page.block.clone()));
        }
    }
}

impl<D: Driver> Drop for Sweep<'_, D> {
    /// A later read checks the pages of a read that failed or was dropped.
    fn drop(&mut self) {
        if self.full.is_empty() && self.current.is_none() {
            return;
        }
        let unchecked = self.full.iter().chain(&self.current).map(Arc::downgrade);
        self.pages.lock().full.extend(unchecked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceInfo, DryDriver};
    use kiln_ir::{Engine, TensorData, Value, Var, block_on};

    fn gpu() -> Gpu<DryDriver> {
        let info = DeviceInfo {
            name: "dry".into(),
            model: String::new(),
            target: String::new(),
            memory: 1 << 30,
            multiprocessors: 100,
            ..DeviceInfo::absent("")
        };
        Gpu::new(DryDriver::new(info, |_| Ok(Vec::new())), kiln_ir::MemoryConfig::new())
    }

    /// A chain of `count` takes, each from the previous result.
    fn chain(gpu: &Gpu<DryDriver>, x: &Value, index: &Value, count: usize) -> Value {
        let index = Var::new(gpu, index.clone());
        let taken = (0..count).fold(Var::new(gpu, x.clone()), |x, _| x.take(0, &index));
        taken.into_value()
    }

    #[test]
    fn ops_without_checks_share_their_operands_flags() {
        let gpu = gpu();
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 1], [2]).unwrap());
        let [one, other] = [1, 3].map(|count| Var::new(&gpu, chain(&gpu, &x, &index, count)));
        let set = |x: &Var<'_>| {
            let value = x.operand().value().unwrap();
            crate::array::Array::<DryDriver>::of(value).unwrap().suspicions.clone()
        };
        let is_shared = |a: &Var<'_>, b: &Var<'_>| Arc::ptr_eq(&set(a).0.unwrap(), &set(b).0.unwrap());
        let marked = |x: &Var<'_>| {
            let all = set(x);
            all.open().flat_map(|marks| marks.words).map(u64::count_ones).sum::<u32>()
        };
        let both = &one + &other;
        assert_eq!([&one, &other, &both].map(marked), [1, 3, 4]);
        assert!(is_shared(&both, &(&both * 2.0)) && is_shared(&both, &(&both + &one)));
        assert!(is_shared(&both, &(&other * &both)), "whichever has more");
    }

    /// A concurrent read finds the page clean and resets it: words set afterwards belong to another value.
    #[test]
    fn a_page_reset_during_a_read_reports_no_error() {
        let gpu = Arc::new(gpu());
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 1], [2]).unwrap());
        let [mine, others] = [(); 2].map(|()| chain(&gpu, &x, &index, 1));
        let suspicions = crate::array::Array::<DryDriver>::of(&mine).unwrap().suspicions.clone();
        // An op of another thread delays this check, and ends while this thread waits for the device.
        gpu.pages.running.fetch_add(1, Ordering::AcqRel);
        let (other, x, index) = (gpu.clone(), x.clone(), index.clone());
        let meanwhile = move |pages: &mut [Vec<u8>]| {
            other.pages.running.fetch_sub(1, Ordering::AcqRel);
            block_on(other.read(others)).unwrap();
            let _wrong = chain(&other, &x, &index, 1);
            pages.iter_mut().for_each(|bytes| bytes.fill(1));
        };
        *gpu.driver.answer.lock().unwrap() = Some(Box::new(meanwhile));
        assert!(block_on(gpu.read_checked(None, &suspicions).unwrap()).is_ok());
    }

    #[test]
    fn a_read_copies_the_value_and_its_flags_in_one_submission() {
        let gpu = gpu();
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 1], [2]).unwrap());
        let y = chain(&gpu, &x, &index, WORDS + 1);
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let found = lengths.clone();
        let note = move |ranges: &mut [Vec<u8>]| found.lock().unwrap().extend(ranges.iter().map(Vec::len));
        *gpu.driver.answer.lock().unwrap() = Some(Box::new(note));
        let read = gpu.read(y);
        assert_eq!(gpu.driver.reads(), 1, "before the future is polled");
        assert_eq!(*lengths.lock().unwrap(), [8, WORDS * BYTES, WORDS * BYTES]);
        block_on(read).unwrap();
        assert_eq!(gpu.driver.reads(), 1);
    }

    #[test]
    fn a_set_flag_of_a_read_is_its_error() {
        let gpu = gpu();
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 5], [2]).unwrap());
        let [y, other] = [(); 2].map(|()| chain(&gpu, &x, &index, 1));
        // The first word of the page: index 5 at position 1.
        let word = (u64::from(u32::MAX - 1) << 32) | 5;
        let set = move |ranges: &mut [Vec<u8>]| ranges[1][..BYTES].copy_from_slice(&word.to_ne_bytes());
        *gpu.driver.answer.lock().unwrap() = Some(Box::new(set));
        let error = block_on(gpu.read(y)).unwrap_err().to_string();
        assert!(error.contains("index 5"), "{error}");
        assert!(block_on(gpu.read(other)).is_ok(), "its word is another one");
    }

    #[test]
    fn a_later_read_checks_the_pages_of_a_read_that_was_dropped() {
        let gpu = gpu();
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 1], [2]).unwrap());
        let y = chain(&gpu, &x, &index, WORDS + 1);
        let pages = |y: &Value| crate::array::Array::<DryDriver>::of(y).unwrap().suspicions.open().count();
        drop(gpu.read(y.clone()));
        assert_eq!(pages(&y), 2);
        block_on(gpu.read(x)).unwrap();
        assert_eq!(pages(&y), 0);
    }

    #[test]
    fn flags_share_pages_and_are_reused_after_a_read() {
        let gpu = gpu();
        gpu.trace(true);
        let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2]).unwrap());
        let index = gpu.write(TensorData::new(vec![0i32, 1], [2]).unwrap());
        let fills = |gpu: &Gpu<DryDriver>| gpu.traced().iter().filter(|step| step.name == "fill").count();
        let y = chain(&gpu, &x, &index, 3 * WORDS);
        assert_eq!(fills(&gpu), 3);
        let pages = |y: &Value| crate::array::Array::<DryDriver>::of(y).unwrap().suspicions.open().count();
        assert_eq!(pages(&y), 3);
        block_on(gpu.read(y.clone())).unwrap();
        assert_eq!(pages(&y), 0);
        for _ in 0..10 {
            let y = chain(&gpu, &y, &index, WORDS - 1);
            block_on(gpu.read(y)).unwrap();
        }
        assert_eq!(fills(&gpu), 0, "words read as 0 are not reset");
    }
}
