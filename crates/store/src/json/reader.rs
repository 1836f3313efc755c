//! Deserialization from JSON values.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Number, Result, Value};

use super::float_of;

/// Deserializes as serde_json does, except for the objects that stand for floats.
#[derive(Clone, Copy)]
pub(super) struct Reader<'de>(pub(super) &'de Value);

/// The key of an object, which may be a number or a boolean as text.
#[derive(Clone, Copy)]
struct Key<'de>(&'de str);

impl<'de> IntoDeserializer<'de, Error> for Reader<'de> {
    type Deserializer = Reader<'de>;

    fn into_deserializer(self) -> Reader<'de> {
        self
    }
}

impl<'de> IntoDeserializer<'de, Error> for Key<'de> {
    type Deserializer = Key<'de>;

    fn into_deserializer(self) -> Key<'de> {
        self
    }
}

impl<'de> Reader<'de> {
    /// The entries of an object, as a map or the variant of an enum.
    fn entries(
        object: &'de serde_json::Map<String, Value>,
    ) -> MapDeserializer<'de, impl Iterator<Item = (Key<'de>, Reader<'de>)>, Error> {
        MapDeserializer::new(object.iter().map(|(key, value)| (Key(key), Reader(value))))
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if let Some(float) = float_of(self.0) {
            return visitor.visit_f64(float);
        }
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(Reader));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(object) => {
                let mut entries = Reader::entries(object);
                let value = visitor.visit_map(&mut entries)?;
                entries.end()?;
                Ok(value)
            }
            scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                scalar.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            Value::String(variant) => visitor.visit_enum(StrDeserializer::<Error>::new(variant)),
            Value::Object(object) if object.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Reader::entries(object)))
            }
            Value::Object(_) => Err(Error::invalid_value(Unexpected::Map, &"a map with a single key")),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
                Err(Error::custom(format_args!("invalid type: {other}, expected a string or a map")))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// Methods for keys that are numbers as text.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match serde_json::from_str::<Number>(self.0) {
                Ok(number) => number.$method(visitor),
                Err(_) => visitor.visit_borrowed_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.0)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => visitor.visit_borrowed_str(other),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(StrDeserializer::<Error>::new(self.0))
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
