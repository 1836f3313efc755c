//! Checkpoints that another thread writes.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::{CheckpointContents, CheckpointSeries, CheckpointWriter};
use crate::error::{FailedSave, Result, StoreError};

/// Maximum number of saves that wait. Each holds the memory of a model.
const MAX_WAITING: usize = 2;

/// Maximum number of errors that are kept until the next poll.
const MAX_FAILED: usize = 16;

/// A thread that writes checkpoints while training continues.
///
/// Saves are written one after the other, in the order of submission. At most two wait; then
/// [`submit`](BackgroundWriter::submit) waits too, so that memory is bounded. A save that fails or panics does not end
/// the thread: [`poll`](BackgroundWriter::poll) and [`finish`](BackgroundWriter::finish) return its error. Dropping the
/// writer finishes all saves and discards their errors.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_store::{BackgroundWriter, Checkpoint, CheckpointContents, CheckpointWriter, TrainingState};
///
/// # let temporary = tempfile::tempdir()?;
/// # let folder = temporary.path().join("last");
/// let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
/// let mut writer = BackgroundWriter::new()?;
/// // Locks the folder until the end of training.
/// writer.add(CheckpointWriter::open(&folder)?);
/// for epoch in 1..=3 {
///     let state = TrainingState::of(&model).at(epoch, 0);
///     let contents = CheckpointContents::new(state).with_module("model", &model)?;
///     writer.submit_latest(&folder, contents);
///     writer.poll()?;
/// }
/// writer.finish()?;
/// assert_eq!(Checkpoint::open(&folder)?.state().epoch, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BackgroundWriter {
    queue: Arc<Queue>,
    /// The locked folders, by absolute path.
    writers: BTreeMap<PathBuf, SharedWriter>,
    thread: Option<JoinHandle<()>>,
}

type SharedWriter = Arc<Mutex<CheckpointWriter>>;

/// A save that was submitted.
struct Job {
    folder: PathBuf,
    contents: CheckpointContents,
    /// The writer of a folder that is locked until the end.
    writer: Option<SharedWriter>,
    /// Pruned after the save.
    series: Option<CheckpointSeries>,
    /// Whether a newer save of the folder replaces it while it waits.
    is_replaceable: bool,
}

/// The saves of a thread.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Notified on every change of the state.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Job>,
    is_writing: bool,
    is_closed: bool,
    failed: Vec<FailedSave>,
    omitted: usize,
}

