//! Datasets and their transforms.

use std::sync::Arc;

use kiln_data::{
    ConcatDataset, DataError, Dataset, InMemoryDataset, MapDataset, SamplerDataset, Sampling,
    ShuffledDataset, SubsetDataset, WindowsDataset, split, split_consecutive,
};

fn numbers(len: usize) -> InMemoryDataset<usize> {
    (0..len).collect()
}

/// Checks that `get`, `len` and `iter` agree, and returns the items.
fn items<I: PartialEq + std::fmt::Debug>(dataset: &dyn Dataset<I>) -> Vec<I> {
    let items: Vec<I> = (&dataset).iter().collect();
    assert_eq!(items.len(), dataset.len());
    assert_eq!(items.is_empty(), dataset.is_empty());
    for (index, item) in items.iter().enumerate() {
        assert_eq!(dataset.get(index).as_ref(), Some(item));
    }
    for outside in [dataset.len(), dataset.len() + 1, usize::MAX] {
        assert_eq!(dataset.get(outside), None);
    }
    items
}

fn sorted(mut items: Vec<usize>) -> Vec<usize> {
    items.sort_unstable();
    items
}

fn message<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn in_memory() {
    assert_eq!(items(&numbers(3)), [0, 1, 2]);
    assert_eq!(items(&numbers(0)), []);
    assert_eq!(items(&InMemoryDataset::from(vec!["a", "b"])), ["a", "b"]);
    assert_eq!(numbers(3).as_slice(), [0, 1, 2]);
}

#[test]
fn arcs_and_boxes_of_datasets_are_datasets() {
    assert_eq!(items(&Arc::new(numbers(3))), [0, 1, 2]);
    let boxed: Box<dyn Dataset<usize>> = Box::new(numbers(3));
    assert_eq!(boxed.iter().collect::<Vec<_>>(), [0, 1, 2]);
    let shared: Arc<dyn Dataset<usize>> = Arc::new(numbers(3));
    assert_eq!(items(&MapDataset::new(shared, |n: usize| n * 2)), [0, 2, 4]);
    assert_eq!(items(&boxed), [0, 1, 2]);
}

#[test]
fn iter_stops_at_a_missing_item() {
    struct Broken;
    impl Dataset<u8> for Broken {
        fn get(&self, index: usize) -> Option<u8> {
            (index < 2).then_some(1)
        }
        fn len(&self) -> usize {
            usize::MAX
        }
    }
    let mut iter = Broken.iter();
    assert_eq!(iter.by_ref().count(), 2);
    assert_eq!(iter.next(), None);
}

#[test]
fn map() {
    let mapped = MapDataset::new(numbers(3), |n: usize| format!("<{n}>"));
    assert_eq!(items(&mapped), ["<0>", "<1>", "<2>"]);
    let twice = MapDataset::new(mapped, |text: String| text.len());
    assert_eq!(items(&twice), [3, 3, 3]);
}

#[test]
fn subset() {
    let subset = SubsetDataset::new(numbers(10), vec![7, 0, 7]).unwrap();
    assert_eq!(items(&subset), [7, 0, 7]);
    assert_eq!(items(&SubsetDataset::range(numbers(10), 3..6).unwrap()), [3, 4, 5]);
    assert_eq!(items(&SubsetDataset::range(numbers(10), 10..10).unwrap()), []);
    assert_eq!(
        message(SubsetDataset::new(numbers(10), vec![3, 10])),
        "[subset] index 10 is out of range for a dataset of 10 items\n  \
         hint: use indices from 0 to the dataset's length, which is not included"
    );
    assert!(
        message(SubsetDataset::range(numbers(10), 3..11)).starts_with("[subset] range 3..11 is out of range")
    );
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = SubsetDataset::range(numbers(10), 3..2);
    assert!(message(reversed).starts_with("[subset] range 3..2 is out of range"));
}

#[test]
fn split_covers_every_item_once() {
    for len in [0, 1, 2, 3, 7, 10, 99, 1000] {
        let parts = split_consecutive(numbers(len), [0.7, 0.2, 0.1]).unwrap();
        let joined: Vec<usize> = parts.iter().flat_map(|part| items(part)).collect();
        assert_eq!(joined, (0..len).collect::<Vec<_>>());
        for (part, ratio) in parts.iter().zip([0.7, 0.2, 0.1]) {
            assert!((part.len() as f64 - ratio * len as f64).abs() <= 1.0);
        }
    }
    let tenths = split_consecutive(numbers(10), [0.1; 10]).unwrap();
    assert!(tenths.iter().all(|part| part.len() == 1));
    let [all, none] = split_consecutive(numbers(5), [1.0, 0.0]).unwrap();
    assert_eq!((all.len(), none.len()), (5, 0));
}

