//! The loader: order, workers, errors, stopping.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kiln_data::{DataError, DataLoader, DataLoaderBuilder, Dataset, InMemoryDataset, Progress};

type Keep = fn(Vec<usize>) -> Result<Vec<usize>, DataError>;

/// A builder whose batches are the items themselves.
fn builder() -> DataLoaderBuilder<Keep> {
    DataLoaderBuilder::new(Ok)
}

fn numbers(len: usize) -> InMemoryDataset<usize> {
    (0..len).collect()
}

fn batches(iter: impl Iterator<Item = Result<Vec<usize>, DataError>>) -> Vec<Vec<usize>> {
    iter.map(Result::unwrap).collect()
}

/// A dataset with items computed by a function.
struct Computed<F> {
    len: usize,
    item: F,
}

impl<I, F: Fn(usize) -> I + Send + Sync> Dataset<I> for Computed<F> {
    fn get(&self, index: usize) -> Option<I> {
        (index < self.len).then(|| (self.item)(index))
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Waits for the action of another thread.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

#[test]
fn in_order_by_default() {
    let loader = builder().batch_size(4).build(numbers(10)).unwrap();
    let expected: [&[usize]; 3] = [&[0, 1, 2, 3], &[4, 5, 6, 7], &[8, 9]];
    assert_eq!(batches(loader.iter()), expected);
    assert_eq!((loader.len(), loader.num_items(), loader.batch_size()), (3, 10, 4));
    assert_eq!(builder().build(numbers(2)).unwrap().len(), 2);
}

#[test]
fn drop_last_drops_the_incomplete_batch() {
    let loader = builder().batch_size(4).drop_last(true).build(numbers(10)).unwrap();
    assert_eq!(batches(loader.iter()), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    assert_eq!((loader.len(), loader.num_items()), (2, 8));
    let exact = builder().batch_size(5).drop_last(true).build(numbers(10)).unwrap();
    assert_eq!((exact.len(), exact.num_items()), (2, 10));

    // The dropped items change from epoch to epoch.
    let shuffled = builder().batch_size(9).drop_last(true).shuffle(0).build(numbers(10)).unwrap();
    let seen: HashSet<usize> = (0..20).flat_map(|_| batches(shuffled.iter())).flatten().collect();
    assert_eq!(seen.len(), 10);
}

#[test]
fn batches_larger_than_the_dataset() {
    for batch_size in [10, 11, usize::MAX] {
        for workers in [0, 2] {
            let builder = builder().batch_size(batch_size).num_workers(workers);
            let mut iter = builder.build(numbers(10)).unwrap().iter();
            assert_eq!(iter.next().unwrap().unwrap().len(), 10);
            assert_eq!(iter.progress(), Progress { items_processed: 10, items_total: 10 });
            assert!(iter.next().is_none());
        }
    }
}

#[test]
fn batches_are_independent_of_the_number_of_workers() {
    let epochs = |workers, prefetch| {
        // Items that take different times to read let workers overtake each other.
        let slow = Computed {
            len: 101,
            item: |index: usize| {
                thread::sleep(Duration::from_micros((index * 7919 % 300) as u64));
                index
            },
        };
        let builder = builder().batch_size(8).shuffle(42).num_workers(workers).prefetch(prefetch);
        let loader = builder.build(slow).unwrap();
        [batches(loader.iter()), batches(loader.iter())]
    };
    let expected = epochs(0, 1);
    for workers in [1, 2, 4, 40] {
        for prefetch in [1, 3, 100] {
            assert_eq!(epochs(workers, prefetch), expected, "{workers} workers, prefetch {prefetch}");
        }
    }
}

#[test]
fn epochs_reshuffle_and_repeat_by_seed() {
    let loader = |seed| builder().batch_size(7).shuffle(seed).build(numbers(50)).unwrap();
    let (one, two) = (loader(1), loader(1));
    let first = batches(one.iter());
    let second = batches(one.iter());
    assert_ne!(first, second);
    for epoch in [&first, &second] {
        let mut items: Vec<usize> = epoch.iter().flatten().copied().collect();
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
    assert_eq!(batches(two.iter_epoch(1)), second);
    assert_eq!(batches(&mut two.iter()), first);
    assert_ne!(batches(loader(2).iter()), first);

    two.set_epoch(1);
    let resumed = two.iter();
    assert_eq!(resumed.epoch(), 1);
    assert_eq!(batches(resumed), second);
    assert_eq!((&two).into_iter().epoch(), 2);
}

/// A seed guarantees the order: a change here changes every training run. The expected values
/// come from a separate implementation, in Python, of the papers named in `random.rs` and `kiln_ir::philox`.
#[test]
fn the_order_of_a_seed_is_fixed() {
    let loader = builder().batch_size(10).shuffle(42).build(numbers(10)).unwrap();
    assert_eq!(batches(loader.iter_epoch(0)), [[0, 9, 1, 7, 5, 6, 8, 2, 3, 4]]);
    assert_eq!(batches(loader.iter_epoch(1)), [[3, 4, 5, 2, 8, 0, 9, 7, 6, 1]]);
}

#[test]
fn skip_starts_at_the_given_batch_without_reading_earlier_items() {
    for workers in [0, 3] {
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reads);
        let counted = Computed {
            len: 50,
            item: move |index: usize| {
                counter.fetch_add(1, Ordering::Relaxed);
                index
            },
        };
        let loader = builder().batch_size(8).shuffle(3).num_workers(workers).build(counted).unwrap();
        let all = batches(loader.iter_epoch(5));
        reads.store(0, Ordering::Relaxed);

        let resumed = loader.iter_epoch(5).skip_batches(4);
        assert_eq!(resumed.position(), 4);
        assert_eq!(resumed.progress(), Progress { items_processed: 32, items_total: 50 });
        assert_eq!(batches(resumed), all[4..]);
        assert_eq!(reads.load(Ordering::Relaxed), 50 - 32, "skipped batches are not read");

        let mut iter = loader.iter_epoch(5);
        assert_eq!(iter.next().unwrap().unwrap(), all[0]);
        assert_eq!(batches(iter.skip_batches(2)), all[3..], "skipping while workers run");
        assert!(loader.iter().skip_batches(usize::MAX).next().is_none());
    }
}

#[test]
fn progress_and_size_hint() {
    let loader = builder().batch_size(4).num_workers(1).build(numbers(10)).unwrap();
    let mut iter = loader.iter();
    assert_eq!(iter.size_hint(), (0, Some(3)));
    let mut seen = vec![iter.progress()];
    while let Some(batch) = iter.next() {
        batch.unwrap();
        seen.push(iter.progress());
    }
    let done: Vec<usize> = seen.iter().map(|progress| progress.items_processed).collect();
    assert_eq!(done, [0, 4, 8, 10]);
    assert_eq!(seen[1].fraction(), 0.4);
    assert_eq!(Progress::default().fraction(), 1.0);
    assert_eq!(iter.size_hint(), (0, Some(0)));
    assert!(iter.next().is_none());
}

#[test]
fn build_refuses_invalid_options() {
    let message = |result: Result<DataLoader<Vec<usize>>, DataError>| result.unwrap_err().to_string();
    assert_eq!(
        message(builder().batch_size(0).build(numbers(3))),
        "[data_loader] batch size is 0\n  hint: call batch_size(n) with n of at least 1"
    );
    assert_eq!(
        message(builder().build(numbers(0))),
        "[data_loader] the dataset is empty\n  \
         hint: check the folder, filter or split of the dataset"
    );
    assert_eq!(
        message(builder().batch_size(4).drop_last(true).build(numbers(3))),
        "[data_loader] no batch of 4 items can be filled from 3, and drop_last is on\n  \
         hint: lower batch_size or disable drop_last"
    );
    assert_eq!(
        message(builder().num_workers(2).prefetch(0).build(numbers(3))),
        "[data_loader] prefetch is 0, so 2 workers could never start a batch\n  \
         hint: call prefetch(n) with n of at least 1, or num_workers(0)"
    );
    assert_eq!(
        message(builder().num_workers(100_000).build(numbers(3))),
        "[data_loader] 100000 workers are more than 1024\n  \
         hint: each worker is a thread: a few for each core are enough"
    );
}

#[test]
fn a_batcher_error_replaces_its_batch() {
    for workers in [0, 1, 4] {
        let refuse_nine = |items: Vec<usize>| match items.contains(&9) {
            true => Err(DataError::batcher("nine is not allowed")),
            false => Ok(items.len()),
        };
        let builder = DataLoaderBuilder::new(refuse_nine).batch_size(4).num_workers(workers);
        let results: Vec<_> = builder.build(numbers(16)).unwrap().iter().collect();
        assert_eq!(results.len(), 4);
        for (index, result) in results.into_iter().enumerate() {
            match index {
                2 => assert_eq!(result.unwrap_err().to_string(), "nine is not allowed"),
                _ => assert_eq!(result.unwrap(), 4),
            }
        }
    }
}

#[test]
fn a_panic_becomes_an_error() {
    for workers in [0, 1, 2, 4] {
        let dataset = Computed {
            len: 12,
            item: |index: usize| match index {
                5 => panic!("item {index} is cursed"),
                8 => std::panic::panic_any(PanicsAgain),
                index => index,
            },
        };
        let loader = builder().batch_size(2).num_workers(workers).build(dataset).unwrap();
        let results: Vec<_> = loader.iter().collect();
        let messages: Vec<String> =
            results.iter().filter_map(|r| r.as_ref().err()).map(|e| e.to_string()).collect();
        assert_eq!(
            messages,
            [
                "[data_loader] building batch 2 of epoch 0 panicked: item 5 is cursed",
                "[data_loader] building batch 4 of epoch 0 panicked: no message"
            ]
        );
        assert_eq!(results.len(), 6, "{workers} workers");
    }
}

/// A panic payload whose drop panics.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("again");
    }
}

#[test]
fn a_panicking_batcher_becomes_an_error() {
    for workers in [0, 2] {
        let batcher = |items: Vec<usize>| -> Result<usize, DataError> { Ok(items[7]) };
        let loader = DataLoaderBuilder::new(batcher).num_workers(workers).build(numbers(3)).unwrap();
        for result in loader.iter() {
            assert!(matches!(result, Err(DataError::Panicked { .. })));
        }
    }
}

#[test]
fn a_missing_item_error_names_the_index() {
    struct Holey;
    impl Dataset<usize> for Holey {
        fn get(&self, index: usize) -> Option<usize> {
            (index != 3).then_some(index)
        }
        fn len(&self) -> usize {
            5
        }
    }
    for workers in [0, 2] {
        let loader = builder().num_workers(workers).build(Holey).unwrap();
        let error = loader.iter().find_map(Result::err).unwrap();
        assert!(
            error.to_string().starts_with("[data_loader] the dataset has no item 3 although its length is 5")
        );
        assert_eq!(loader.iter().filter(Result::is_ok).count(), 4);
    }
}

#[test]
fn prefetch_is_bounded() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let batcher = move |items: Vec<usize>| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok::<_, DataError>(items)
    };
    let loader = DataLoaderBuilder::new(batcher).num_workers(3).prefetch(5).build(numbers(100)).unwrap();
    let mut iter = loader.iter();
    assert_eq!(made.load(Ordering::SeqCst), 0, "nothing is made before the first next");
    for taken in 1..=20 {
        iter.next().unwrap().unwrap();
        assert!(eventually(|| made.load(Ordering::SeqCst) == taken + 5));
        thread::sleep(Duration::from_millis(3));
        assert_eq!(made.load(Ordering::SeqCst), taken + 5);
    }
}

