//! The deserializer of ops: their serde form, read from attributes.

use super::attribute::Attribute;
use super::build::Given;
use super::exceptions::columns;
use crate::Scalar;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;
use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// The reason why attributes are not those of an op.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// A message about the op.
    #[error("{0}")]
    Op(String),
    /// The values that the attribute that was read last may have.
    #[error("{0}")]
    Wanted(String),
}

/// The types that serde expects, in the words of messages.
const WANTED: [(&str, &str); 9] = [
    ("usize", "a non-negative integer"),
    ("u64", "a non-negative integer"),
    ("u32", "an integer below 2^32"),
    ("isize", "an integer"),
    ("i64", "an integer"),
    ("f64", "a real number"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("a sequence", "a list"),
];

impl Problem {
    fn wanted(expected: &dyn Expected) -> Problem {
        let expected = expected.to_string();
        let wanted = WANTED.iter().find(|(serde, _)| *serde == expected);
        Problem::Wanted(wanted.map_or(expected, |(_, wanted)| (*wanted).into()))
    }
}

impl Error for Problem {
    fn custom<T: Display>(problem: T) -> Problem {
        Problem::Op(problem.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        Problem::wanted(expected)
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Problem {
        Problem::wanted(expected)
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Problem {
        Problem::wanted(expected)
    }
}

/// A value that is to be read.
pub(super) struct Value<'g, 't> {
    given: &'g Given<'g, 't>,
    /// The attribute, or the name of the variant that holds the value, until its type is known.
    key: &'static str,
    is_variant: bool,
    /// An entry of the attribute that is read instead.
    entry: Option<Attribute<'t>>,
}

impl<'g, 't> Value<'g, 't> {
    /// The value of an attribute. If it is a struct, its fields are attributes of the op.
    pub(super) fn new(given: &'g Given<'g, 't>, key: &'static str) -> Value<'g, 't> {
        Value { given, key, is_variant: false, entry: None }
    }

    fn of_type(self, ty: &'static str) -> Self {
        if self.is_variant { Value { key: ty, is_variant: false, ..self } } else { self }
    }

    fn read(&mut self) -> Result<Attribute<'t>, Problem> {
        let Some(entry) = self.entry.take() else { return self.given.attribute(self.key) };
        self.given.last.set((self.key, true));
        Ok(entry)
    }

    fn visit_list<'de, V: Visitor<'de>>(
        &self,
        list: Vec<Attribute<'t>>,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let last = self.given.last.get();
        let entries =
            list.into_iter().map(|entry| Value { entry: Some(entry), ..Value::new(self.given, self.key) });
        let value = visitor.visit_seq(SeqDeserializer::new(entries))?;
        self.given.last.set(last);
        Ok(value)
    }

    /// The structs of a list, each as the list of its fields.
    fn rows(&self, columns: &[(&'static str, Option<i64>)]) -> Result<Vec<Attribute<'t>>, Problem> {
        let mut rows: Vec<Vec<Attribute<'t>>> = Vec::new();
        for (place, &(key, default)) in columns.iter().enumerate() {
            let column = match default.filter(|_| !self.given.has(key)) {
                Some(default) => vec![Attribute::Number(Scalar::Int(default)); rows.len()],
                None => self.given.attribute(key)?.list().ok_or_else(|| Problem::Wanted("a list".into()))?,
            };
            if place == 0 {
                rows.resize(column.len(), Vec::new());
            }
            if rows.len() != column.len() {
                let keys: Vec<&str> = columns.iter().map(|(key, _)| *key).collect();
                return Err(Problem::Op(format!(
                    "{} must have one entry per axis each",
                    joined(&keys, "and")
                )));
            }
            rows.iter_mut().zip(column).for_each(|(row, entry)| row.push(entry));
        }
        Ok(rows.into_iter().map(Attribute::List).collect())
    }
}

fn joined(words: &[&str], last: &str) -> String {
    match words {
        [words @ .., word] if !words.is_empty() => format!("{} {last} {word}", words.join(", ")),
        _ => words.concat(),
    }
}

impl IntoDeserializer<'_, Problem> for Value<'_, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value<'_, '_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Problem> {
        match self.read()? {
            Attribute::Number(Scalar::Float(x)) => visitor.visit_f64(x),
            Attribute::Number(Scalar::Int(x)) => visitor.visit_i64(x),
            Attribute::Number(Scalar::UInt(x)) => visitor.visit_u64(x),
            Attribute::Number(Scalar::Bool(x)) => visitor.visit_bool(x),
            Attribute::Text(text) => visitor.visit_string(text),
            Attribute::List(list) => self.visit_list(list, visitor),
            Attribute::Word(_) | Attribute::Type(_) | Attribute::Program(_) => Err(Problem::wanted(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let choice = self.given.variant(self.key);
        match choice.or(self.given.parsed.is_none().then_some(0)) {
            Some(choice @ 0..=1) => visitor.visit_bool(choice == 1),
            Some(_) => Err(Problem::wanted(&visitor)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.given.has(self.key) { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        ty: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self.of_type(ty))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match columns(self.key) {
            _ if self.given.parsed.is_none() => self.visit_list(Vec::new(), visitor),
            Some(columns) => self.visit_list(self.rows(columns)?, visitor),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, Problem> {
        match self.read()?.list() {
            Some(list) if list.len() == len => self.visit_list(list, visitor),
            Some(_) | None => Err(Problem::wanted(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        ty: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let mut value = self.of_type(ty);
        if ty == "type" && value.given.parsed.is_some() {
            let Attribute::Type(parts) = value.read()? else {
                return Err(Problem::Wanted("a type such as `f32[2, 3]`".into()));
            };
            return value.visit_list(parts, visitor);
        }
        let field = |(place, key)| {
            let entry = value.entry.as_ref().and_then(|row| row.entry(place));
            Value { entry, ..Value::new(value.given, key) }
        };
        visitor.visit_seq(SeqDeserializer::new(fields.iter().copied().enumerate().map(field)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        ty: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let mut value = self.of_type(ty);
        let (index, entry) = match value.given.variant(value.key) {
            Some(index) => (Some(index), None),
            None => match value.read()? {
                Attribute::Word(word) => (variants.iter().position(|variant| *variant == word), None),
                Attribute::Number(number) if ty == "Scalar" || value.given.parsed.is_none() => {
                    (Some(number.bits().0.into()), Some(Attribute::Number(number)))
                }
                Attribute::Number(_)
                | Attribute::Text(_)
                | Attribute::Type(_)
                | Attribute::List(_)
                | Attribute::Program(_) => (None, None),
            },
        };
        let variant = index.and_then(|index| Some((index, *variants.get(index)?)));
        let (index, key) = variant.ok_or_else(|| Problem::Wanted(joined(variants, "or")))?;
        visitor.visit_enum(Variant { index, value: Value { key, is_variant: true, entry, ..value } })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct tuple_struct map
        identifier ignored_any
    }
}

/// A variant of an enum, and the value that it holds.
struct Variant<'g, 't> {
    index: usize,
    value: Value<'g, 't>,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Problem> {
        let index: Result<V::Value, Problem> = seed.deserialize((self.index as u64).into_deserializer());
        Ok((index?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Problem> {
        seed.deserialize(self.value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Problem> {
        self.value.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.value.deserialize_struct("", fields, visitor)
    }
}
