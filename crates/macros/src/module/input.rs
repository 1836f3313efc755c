//! The parsed derive input.

use crate::crate_path;
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Generics, Ident, Index, LitStr, Member, Path, Result, Type,
};

/// The parsed input of the derive.
pub(crate) struct Input {
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    /// Path of the crate with the traits.
    pub(crate) krate: TokenStream,
    pub(crate) display: bool,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

pub(crate) struct Variant {
    pub(crate) ident: Ident,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) member: Member,
    /// The name in dotted paths.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) role: Role,
}

/// The role of a field in the module.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// A traversed module.
    Module,
    /// Plain data that the layer table shows.
    Attribute,
    /// Plain data that the layer table does not show.
    Skip,
    /// A `PhantomData`, whose type changes with the backend.
    Marker,
}

impl Input {
    pub(crate) fn read(input: DeriveInput) -> Result<Input> {
        let container = Container::read(&input.attrs)?;
        let body = match input.data {
            Data::Struct(data) => Body::Struct(fields(data.fields)?),
            Data::Enum(data) if data.variants.is_empty() => {
                let problem = "an enum without variants cannot be a module: no value of it exists";
                return Err(Error::new_spanned(&input.ident, problem));
            }
            Data::Enum(data) => Body::Enum(data.variants.into_iter().map(variant).collect::<Result<_>>()?),
            Data::Union(data) => {
                let problem = "a union cannot be a module: derive `Module` for a struct or an enum";
                return Err(Error::new(data.union_token.span, problem));
            }
        };
        let krate = container.krate.unwrap_or_else(crate_path::find);
        Ok(Input {
            ident: input.ident,
            generics: input.generics,
            krate,
            display: !container.no_display,
            body,
        })
    }

    /// Returns all fields of all variants.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        let (own, variants) = match &self.body {
            Body::Struct(fields) => (fields.as_slice(), [].as_slice()),
            Body::Enum(variants) => ([].as_slice(), variants.as_slice()),
        };
        own.iter().chain(variants.iter().flat_map(|variant| &variant.fields))
    }
}

impl Variant {
    /// Returns the field if it is the only one and unnamed.
    pub(crate) fn only_unnamed(&self) -> Option<&Field> {
        match self.fields.as_slice() {
            [field] if matches!(field.member, Member::Unnamed(_)) => Some(field),
            _ => None,
        }
    }
}

fn variant(variant: syn::Variant) -> Result<Variant> {
    if let Some(attribute) = variant.attrs.iter().find(|attribute| attribute.path().is_ident("module")) {
        return Err(Error::new_spanned(attribute, "`#[module(…)]` belongs on the fields of a variant"));
    }
    Ok(Variant { ident: variant.ident, fields: fields(variant.fields)? })
}

fn fields(fields: Fields) -> Result<Vec<Field>> {
    fields.into_iter().enumerate().map(|(place, field)| Field::read(place, field)).collect()
}

impl Field {
    fn read(place: usize, field: syn::Field) -> Result<Field> {
        let mut role = None;
        let mut rename = None;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                let wanted = match () {
                    () if meta.path.is_ident("skip") => Role::Skip,
                    () if meta.path.is_ident("attribute") => Role::Attribute,
                    () if meta.path.is_ident("rename") => {
                        rename = Some(name(meta.value()?.parse()?)?);
                        return Ok(());
                    }
                    () => return Err(meta.error("expected `skip`, `attribute` or `rename = \"name\"`")),
                };
                if role.replace(wanted).is_some_and(|before| before != wanted) {
                    return Err(meta.error("a field is either `skip` or `attribute`"));
                }
                Ok(())
            })?;
        }
        let (member, own_name) = match field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (Member::Unnamed(Index::from(place)), place.to_string()),
        };
        let role = match role {
            _ if is_marker(&field.ty) => Role::Marker,
            Some(role) => role,
            None => Role::Module,
        };
        Ok(Field { member, name: rename.unwrap_or(own_name), ty: field.ty, role })
    }
}

fn is_marker(ty: &Type) -> bool {
    matches!(ty, Type::Path(ty) if ty.path.segments.last().is_some_and(|segment| segment.ident == "PhantomData"))
}

/// Parses a name that is valid in a dotted path.
fn name(text: LitStr) -> Result<String> {
    let name = text.value();
    if name.is_empty() || name.contains('.') {
        return Err(Error::new_spanned(&text, "a name in a path is not empty and has no dots"));
    }
    Ok(name)
}

#[derive(Default)]
struct Container {
    krate: Option<TokenStream>,
    no_display: bool,
}

impl Container {
    fn read(attributes: &[Attribute]) -> Result<Container> {
        let mut container = Container::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    container.krate = Some(crate_argument(meta.value()?)?);
                } else if meta.path.is_ident("no_display") {
                    container.no_display = true;
                } else {
                    return Err(meta.error("expected `crate = path` or `no_display`"));
                }
                Ok(())
            })?;
        }
        Ok(container)
    }
}

/// Parses the path after `crate =`, given as a path or as a string literal.
pub(crate) fn crate_argument(input: syn::parse::ParseStream<'_>) -> Result<TokenStream> {
    if input.peek(LitStr) {
        return Ok(input.parse::<LitStr>()?.parse::<Path>()?.into_token_stream());
    }
    Ok(input.call(Path::parse_mod_style)?.into_token_stream())
}

/// The identifier of a type parameter on the other backend.
pub(crate) fn inner_name(ident: &Ident) -> Ident {
    format_ident!("Inner{}", ident)
}
