//! The exact messages of invalid calls: each call is here, its message in `expected.txt`.
//!
//! After a message was changed on purpose, `UPDATE_EXPECT=1 cargo test -p kiln-tensor --test tensor messages` writes the file
//! again; read the difference before it is committed. A message names the op, describes the error of the operands, and
//! suggests a fix.

mod arithmetic;
mod autodiff;
mod create;
mod functions;
mod index;
mod products;
mod reduce;
mod run_time;
mod signal;
mod statistics;
mod transform;
mod view;

use std::any::Any;
use std::fs;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use kiln_backends::{Flex, FlexDevice};
use kiln_tensor::{Bool, Int, Result, Tensor};

/// Minimum number of cases, so that none is lost unnoticed.
const MIN_CASES: usize = 170;

const DEVICE: FlexDevice = FlexDevice;

/// An invalid call and its message.
struct Case {
    name: &'static str,
    message: String,
}

/// A call of a typed method that must panic.
fn panics<T>(name: &'static str, call: impl FnOnce() -> T) -> Case {
    let message = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => "did not panic".to_owned(),
        Err(payload) => text_of(&*payload),
    };
    Case { name, message }
}

/// A call that must return an error.
fn fails<T>(name: &'static str, call: impl FnOnce() -> Result<T>) -> Case {
    let message = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(_)) => "did not fail".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(payload) => format!("panicked: {}", text_of(&*payload)),
    };
    Case { name, message }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn x() -> Tensor<Flex, 2> {
    Tensor::ones([2, 3], &DEVICE)
}

fn v() -> Tensor<Flex, 1> {
    Tensor::ones([3], &DEVICE)
}

fn i() -> Tensor<Flex, 2, Int> {
    Tensor::ones([2, 3], &DEVICE)
}

fn b() -> Tensor<Flex, 2, Bool> {
    Tensor::full([2, 3], true, &DEVICE)
}

fn indices<const N: usize>(numbers: [i32; N]) -> Tensor<Flex, 1, Int> {
    Tensor::from_ints(numbers, &DEVICE)
}

#[test]
fn messages() {
    let (own, hook) = (thread::current().id(), Arc::new(panic::take_hook()));
    let of_others = hook.clone();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != own {
            of_others(info);
        }
    }));
    let families = [
        ("arithmetic", arithmetic::cases()),
        ("autodiff", autodiff::cases()),
        ("create", create::cases()),
        ("functions", functions::cases()),
        ("index", index::cases()),
        ("products", products::cases()),
        ("reduce", reduce::cases()),
        ("run time", run_time::cases()),
        ("signal", signal::cases()),
        ("statistics", statistics::cases()),
        ("transform", transform::cases()),
        ("view", view::cases()),
    ];
    panic::set_hook(Box::new(move |info| hook(info)));
    let count: usize = families.iter().map(|(_, cases)| cases.len()).sum();
    assert!(count >= MIN_CASES, "{count} wrong calls are fewer than {MIN_CASES}");
    let problems: Vec<String> = families.iter().flat_map(|(_, cases)| cases).filter_map(problem).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    compare(&printed(&families));
}

/// A message starts with the op and ends with a hint.
fn problem(case: &Case) -> Option<String> {
    let Case { name, message } = case;
    if !message.starts_with('[') || !message.contains("] ") {
        return Some(format!("{name}: no op in front: {message}"));
    }
    let explained = message.contains("\n  hint: ");
    (!explained).then(|| format!("{name}: does not say what to do: {message}"))
}

fn printed(families: &[(&str, Vec<Case>)]) -> String {
    let mut text = String::new();
    for (family, cases) in families {
        text += &format!("# {family}\n");
        for Case { name, message } in cases {
            // Another package that is tested with this one may have built that backend in.
            let message = message.replace("known: cpu, flex, cuda", "known: cpu, flex");
            text += &format!("\n{name}\n    {}\n", message.replace('\n', "\n    "));
        }
        text.push('\n');
    }
    text
}

fn compare(found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/expected.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1") {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    let differs = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let at =
        |text: &str| text.lines().skip(line).take(4).map(|line| format!("  {line}\n")).collect::<String>();
    assert!(
        expected == found,
        "expected.txt, line {}, says\n{}but now it is\n{}UPDATE_EXPECT=1 accepts this.",
        line + 1,
        at(&expected),
        at(found)
    );
}
