//! Serialization to JSON values.

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::value::Serializer as Plain;
use serde_json::{Error, Map, Result, Value};

use super::FLOAT;

/// Serializes as serde_json does, except for floats that are not finite.
#[derive(Clone, Copy)]
pub(super) struct Writer;

/// An array, and the variant of an enum that it belongs to.
pub(super) struct List {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

/// An object, and the variant of an enum that it belongs to.
pub(super) struct Object {
    variant: Option<&'static str>,
    entries: Map<String, Value>,
    key: Option<String>,
}

/// Methods for scalars, which serde_json does.
macro_rules! scalars {
    ($($method:ident: $ty:ty),* $(,)?) => {$(
        fn $method(self, value: $ty) -> Result<Value> {
            Plain.$method(value)
        }
    )*};
}

impl Serializer for Writer {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Object;
    type SerializeStruct = Object;
    type SerializeStructVariant = Object;

    scalars! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
        serialize_char: char,
        serialize_str: &str,
        serialize_bytes: &[u8],
    }

    fn serialize_f32(self, value: f32) -> Result<Value> {
        if value.is_finite() { Plain.serialize_f32(value) } else { self.serialize_f64(value.into()) }
    }

    fn serialize_f64(self, value: f64) -> Result<Value> {
        if value.is_finite() {
            Plain.serialize_f64(value)
        } else {
            Ok(variant(FLOAT, value.to_string().into()))
        }
    }

    fn serialize_none(self) -> Result<Value> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Value> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<Value> {
        Ok(variant(name, value.serialize(self)?))
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<List> {
        Ok(List { variant: None, items: Vec::new() })
    }

    fn serialize_tuple(self, len: usize) -> Result<List> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<List> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List> {
        Ok(List { variant: Some(variant), items: Vec::new() })
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Object> {
        Ok(Object { variant: None, entries: Map::new(), key: None })
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Object> {
        self.serialize_map(Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object> {
        Ok(Object { variant: Some(variant), entries: Map::new(), key: None })
    }
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.items.push(value.serialize(Writer)?);
        Ok(())
    }

    fn finish(self) -> Result<Value> {
        let items = Value::Array(self.items);
        Ok(match self.variant {
            Some(name) => variant(name, items),
            None => items,
        })
    }
}

/// The traits of sequences, which differ in the names of their methods.
macro_rules! sequences {
    ($($kind:ident $method:ident),*) => {$(
        impl $kind for List {
            type Ok = Value;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.push(value)
            }

            fn end(self) -> Result<Value> {
                self.finish()
            }
        }
    )*};
}

sequences! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

impl Object {
    fn insert<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<()> {
        self.entries.insert(key, value.serialize(Writer)?);
        Ok(())
    }

    fn finish(self) -> Result<Value> {
        let Object { variant: name, entries, .. } = self;
        if entries.len() == 1 && entries.contains_key(FLOAT) {
            return Err(Error::custom(format_args!("the key `{FLOAT}` alone stands for NaN and infinity")));
        }
        let object = Value::Object(entries);
        Ok(match name {
            Some(name) => variant(name, object),
            None => object,
        })
    }
}

impl SerializeMap for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        // serde_json writes `null` for a float that is not finite, which is no key.
        self.key = Some(match serde_json::to_value(key)? {
            Value::String(key) => key,
            key @ (Value::Number(_) | Value::Bool(_)) => key.to_string(),
            key @ (Value::Null | Value::Array(_) | Value::Object(_)) => {
                return Err(Error::custom(format_args!(
                    "the key of a map is {key}, not a string or a number"
                )));
            }
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let key = self.key.take().ok_or_else(|| Error::custom("the value of a map has no key"))?;
        self.insert(key, value)
    }

    fn end(self) -> Result<Value> {
        self.finish()
    }
}

/// The traits of structs.
macro_rules! structs {
    ($($kind:ident),*) => {$(
        impl $kind for Object {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
                self.insert(key.to_owned(), value)
            }

            fn end(self) -> Result<Value> {
                self.finish()
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);

/// `{"NAME": VALUE}`.
fn variant(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