impl BackgroundWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the system starts no thread.
    pub fn new() -> Result<BackgroundWriter> {
        BackgroundWriter::with(Job::write)
    }

    fn with(write: impl FnMut(&Job) -> Result<()> + Send + 'static) -> Result<BackgroundWriter> {
        let queue = Arc::<Queue>::default();
        let shared = Arc::clone(&queue);
        let thread = Builder::new().name("kiln-checkpoints".to_owned()).spawn(move || shared.run(write));
        let thread = thread
            .map_err(|source| StoreError::io(Path::new("the thread for checkpoints"), "start", source))?;
        Ok(BackgroundWriter { queue, writers: BTreeMap::new(), thread: Some(thread) })
    }

    /// Adds the writer of a folder, which stays locked until this writer is dropped. Other folders are locked for each
    /// save.
    pub fn add(&mut self, writer: CheckpointWriter) {
        self.writers.insert(key(writer.folder()), Arc::new(Mutex::new(writer)));
    }

    /// Submits a save. Returns at once if fewer than two saves wait; otherwise waits for the thread. If another writer
    /// holds the folder, the thread waits for it for up to ten seconds.
    pub fn submit(&self, folder: impl AsRef<Path>, contents: CheckpointContents) {
        self.push(folder.as_ref(), contents, |job| job);
    }

    /// Submits a save like [`submit`](BackgroundWriter::submit). It replaces a waiting save of the same folder that was
    /// submitted by this method too, which is then never written.
    pub fn submit_latest(&self, folder: impl AsRef<Path>, contents: CheckpointContents) {
        self.push(folder.as_ref(), contents, |job| Job { is_replaceable: true, ..job });
    }

    /// Submits a save of a folder of a series like [`submit`](BackgroundWriter::submit). The thread then prunes the
    /// series ([`CheckpointSeries::prune`]).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig};
    /// use kiln_store::{BackgroundWriter, CheckpointContents, CheckpointSeries, TrainingState};
    ///
    /// # let temporary = tempfile::tempdir()?;
    /// # let run = temporary.path().join("run");
    /// let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
    /// let writer = BackgroundWriter::new()?;
    /// let mut series = CheckpointSeries::open(&run, 2)?;
    /// for epoch in 1..=3 {
    ///     let state = TrainingState::of(&model).at(epoch, 0);
    ///     let contents = CheckpointContents::new(state).with_module("model", &model)?;
    ///     let folder = series.next_epoch_folder(epoch);
    ///     writer.submit_to_series(&series, folder, contents);
    /// }
    /// writer.finish()?;
    /// assert_eq!(series.list()?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_to_series(
        &self,
        series: &CheckpointSeries,
        folder: impl AsRef<Path>,
        contents: CheckpointContents,
    ) {
        self.push(folder.as_ref(), contents, |job| Job { series: Some(series.clone()), ..job });
    }

    fn push(&self, folder: &Path, contents: CheckpointContents, with: impl FnOnce(Job) -> Job) {
        let writer = self.writers.get(&key(folder)).map(Arc::clone);
        let folder = folder.to_owned();
        self.queue.push(with(Job { folder, contents, writer, series: None, is_replaceable: false }));
    }

    /// Returns the errors of the saves that failed since the last call. Does not wait.
    ///
    /// # Errors
    /// [`StoreError::BackgroundSaves`] with the folder and the error of each failed save.
    pub fn poll(&self) -> Result<()> {
        self.queue.lock().take_errors()
    }

    /// Waits until all submitted saves are written.
    ///
    /// # Errors
    /// See [`poll`](BackgroundWriter::poll).
    pub fn wait(&self) -> Result<()> {
        let is_busy = |state: &QueueState| state.is_writing || !state.waiting.is_empty();
        self.queue.wait_while(is_busy).take_errors()
    }

    /// Waits until all submitted saves are written, ends the thread and unlocks all folders.
    ///
    /// # Errors
    /// See [`poll`](BackgroundWriter::poll).
    pub fn finish(mut self) -> Result<()> {
        self.end();
        self.poll()
    }

    fn end(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread catches panics.
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for BackgroundWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.lock().waiting.len();
        let folders: Vec<&PathBuf> = self.writers.keys().collect();
        f.debug_struct("BackgroundWriter").field("folders", &folders).field("waiting", &waiting).finish()
    }
}

impl Job {
    fn write(&self) -> Result<()> {
        match &self.writer {
            Some(writer) => writer.lock().unwrap_or_else(PoisonError::into_inner).write(&self.contents)?,
            None => CheckpointWriter::open_patiently(&self.folder)?.write(&self.contents)?,
        }
        match &self.series {
            Some(series) => series.prune_after(Some(&self.folder)).map(drop),
            None => Ok(()),
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, is_busy: impl Fn(&QueueState) -> bool) -> MutexGuard<'_, QueueState> {
        let wait = self.changed.wait_while(self.lock(), |state| is_busy(state));
        wait.unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) {
        let mut state = self.lock();
        let replaced = job.is_replaceable.then(|| state.replaceable(&job.folder)).flatten();
        if let Some(place) = replaced {
            let replaced = std::mem::replace(&mut state.waiting[place], job);
            drop(state);
            // Freeing its tensors takes time, so the queue is not locked.
            drop(replaced);
            return;
        }
        drop(state);
        let mut state = self.wait_while(|state| state.waiting.len() >= MAX_WAITING);
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_all();
    }

    /// Writes jobs until the queue is closed and empty.
    fn run(&self, mut write: impl FnMut(&Job) -> Result<()>) {
        while let Some(job) = self.next() {
            let result = catch_unwind(AssertUnwindSafe(|| write(&job)));
            let folder = job.folder.clone();
            let result = result.unwrap_or_else(|panic| {
                Err(StoreError::Panicked { path: folder.clone(), message: message_of(&*panic) })
            });
            // The tensors are freed before the save counts as written.
            let freed = catch_unwind(AssertUnwindSafe(|| drop(job)));
            debug_assert!(freed.is_ok(), "a tensor panicked when it was dropped");
            let mut state = self.lock();
            state.is_writing = false;
            if let Err(error) = result {
                state.add_error(FailedSave { folder, error });
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.wait_while(|state| state.waiting.is_empty() && !state.is_closed);
        let job = state.waiting.pop_front();
        state.is_writing = job.is_some();
        drop(state);
        self.changed.notify_all();
        job
    }
}

impl QueueState {
    /// The place of a waiting save that a newer one of this folder replaces: the last of the folder, so that an older
    /// save is never written after a newer one.
    fn replaceable(&self, folder: &Path) -> Option<usize> {
        let folder = key(folder);
        let last = self.waiting.iter().rposition(|job| key(&job.folder) == folder)?;
        self.waiting[last].is_replaceable.then_some(last)
    }

    fn add_error(&mut self, failed: FailedSave) {
        match self.failed.len() < MAX_FAILED {
            true => self.failed.push(failed),
            false => self.omitted += 1,
        }
    }

    fn take_errors(&mut self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let (failed, omitted) = (std::mem::take(&mut self.failed), std::mem::take(&mut self.omitted));
        Err(StoreError::BackgroundSaves { failed, omitted })
    }
}

/// Identifies a folder: its absolute path. Symbolic links are not followed.
fn key(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).components().collect()
}

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::checkpoint::TrainingState;

