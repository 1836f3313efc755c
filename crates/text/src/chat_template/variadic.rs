//! Macros that take more arguments than they have parameters.

use minijinja::value::{Kwargs, Object, Tuple, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The parameters that [`source`](super::source) adds to a macro.
const VARARGS: &str = "varargs";
const KWARGS: &str = "kwargs";

/// A macro whose last parameters are `varargs` and `kwargs`.
struct Variadic {
    inner: Value,
    parameters: Vec<String>,
    /// Whether the macro uses its further positional and named arguments. Otherwise they are an error, as in Jinja.
    positional: bool,
    named: bool,
}

/// Wraps a macro.
pub(super) fn wrapped(inner: Value, positional: bool, named: bool) -> Result<Value, Error> {
    let parameters = inner.get_attr("arguments")?.try_iter()?.map(|name| name.to_string());
    let parameters = parameters.filter(|name| ![VARARGS, KWARGS].contains(&name.as_str())).collect();
    Ok(Value::from_object(Variadic { inner, parameters, positional, named }))
}

impl Object for Variadic {
    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let (args, options): (&[Value], Kwargs) = from_args(args)?;
        let refused = |problem: String| Error::new(ErrorKind::TooManyArguments, problem);
        let (own, rest) = args.split_at(args.len().min(self.parameters.len()));
        if !rest.is_empty() && !self.positional {
            return Err(refused(format!("a macro takes {} positional arguments", self.parameters.len())));
        }
        let (mut known, mut others) = (BTreeMap::new(), Vec::new());
        for name in options.args() {
            let value: Value = options.get(name)?;
            // As in Jinja, a parameter that has its value by position is a further argument by name.
            if name == "caller" || self.parameters.iter().skip(own.len()).any(|parameter| parameter == name) {
                known.insert(name.to_owned(), value);
            } else if self.named {
                others.push((name.to_owned(), value));
            } else {
                return Err(refused(format!("unknown keyword argument `{name}`")));
            }
        }
        known.insert(VARARGS.to_owned(), Value::from(Tuple::from(rest.to_vec())));
        known.insert(KWARGS.to_owned(), Value::from_pairs(others));
        let named = Value::from(Kwargs::from_iter(known));
        self.inner.call(state, &own.iter().cloned().chain([named]).collect::<Vec<Value>>())
    }
}

impl fmt::Debug for Variadic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}
