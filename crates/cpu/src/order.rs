//! Being written by another helper.