    fn contents(step: u64) -> CheckpointContents {
        CheckpointContents::new(TrainingState::default().at(0, step))
    }

    /// A writer whose saves wait for a message, and the steps of the saves that it has begun.
    fn stepwise() -> (BackgroundWriter, Sender<Result<()>>, Receiver<u64>) {
        let (go, may_go) = channel();
        let (begin, begun) = channel();
        let write = move |job: &Job| {
            begin.send(job.contents.state().step).unwrap();
            may_go.recv().unwrap_or(Ok(()))
        };
        (BackgroundWriter::with(write).unwrap(), go, begun)
    }

    #[test]
    fn saves_keep_their_order_and_at_most_two_wait() {
        let (writer, go, begun) = stepwise();
        writer.submit("a", contents(1));
        assert_eq!(begun.recv().unwrap(), 1);
        writer.submit("b", contents(2));
        writer.submit("a", contents(3));
        std::thread::scope(|scope| {
            let third = scope.spawn(|| writer.submit("a", contents(4)));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!third.is_finished());
            assert_eq!(writer.queue.lock().waiting.len(), 2);
            go.send(Ok(())).unwrap();
            third.join().unwrap();
        });
        drop(go);
        writer.wait().unwrap();
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [2, 3, 4]);
        writer.finish().unwrap();
    }

    #[test]
    fn only_saves_that_permit_it_are_replaced() {
        let (writer, go, begun) = stepwise();
        writer.submit_latest("a", contents(1));
        assert_eq!(begun.recv().unwrap(), 1);
        // The save that is being written is not replaced.
        writer.submit_latest("a", contents(2));
        writer.submit("b", contents(3));
        writer.submit_latest("./a", contents(4));
        assert_eq!(writer.queue.lock().waiting.len(), 2);
        drop(go);
        writer.wait().unwrap();
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [4, 3]);

        let (writer, go, begun) = stepwise();
        writer.submit("a", contents(1));
        assert_eq!(begun.recv().unwrap(), 1);
        writer.submit("a", contents(2));
        writer.submit_latest("a", contents(3));
        drop(go);
        writer.finish().unwrap();
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn dropping_finishes_all_saves() {
        let (writer, go, begun) = stepwise();
        (1..=3).for_each(|step| writer.submit("a", contents(step)));
        drop(go);
        drop(writer);
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn panics_are_errors_and_later_saves_are_written() {
        let writer = BackgroundWriter::with(|job: &Job| match job.contents.state().step {
            1 => panic!("no {}", "way"),
            2 => panic!("never"),
            _ => Ok(()),
        });
        let writer = writer.unwrap();
        (1..=3).for_each(|step| writer.submit("run", contents(step)));
        let Err(StoreError::BackgroundSaves { failed, omitted: 0 }) = writer.wait() else { panic!() };
        let messages: Vec<String> = failed.iter().map(|save| save.error.to_string()).collect();
        assert_eq!(messages, ["run: the save panicked: no way", "run: the save panicked: never"]);
        assert!(failed.iter().all(|save| save.folder == Path::new("run")));
        // Errors are reported once.
        writer.poll().unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn the_number_of_errors_is_bounded() {
        let failing = |_: &Job| Err(StoreError::json(Path::new("x"), "no"));
        let writer = BackgroundWriter::with(failing).unwrap();
        (0..20).for_each(|step| writer.submit("run", contents(step)));
        let error = writer.finish().unwrap_err();
        assert!(
            error.to_string().starts_with("20 checkpoints could not be saved\n  run: x: no\n"),
            "{error}"
        );
        assert!(error.to_string().ends_with("\n  and 4 more"), "{error}");
        let StoreError::BackgroundSaves { failed, omitted } = error else { panic!() };
        assert_eq!((failed.len(), omitted), (16, 4));
    }
}
