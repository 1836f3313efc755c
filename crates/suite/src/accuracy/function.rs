//! The measured functions: methods of tensors.

use kiln_ir::{DType, Engine, TensorData};
use kiln_tensor::{AnyTensor, Result, Stack};
use std::sync::Arc;

/// A unary function.
pub struct Function {
    /// The tensor's method.
    pub name: &'static str,
    /// Its name in NumPy's validation sets.
    pub numpy: Option<&'static str>,
    /// Whether Boost's tables contain it, under `name`.
    pub boost: bool,
    call: fn(AnyTensor) -> Result<AnyTensor>,
}

impl Function {
    /// Applies the function elementwise.
    ///
    /// # Panics
    /// When the engine fails.
    pub fn run(&self, engine: &Arc<dyn Engine>, x: TensorData) -> TensorData {
        let stack = Stack::new(engine.clone(), "accuracy", DType::F32, DType::I32);
        let y = (self.call)(AnyTensor::from_data(x, &stack)).and_then(AnyTensor::into_data);
        y.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

macro_rules! functions {
    ($($name:ident ($($numpy:literal)?) $($boost:ident)?;)*) => {
        /// Every measured function.
        pub const FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            numpy: [$(Some($numpy),)? None][0],
            boost: ![$(stringify!($boost),)? ""][0].is_empty(),
            call: AnyTensor::$name,
        }),*];
    };
}

functions! {
    neg ();
    abs ();
    sign ();
    recip ();
    sqrt ();
    rsqrt ();
    exp ("exp");
    exp2 ("exp2");
    expm1 ("expm1") boost;
    log ("log");
    log2 ("log2");
    log10 ("log10");
    log1p ("log1p") boost;
    cbrt ("cbrt") boost;
    sigmoid ();
    logit ();
    sin ("sin");
    cos ("cos");
    tan ("tan");
    asin ("arcsin");
    acos ("arccos");
    atan ("arctan");
    sinc ();
    sinh ("sinh");
    cosh ("cosh");
    tanh ("tanh");
    asinh ("arcsinh");
    acosh ("arccosh");
    atanh ("arctanh");
    erf () boost;
    erfc () boost;
    erfinv () boost;
    lgamma () boost;
    digamma () boost;
    i0 () boost;
    i0e ();
    i1 () boost;
    i1e ();
    floor ();
    ceil ();
    round ();
    trunc ();
    frac ();
}