#[test]
fn workers_run_at_the_same_time() {
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let shared = Arc::clone(&gate);
    // Each of the first three batches waits until all three are in progress.
    let batcher = move |items: Vec<usize>| {
        let (count, all) = &*shared;
        let mut count = count.lock().unwrap();
        *count += 1;
        all.notify_all();
        let (_count, wait) =
            all.wait_timeout_while(count, Duration::from_secs(20), |count| *count < 3).unwrap();
        if wait.timed_out() { Err(DataError::batcher("the others never came")) } else { Ok(items) }
    };
    let loader = DataLoaderBuilder::new(batcher).num_workers(3).build(numbers(3)).unwrap();
    assert_eq!(batches(loader.iter()), [[0], [1], [2]]);
}

#[test]
fn dropping_midway_stops_the_workers() {
    for workers in [1, 4] {
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reads);
        let slow = Computed {
            len: 10_000,
            item: move |index: usize| {
                counter.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                index
            },
        };
        let loader = builder().batch_size(1000).num_workers(workers).prefetch(8).build(slow).unwrap();
        let mut iter = loader.iter().skip_batches(1);
        iter.next().unwrap().unwrap();
        let start = Instant::now();
        drop(iter);
        // A batch takes a second: workers must not finish theirs.
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        let stopped = reads.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(30));
        assert_eq!(reads.load(Ordering::SeqCst), stopped, "a worker goes on");
        drop(loader);
        assert_eq!(Arc::strong_count(&reads), 1, "a worker holds the dataset");
    }
}

