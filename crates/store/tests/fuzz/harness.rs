//! The runs of the fuzz targets of this crate and of others.

#[path = "mutate.rs"]
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use mutate::{Random, mutated};

/// A reader of files.
pub(crate) struct Target {
    /// The name in messages and in `KILN_FUZZ_ONLY`.
    pub(crate) name: &'static str,
    /// The folder of the corpus, relative to `tests`.
    pub(crate) folder: &'static str,
    /// Endings of the names of its files.
    pub(crate) ends: &'static [&'static str],
    /// Changes a file of the corpus before it is mutated: removes checksums, which would refuse every mutation.
    pub(crate) prepare: fn(Vec<u8>) -> Vec<u8>,
    /// Reads everything in a file and ignores errors.
    pub(crate) read: fn(&[u8]),
}

/// Seconds for each reader, unless `KILN_FUZZ_SECONDS` says otherwise.
const SECONDS: u64 = 1;

/// Limit on the time of one case. It is generous, since machines of tests are busy.
const MAX_CASE: Duration = Duration::from_secs(20);

/// Limit on the growth of the address space of the process while a reader is tested, in bytes.
const MAX_MEMORY: u64 = 1 << 30;

/// Runs the cases that the environment selects.
pub(crate) fn fuzz(targets: &[Target]) {
    let seconds = env::var("KILN_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let only = env::var("KILN_FUZZ_ONLY").unwrap_or_default();
    let (only, case) = only.split_once(':').unwrap_or((&only, ""));
    for target in targets.iter().filter(|target| only.is_empty() || target.name == only) {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{} has no file that ends in {:?}", target.folder, target.ends);
        match case.parse() {
            Ok(case) => check(target, &corpus, case).unwrap_or_else(|message| panic!("{message}")),
            Err(_) => run(target, &corpus, Duration::from_secs(seconds)),
        }
    }
}

/// Reads the files of a target's corpus, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(target.folder);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| target.ends.iter().any(|end| path.to_string_lossy().ends_with(end)))
        .collect();
    paths.sort();
    paths.iter().map(|path| (target.prepare)(fs::read(path).unwrap())).collect()
}

/// Runs cases until the time is over.
fn run(target: &Target, corpus: &[Vec<u8>], time: Duration) {
    let (start, memory) = (Instant::now(), address_space());
    for bytes in corpus {
        (target.read)(bytes);
    }
    let mut case = 0;
    while start.elapsed() < time {
        if let Err(message) = check(target, corpus, case) {
            panic!("{message}");
        }
        case += 1;
    }
    let grown = address_space().saturating_sub(memory);
    println!("fuzz {}: {case} cases of {} files, {} MiB more memory", target.name, corpus.len(), grown >> 20);
    assert!(grown <= MAX_MEMORY, "{} took {grown} bytes of memory", target.name);
}

/// Runs one case.
fn check(target: &Target, corpus: &[Vec<u8>], case: u64) -> Result<(), String> {
    let bytes = mutated(corpus, &mut Random::of(case));
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.read)(&bytes)));
    let (took, name) = (start.elapsed(), target.name);
    let problem = match result {
        Ok(()) if took <= MAX_CASE => return Ok(()),
        Ok(()) => format!("took {took:?}"),
        Err(_) => "panicked".to_owned(),
    };
    let path = env::temp_dir().join(format!("kiln-fuzz-{name}-{case}"));
    let written =
        fs::write(&path, &bytes).map_or_else(|error| error.to_string(), |()| path.display().to_string());
    Err(format!("{name}, case {case} {problem}\n  file: {written}\n  again: KILN_FUZZ_ONLY={name}:{case}"))
}

/// The largest address space that the process had, in bytes; 0 where the system does not say. Unlike the resident
/// memory, it counts allocations that are never written.
fn address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}