#[test]
fn split_checks_ratios() {
    assert_eq!(
        message(split_consecutive(numbers(5), [0.5, 0.6])),
        "[split] ratios [0.5, 0.6] are not fractions that sum to 1\n  \
         hint: pass ratios of at least 0 that sum to 1, such as [0.9, 0.1]"
    );
    assert!(split_consecutive(numbers(5), [1.5, -0.5]).is_err());
    assert!(split_consecutive(numbers(5), [f64::NAN, 0.5]).is_err());
    assert!(split_consecutive(numbers(5), [f64::INFINITY, f64::NEG_INFINITY]).is_err());
    assert!(split_consecutive(numbers(5), []).is_err());
}

/// Sorted items, for example by class, are distributed over all parts.
#[test]
fn seeded_splits_are_random() {
    let parts = |seed| {
        let parts = split(numbers(100), [0.8, 0.2], seed).unwrap();
        parts.map(|part| (0..part.len()).map(|index| part.get(index).unwrap()).collect::<Vec<_>>())
    };
    let [train, valid] = parts(1);
    assert_eq!((train.len(), valid.len()), (80, 20));
    assert!(valid.iter().any(|item| *item < 50) && valid.iter().any(|item| *item >= 50), "{valid:?}");
    let mut all = [train.clone(), valid.clone()].concat();
    all.sort();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    assert_eq!(parts(1), [train.clone(), valid]);
    assert_ne!(parts(2)[0], train);
    assert!(split(numbers(5), [0.5, 0.6], 1).is_err());
}

#[test]
fn shuffled() {
    let order = items(&ShuffledDataset::new(numbers(50), 1));
    assert_ne!(order, (0..50).collect::<Vec<_>>());
    assert_eq!(sorted(order.clone()), (0..50).collect::<Vec<_>>());
    assert_eq!(order, items(&ShuffledDataset::new(numbers(50), 1)));
    assert_ne!(order, items(&ShuffledDataset::new(numbers(50), 2)));
    assert_eq!(items(&ShuffledDataset::new(numbers(0), 2)), []);
}

#[test]
fn windows() {
    let windows = WindowsDataset::new(numbers(4), 2).unwrap();
    assert_eq!(items(&windows), [[0, 1], [1, 2], [2, 3]]);
    assert_eq!(items(&WindowsDataset::new(numbers(4), 4).unwrap()), [[0, 1, 2, 3]]);
    for too_long in [5, usize::MAX] {
        assert!(items(&WindowsDataset::new(numbers(4), too_long).unwrap()).is_empty());
    }
    assert_eq!(
        message(WindowsDataset::new(numbers(4), 0)),
        "[windows] window size is 0\n  hint: use windows of at least 1 item"
    );
}

#[test]
fn concat() {
    let parts = vec![numbers(2), numbers(0), numbers(3), numbers(0)];
    assert_eq!(items(&ConcatDataset::new(parts).unwrap()), [0, 1, 0, 1, 2]);
    assert_eq!(items(&ConcatDataset::new(Vec::<InMemoryDataset<u8>>::new()).unwrap()), []);

    let mixed: Vec<Box<dyn Dataset<usize>>> =
        vec![Box::new(numbers(1)), Box::new(MapDataset::new(numbers(2), |n: usize| n + 10))];
    assert_eq!(items(&ConcatDataset::new(mixed).unwrap()), [0, 10, 11]);
}

#[test]
fn concat_counts_without_overflow() {
    #[derive(Debug)]
    struct Endless;
    impl Dataset<u8> for Endless {
        fn get(&self, _: usize) -> Option<u8> {
            Some(0)
        }
        fn len(&self) -> usize {
            usize::MAX
        }
    }
    assert_eq!(ConcatDataset::new(vec![Endless]).unwrap().len(), usize::MAX);
    assert!(
        message(ConcatDataset::new(vec![Endless, Endless])).starts_with("[concat] the total number of items")
    );
}