#[test]
fn dropping_iterators_with_waiting_workers() {
    let loader = builder().num_workers(2).prefetch(2).build(numbers(1000)).unwrap();
    for _ in 0..200 {
        drop(loader.iter());
        let mut iter = loader.iter();
        iter.next().unwrap().unwrap();
        // Workers now wait for space in the queue.
        drop(iter);
    }
}

#[test]
fn iterators_outlive_their_loader_and_move_between_threads() {
    let loader = builder().batch_size(3).num_workers(2).build(numbers(9)).unwrap();
    let iter = loader.iter();
    drop(loader);
    assert_eq!(thread::spawn(move || batches(iter)).join().unwrap().len(), 3);
}

#[test]
fn several_epochs_at_once() {
    let loader = builder().shuffle(1).num_workers(2).build(numbers(64)).unwrap();
    let expected: Vec<_> = (0..4).map(|epoch| batches(loader.iter_epoch(epoch))).collect();
    thread::scope(|scope| {
        let epochs: Vec<_> =
            (0..4).map(|epoch| loader.iter_epoch(epoch)).map(|iter| scope.spawn(|| batches(iter))).collect();
        let got: Vec<_> = epochs.into_iter().map(|epoch| epoch.join().unwrap()).collect();
        assert_eq!(got, expected);
    });
}
