//! The functions that are measured.

use kiln_ir::{Engine, TensorData, Var, block_on};

/// A function of one number.
pub struct Function {
    /// The tensor's method.
    pub name: &'static str,
    /// Its name in NumPy's validation sets.
    pub numpy: Option<&'static str>,
    /// Whether Boost's tables hold it, under `name`.
    pub boost: bool,
    apply: for<'e> fn(&Var<'e>) -> Var<'e>,
}

impl Function {
    /// The function of every element.
    ///
    /// # Panics
    /// When the engine fails.
    pub fn run(&self, engine: &dyn Engine, x: TensorData) -> TensorData {
        let x = Var::new(engine, engine.write(x));
        let y = (self.apply)(&x).into_value();
        block_on(engine.read(y)).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

macro_rules! functions {
    ($($name:literal ($($numpy:literal)?) $($boost:ident)? => $apply:expr;)*) => {
        /// Every function that is measured.
        pub const FUNCTIONS: &[Function] = &[$(Function {
            name: $name,
            numpy: [$(Some($numpy),)? None][0],
            boost: ![$(stringify!($boost),)? ""][0].is_empty(),
            apply: $apply,
        }),*];
    };
}

functions! {
    "neg" () => |x| x.neg();
    "abs" () => |x| x.abs();
    "sign" () => |x| x.sign();
    "recip" () => |x| x.recip();
    "sqrt" () => |x| x.sqrt();
    "rsqrt" () => |x| x.rsqrt();
    "exp" ("exp") => |x| x.exp();
    "expm1" ("expm1") boost => |x| x.expm1();
    "log" ("log") => |x| x.ln();
    "log1p" ("log1p") boost => |x| x.log1p();
    "sin" ("sin") => |x| x.sin();
    "cos" ("cos") => |x| x.cos();
    "tan" ("tan") => |x| x.tan();
    "tanh" ("tanh") => |x| x.tanh();
    "atan" ("arctan") => |x| x.atan();
    "erf" () boost => |x| x.erf();
    "floor" () => |x| x.floor();
    "ceil" () => |x| x.ceil();
    "round" () => |x| x.round();
    "trunc" () => |x| x.trunc();
}