#[test]
fn sampler_without_replacement() {
    let all = SamplerDataset::new(numbers(20), Sampling::new(5)).unwrap();
    assert_eq!(sorted(items(&all)), (0..20).collect::<Vec<_>>());
    let some = items(&SamplerDataset::new(numbers(20), Sampling::new(5).size(7)).unwrap());
    assert_eq!(some, items(&all)[..7]);
    let weights = (0..20).map(|n| f64::from(n % 2)).collect();
    let odd = SamplerDataset::new(numbers(20), Sampling::new(5).weights(weights).size(10)).unwrap();
    assert_eq!(sorted(items(&odd)), (0..20).filter(|n| n % 2 == 1).collect::<Vec<_>>());
}

#[test]
fn sampler_repeats_in_cycles() {
    let draws = items(&SamplerDataset::without_replacement(numbers(8), 20).unwrap());
    let cycles: Vec<&[usize]> = draws.chunks(8).collect();
    for cycle in &cycles[..2] {
        assert_eq!(sorted(cycle.to_vec()), (0..8).collect::<Vec<_>>());
    }
    assert_ne!(cycles[0], cycles[1]);
    let mut last = sorted(cycles[2].to_vec());
    last.dedup();
    assert_eq!((draws.len(), last.len()), (20, 4));
    assert_eq!(SamplerDataset::with_replacement(numbers(2), 30).unwrap().len(), 30);
    assert!(SamplerDataset::without_replacement(numbers(0), 1).is_err());
    assert!(SamplerDataset::with_replacement(numbers(0), 1).is_err());
    assert_eq!(SamplerDataset::without_replacement(numbers(0), 0).unwrap().len(), 0);
}

#[test]
fn sampler_follows_weights() {
    let sampling = Sampling::new(5).replacement(true).weights(vec![0.0, 1.0, 3.0, 0.0]).size(40_000);
    let draws = items(&SamplerDataset::new(numbers(4), sampling.clone()).unwrap());
    let count = |item| draws.iter().filter(|draw| **draw == item).count();
    assert_eq!((count(0), count(3)), (0, 0));
    // Six standard deviations are about 520.
    assert!(count(1).abs_diff(10_000) < 520, "{}", count(1));
    assert_eq!(draws, items(&SamplerDataset::new(numbers(4), sampling).unwrap()));

    // The first of two drawn without replacement follows the weights too.
    let first = (0..4_000)
        .filter(|seed| {
            let sampling = Sampling::new(*seed).weights(vec![1.0, 3.0]);
            SamplerDataset::new(numbers(2), sampling).unwrap().get(0) == Some(0)
        })
        .count();
    assert!(first.abs_diff(1_000) < 165, "{first}");
}

#[test]
fn sampler_with_replacement_is_uniform() {
    let sampling = Sampling::new(9).replacement(true).size(40_000);
    let draws = items(&SamplerDataset::new(numbers(4), sampling).unwrap());
    for item in 0..4 {
        let count = draws.iter().filter(|draw| **draw == item).count();
        assert!(count.abs_diff(10_000) < 520, "{count}");
    }
    assert_eq!(items(&SamplerDataset::new(numbers(0), Sampling::new(9).replacement(true)).unwrap()), []);
}

#[test]
fn sampler_checks_its_arguments() {
    let sample = |len, sampling| message(SamplerDataset::new(numbers(len), sampling));
    assert_eq!(
        sample(3, Sampling::new(0).size(4)),
        "[sampler] 4 draws from 3 items that can be drawn\n  \
         hint: request fewer draws, or draw with replacement from at least one item of positive weight"
    );
    assert!(sample(0, Sampling::new(0).size(1).replacement(true)).contains("1 draws from 0 items"));
    let zeros = Sampling::new(0).weights(vec![0.0, 0.0]);
    assert!(sample(2, zeros.clone()).contains("2 draws from 0 items"));
    assert!(sample(2, zeros.replacement(true)).contains("2 draws from 0 items"));
    let weights = |weights: &[f64]| Sampling::new(0).weights(weights.to_vec());
    assert!(sample(3, weights(&[1.0])).contains("1 weights for 3 items"));
    assert!(sample(2, weights(&[1.0, -1.0])).contains("weight 1 is -1"));
    assert!(sample(2, weights(&[f64::NAN, 1.0])).contains("weight 0 is NaN"));
    assert!(sample(2, weights(&[f64::MAX, f64::MAX])).contains("overflows"));
}
