//! Machines and errors as JSON: round trips, and rejection of invalid JSON.

use kiln_ir::{DType, DTypeSet, Error, ErrorKind, Machine, OperandType, Products, Shape, TensorType};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};

#[test]
fn machines_round_trip() {
    let webgpu = Machine {
        bindings: Some(8),
        dtypes: DTypeSet::of(&[DType::F32, DType::I32, DType::U32, DType::Bool]),
        products: Products::Kernels,
        memory_bytes: None,
        ..Machine::gpu()
    };
    let plain = Products::Library { epilogues: false };
    let large = Machine { memory_bytes: Some(u64::MAX), threads: usize::MAX, products: plain, ..webgpu };
    for machine in [Machine::processor(), Machine::gpu(), webgpu, large] {
        assert_eq!(from_str::<Machine>(&to_string(&machine).unwrap()).unwrap(), machine);
    }
    assert_eq!(Machine::default(), Machine::processor());
}

#[test]
fn machines_are_plain_text() {
    let text = to_value(Machine { bindings: Some(8), ..Machine::gpu() }).unwrap();
    assert_eq!(text["bindings"], 8);
    assert_eq!(text["products"], json!({"library": {"epilogues": true}}));
    assert_eq!(text["dtypes"].as_array().unwrap().len(), DType::ALL.len());
    assert_eq!(text["dtypes"][0], "f64");
    assert_eq!(to_value(Machine::processor()).unwrap()["products"], "kernels");
}

#[test]
fn only_optional_fields_may_be_missing() {
    let written = to_value(Machine::gpu()).unwrap();
    for (field, optional) in
        [("bindings", true), ("memory_bytes", true), ("subgroup", false), ("dtypes", false)]
    {
        let mut text = written.clone();
        text.as_object_mut().unwrap().remove(field);
        assert_eq!(from_value::<Machine>(text).is_ok(), optional, "{field}");
    }
}

#[test]
fn invalid_machines_are_refused() {
    let written = to_value(Machine::gpu()).unwrap();
    let wrong = [
        ("subgroup", json!(-1)),
        ("workgroup", json!(1.5)),
        ("memory_bytes", json!("much")),
        ("dtypes", json!(["f32", "f31"])),
        ("dtypes", json!(7)),
        ("products", json!("library")),
        ("products", json!({"library": {}})),
        ("host_errors", Value::Null),
        ("exact_regions", Value::Null),
        ("bindngs", json!(8)),
    ];
    for (field, value) in wrong {
        let mut text = written.clone();
        text.as_object_mut().unwrap().insert(field.into(), value.clone());
        assert!(from_value::<Machine>(text).is_err(), "{field}: {value}");
    }
    for text in ["", "null", "[]", "{}", "3", "{\"threads\": 1"] {
        assert!(from_str::<Machine>(text).is_err(), "{text}");
    }
    // A long list of dtypes is a set.
    let many = format!("[{}\"f32\"]", "\"i8\", ".repeat(100_000));
    assert_eq!(from_str::<DTypeSet>(&many).unwrap(), DTypeSet::of(&[DType::I8, DType::F32]));
}

/// One error of each kind, with and without hint.
fn errors() -> Vec<Error> {
    let (a, b) = (TensorType::new([2, 3], DType::F32), TensorType::new([4, 5], DType::F32));
    let operands = [OperandType::Tensor(&a), OperandType::Tensor(&b)];
    let plain = [
        Error::type_error("matmul", "inner sizes differ", &operands),
        Error::value("take", "index 7 is out of range"),
        Error::unsupported("cpu", "has no \"such\" op\n"),
        Error::device("cuda:0", "out of memory"),
        Error::gradient("sort", "is not differentiable \u{0} \u{1F980}"),
    ];
    let hinted = plain.clone().map(|error| error.hint("do something else"));
    let others = [
        Error::parse(3, 14, "expected `{`"),
        Error::parse(0, usize::MAX, ""),
        Error::program("slot 3 is read before it is defined"),
        Error::index_out_of_range("gather", -9, &Shape::new([1, 2]), 0, 4),
    ];
    plain.into_iter().chain(hinted).chain(others).collect()
}

#[test]
fn errors_round_trip() {
    for error in errors() {
        let back: Error = from_str(&to_string(&error).unwrap()).unwrap();
        assert_eq!((&back, back.to_string()), (&error, error.to_string()));
        let kind: ErrorKind = from_value(to_value(error.kind()).unwrap()).unwrap();
        assert_eq!(&kind, error.kind());
        assert_eq!(to_value(&error).unwrap(), to_value(error.kind()).unwrap());
    }
}

#[test]
fn errors_are_plain_text() {
    let error = Error::value("take", "index 7 is out of range");
    let text = json!({"value": {"op": "take", "problem": "index 7 is out of range", "hint": null}});
    assert_eq!(to_value(&error).unwrap(), text);
    let without = json!({"value": {"op": "take", "problem": "index 7 is out of range", "later": [1]}});
    assert_eq!(from_value::<Error>(without).unwrap(), error);
}

#[test]
fn invalid_errors_are_refused() {
    let deep = format!("{{\"value\":{}", "[".repeat(100_000));
    let texts = [
        "",
        "null",
        "\"value\"",
        "{}",
        "{\"value\": {}}",
        "{\"value\": {\"op\": 3, \"problem\": \"\"}}",
        "{\"value\": {\"op\": \"a\", \"problem\": \"b\"}, \"type\": {}}",
        "{\"panic\": {\"op\": \"a\", \"problem\": \"b\"}}",
        "{\"parse\": {\"line\": -1, \"column\": 1, \"problem\": \"\"}}",
        "{\"parse\": {\"line\": 1e30, \"column\": 1, \"problem\": \"\"}}",
        "{\"type\": {\"op\": \"a\", \"problem\": \"b\", \"operands\": [[]]}}",
        &deep,
    ];
    for text in texts {
        assert!(from_str::<Error>(text).is_err(), "{}", &text[..text.len().min(80)]);
    }
    // Every prefix of a text, and every text with one changed byte, is parsed or refused.
    for text in errors().iter().map(|error| to_string(error).unwrap()) {
        for end in 0..text.len() {
            assert!(serde_json::from_slice::<Error>(&text.as_bytes()[..end]).is_err());
            for byte in [0, b'"', b'{', b'9', 0xff] {
                let mut changed = text.clone().into_bytes();
                changed[end] = byte;
                if let Ok(error) = serde_json::from_slice::<Error>(&changed) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
