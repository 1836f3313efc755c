//! One conformance suite for every Kiln engine.
//!
//! The folder `goldens/` beside `src/` holds what PyTorch computes for small inputs; its `README.md` specifies
//! the files.
