//! The fields of a configuration.

use super::range::Range;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, Error, Fields, Ident, LitStr, Result, Type};

pub(crate) enum Body {
    Struct(Vec<ConfigOption>),
    Enum(Vec<Variant>),
}

/// A field of a struct.
pub(crate) struct ConfigOption {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) docs: Vec<Attribute>,
    pub(crate) start: Start,
    /// The type that the builder method converts its argument to, before the conversion to the field's type.
    pub(crate) into: Option<Type>,
    /// Whether the builder method is generated.
    pub(crate) has_setter: bool,
    /// The range of its numbers.
    pub(crate) range: Option<Range>,
}

/// The initial value of a field.
pub(crate) enum Start {
    /// Required: an argument of `new`.
    Required,
    /// `None` by default.
    Absent,
    /// The default expression.
    Default(TokenStream),
}

pub(crate) struct Variant {
    pub(crate) ident: Ident,
    pub(crate) fields: Fields,
}

impl Body {
    pub(crate) fn read(name: &Ident, data: Data) -> Result<Body> {
        match data {
            Data::Struct(data) => match data.fields {
                Fields::Named(fields) => {
                    Ok(Body::Struct(fields.named.into_iter().map(ConfigOption::read).collect::<Result<_>>()?))
                }
                Fields::Unit => Ok(Body::Struct(Vec::new())),
                Fields::Unnamed(fields) => Err(Error::new_spanned(
                    fields,
                    "the fields of a configuration need names: `struct Name { … }`",
                )),
            },
            Data::Enum(data) if data.variants.is_empty() => {
                Err(Error::new_spanned(name, "an enum without variants cannot be a configuration"))
            }
            Data::Enum(data) => {
                Ok(Body::Enum(data.variants.into_iter().map(variant).collect::<Result<_>>()?))
            }
            Data::Union(data) => {
                let problem = "a union cannot be a configuration: derive `Config` for a struct or an enum";
                Err(Error::new(data.union_token.span, problem))
            }
        }
    }
}

fn variant(variant: syn::Variant) -> Result<Variant> {
    let attributes = variant.attrs.iter().chain(variant.fields.iter().flat_map(|field| &field.attrs));
    if let Some(attribute) = attributes.into_iter().find(|attribute| attribute.path().is_ident("config")) {
        return Err(Error::new_spanned(
            attribute,
            "defaults belong on the fields of a struct, not of an enum",
        ));
    }
    Ok(Variant { ident: variant.ident, fields: variant.fields })
}

impl ConfigOption {
    fn read(field: syn::Field) -> Result<ConfigOption> {
        let Some(ident) = field.ident.clone() else {
            return Err(Error::new_spanned(&field, "the fields of a configuration need names"));
        };
        let mut start = if is_named(&field.ty, "Option") { Start::Absent } else { Start::Required };
        let (mut into, mut has_setter, mut range) = (None, true, None::<Range>);
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("config")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("no_setter") {
                    has_setter = false;
                    return Ok(());
                }
                if meta.path.is_ident("into") {
                    into = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                if meta.path.is_ident("range") {
                    range = Some(Range::parse(&meta.value()?.parse()?)?);
                    return Ok(());
                }
                if meta.path.is_ident("expected") {
                    let range = range.as_mut().ok_or_else(|| meta.error("expected `range` before it"))?;
                    range.expected = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                if !meta.path.is_ident("default") {
                    return Err(meta.error(
                        "expected `range = \"[low, high]\"`, `default = expression`, `into = Type` or `no_setter`",
                    ));
                }
                start = Start::Default(default(meta.value()?, &field.ty)?);
                Ok(())
            })?;
        }
        let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        Ok(ConfigOption { ident, ty: field.ty, docs, start, into, has_setter, range })
    }
}

impl Start {
    /// The default value; `None` for a required field.
    pub(crate) fn expression(&self) -> Option<TokenStream> {
        match self {
            Start::Required => None,
            Start::Absent => Some(quote!(::core::option::Option::None)),
            Start::Default(expression) => Some(expression.clone()),
        }
    }
}

/// Parses the expression after `default =`, up to the end of the attribute.
fn default(input: syn::parse::ParseStream<'_>, ty: &Type) -> Result<TokenStream> {
    let only_text = input.fork().parse::<LitStr>().is_ok() && {
        let ahead = input.fork();
        ahead.parse::<LitStr>().is_ok() && ahead.is_empty()
    };
    if !only_text {
        let expression: TokenStream = input.parse()?;
        if expression.is_empty() {
            return Err(input.error("expected an expression"));
        }
        return Ok(expression);
    }
    let text: LitStr = input.parse()?;
    match is_named(ty, "String") {
        true => Ok(quote!(#text.into())),
        false => text.parse(),
    }
}

/// Whether the last segment of a type's path has this name. A type that a declarative macro passes is a group.
pub(crate) fn is_named(ty: &Type, name: &str) -> bool {
    if let Type::Group(group) = ty {
        return is_named(&group.elem, name);
    }
    matches!(ty, Type::Path(ty) if ty.path.segments.last().is_some_and(|segment| segment.ident == name))
}
