//! Mutation fuzzing of the readers of files: damaged files are errors, and never panic, hang or take much memory.
//!
//! The corpus of a reader is a folder of small files, which are committed. Each case mutates one of them; the number of
//! the case determines the mutations. By default each reader runs for one second:
//!
//! ```text
//! cargo test -p kiln-store --test fuzz -- --nocapture
//! KILN_FUZZ_SECONDS=600 cargo test -p kiln-store --test fuzz -- --nocapture
//! KILN_FUZZ_ONLY=pytorch:4711 cargo test -p kiln-store --test fuzz -- --nocapture
//! ```
//!
//! `KILN_FUZZ_ONLY` names a reader, and after a colon one case. A failing case is written to the temporary folder.

mod harness;
mod targets;

#[test]
fn damaged_files() {
    harness::fuzz(&targets::targets());
}
