//! Printing of ops: a serializer that turns the serde form of an op into attributes.

use super::attribute::Attribute;
use super::exceptions::{columns, implied, in_name};
use crate::{Op, Scalar, TensorType};
use alloc::vec::Vec;
use core::fmt::Error;
use serde::ser::{
    Impossible, Serialize, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, Serializer,
};

type Result<T = ()> = core::result::Result<T, Error>;
type Attributes = Vec<(&'static str, Attribute<'static>)>;

/// The op's name in text.
pub(super) fn word(op: &Op) -> &str {
    if let Op::Custom(_) = op { op.info().name } else { op.name() }
}

/// The attributes of an op, except those that are [implied] by the type of the first result.
pub(super) fn attributes(op: &Op, result: Option<&TensorType>) -> Result<Attributes> {
    let mut form = Form { named: in_name(op.kind()), ..Form::default() };
    if let Op::Fused(fused) = op {
        form.attributes.push(("program", Attribute::Program(fused.shared().clone())));
        form.add("pattern", fused.pattern())?;
    } else if let Op::Loop(looped) = op {
        form.add("attributes", &looped.attributes())?;
        form.attributes.push(("body", Attribute::Program(looped.shared().clone())));
    } else {
        form = op.serialize(form)?;
    }
    form.attributes.retain(|(key, value)| implied(key, result).as_ref() != Some(value));
    Ok(form.attributes)
}

/// A serialized value. The empty one is the serializer.
#[derive(Default)]
struct Form {
    /// The attribute that the name of the op contains.
    named: &'static str,
    /// The serde name of the type, if it has one: the key of a value that is in no field.
    ty: &'static str,
    /// The value, unless it is a struct or absent. The variant of an enum.
    value: Option<Attribute<'static>>,
    /// The fields, or the entries of a list, without keys.
    attributes: Attributes,
}

impl Form {
    fn serialized<T: Serialize + ?Sized>(&self, value: &T) -> Result<Form> {
        value.serialize(Form { named: self.named, ..Form::default() })
    }

    fn of(self, value: Attribute<'static>) -> Result<Form> {
        Ok(Form { value: Some(value), attributes: Vec::new(), ..self })
    }

    fn list(self) -> Result<Form> {
        let list = Attribute::List(self.values());
        Form::default().of(list)
    }

    fn fields(self) -> Result<Form> {
        if self.ty != "type" {
            return Ok(self);
        }
        Form { ty: self.ty, ..Form::default() }.of(Attribute::Type(self.values()))
    }

    fn values(self) -> Vec<Attribute<'static>> {
        self.attributes.into_iter().map(|(_, value)| value).collect()
    }

    fn add<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result {
        let form = self.serialized(value)?;
        self.merge(key, form);
        Ok(())
    }

    fn add_entry<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let mut form = self.serialized(value)?;
        let entry = form.value.take().unwrap_or_else(|| Attribute::List(form.values()));
        self.attributes.push(("", entry));
        Ok(())
    }

    /// Adds a value, and its fields as attributes of the op.
    fn merge(&mut self, key: &'static str, form: Form) {
        match (columns(key), form.value) {
            (Some(columns), Some(Attribute::List(rows))) => {
                for (place, (key, default)) in columns.iter().enumerate() {
                    let column: Vec<_> = rows.iter().filter_map(|row| row.entry(place)).collect();
                    let default = default.map(|number| Attribute::Number(Scalar::Int(number)));
                    if default.is_none_or(|default| column.iter().any(|entry| *entry != default)) {
                        self.attributes.push((key, Attribute::List(column)));
                    }
                }
            }
            (_, Some(value)) if key != self.named => self.attributes.push((key, value)),
            (_, Some(_) | None) => {}
        }
        self.attributes.extend(form.attributes);
    }
}

macro_rules! numbers {
    ($($serialize:ident $number:ty,)*) => {$(
        fn $serialize(self, number: $number) -> Result<Form> {
            self.of(Attribute::Number(Scalar::from(number)))
        }
    )*};
}

macro_rules! unused {
    ($($serialize:ident($($argument:ty),*) -> $form:ty;)*) => {$(
        fn $serialize(self, $(_: $argument),*) -> Result<$form> {
            Err(Error)
        }
    )*};
}

impl Serializer for Form {
    type Ok = Form;
    type Error = Error;
    type SerializeSeq = Form;
    type SerializeTuple = Form;
    type SerializeTupleStruct = Impossible<Form, Error>;
    type SerializeTupleVariant = Impossible<Form, Error>;
    type SerializeMap = Impossible<Form, Error>;
    type SerializeStruct = Form;
    type SerializeStructVariant = Form;

    numbers! {
        serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_f32 f32, serialize_f64 f64,
    }

    unused! {
        serialize_char(char) -> Form;
        serialize_bytes(&[u8]) -> Form;
        serialize_unit() -> Form;
        serialize_unit_struct(&'static str) -> Form;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
    }

    /// Small numbers are printed as plain integers.
    fn serialize_u64(self, number: u64) -> Result<Form> {
        self.of(Attribute::Number(i64::try_from(number).map_or(Scalar::UInt(number), Scalar::Int)))
    }

    fn serialize_str(self, text: &str) -> Result<Form> {
        self.of(Attribute::Text(text.into()))
    }

    fn serialize_none(self) -> Result<Form> {
        Ok(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Form> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, ty: &'static str, _: u32, variant: &'static str) -> Result<Form> {
        Form { ty, ..self }.of(Attribute::Word(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, ty: &'static str, value: &T) -> Result<Form> {
        Ok(Form { ty, ..value.serialize(self)? })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Form> {
        let content = self.serialized(value)?;
        match content.value {
            Some(Attribute::Number(number)) if variant == "uint" => {
                self.of(Attribute::Number(Scalar::UInt(number.to_u64())))
            }
            Some(value @ Attribute::Number(_)) if ty == "Scalar" => self.of(value),
            value => {
                let mut form = Form { ty, value: Some(Attribute::Word(variant)), ..self };
                let key = if content.ty.is_empty() { variant } else { content.ty };
                form.merge(key, Form { value, ..content });
                Ok(form)
            }
        }
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Form> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Form> {
        Ok(self)
    }

    fn serialize_struct(self, ty: &'static str, _: usize) -> Result<Form> {
        Ok(Form { ty, ..self })
    }

    fn serialize_struct_variant(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Form> {
        Form { ty, ..self }.of(Attribute::Word(variant))
    }
}

macro_rules! compound {
    ($($trait:ident $serialize:ident($($key:ident: $text:ty)?) $add:ident $end:ident;)*) => {$(
        impl $trait for Form {
            type Ok = Form;
            type Error = Error;

            fn $serialize<T: Serialize + ?Sized>(&mut self, $($key: $text,)? value: &T) -> Result {
                self.$add($($key,)? value)
            }

            fn end(self) -> Result<Form> {
                self.$end()
            }
        }
    )*};
}

compound! {
    SerializeSeq serialize_element() add_entry list;
    SerializeTuple serialize_element() add_entry list;
    SerializeStruct serialize_field(key: &'static str) add fields;
    SerializeStructVariant serialize_field(key: &'static str) add fields;
}
