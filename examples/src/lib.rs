//! Programs that show Kiln at work.
#![forbid(unsafe_code)]
