//! Element types of backends.

use kiln_tensor::{Element, bf16, f16};

/// The element type of new float tensors on a backend.
pub trait FloatElement: Element {}

impl FloatElement for f64 {}
impl FloatElement for f32 {}
impl FloatElement for f16 {}
impl FloatElement for bf16 {}

/// The element type of new integer tensors on a backend.
pub trait IntElement: Element {}

impl IntElement for i64 {}
impl IntElement for i32 {}
