//! `#[derive(Config)]`.

mod json;
mod options;
mod range;

use crate::crate_path;
use crate::module::crate_argument;
use options::{Body, ConfigOption, Start, is_named};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, DeriveInput, Generics, Ident, Result, Visibility};

/// The parsed input of the derive.
pub(crate) struct Input {
    ident: Ident,
    visibility: Visibility,
    generics: Generics,
    krate: TokenStream,
    body: Body,
}

pub(crate) fn derive(input: DeriveInput) -> Result<TokenStream> {
    let krate = crate_attribute(&input.attrs)?.unwrap_or_else(crate_path::find);
    let body = Body::read(&input.ident, input.data)?;
    let input = Input { ident: input.ident, visibility: input.vis, generics: input.generics, krate, body };
    let builder = builder(&input);
    let json = json::impls(&input);
    Ok(quote!(#builder #json))
}

fn crate_attribute(attributes: &[Attribute]) -> Result<Option<TokenStream>> {
    let mut krate = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("config")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected `crate = path`"));
            }
            krate = Some(crate_argument(meta.value()?)?);
            Ok(())
        })?;
    }
    Ok(krate)
}

/// Generates `new` and the `with_` methods of a struct.
fn builder(input: &Input) -> TokenStream {
    let Body::Struct(options) = &input.body else { return TokenStream::new() };
    let (name, visibility) = (&input.ident, &input.visibility);
    let (generics, arguments, clause) = input.generics.split_for_impl();
    let required = options.iter().filter(|option| matches!(option.start, Start::Required));
    let parameters = required.map(|option| {
        let (ident, ty) = (&option.ident, &option.ty);
        quote!(#ident: #ty)
    });
    let values = options.iter().map(|option| {
        let ident = &option.ident;
        match option.start.expression() {
            Some(value) => quote!(#ident: #value),
            None => quote!(#ident),
        }
    });
    let has_setter = |option: &&ConfigOption| option.has_setter && !matches!(option.start, Start::Required);
    let setters = options.iter().filter(has_setter).map(|option| {
        let (ident, ty, docs) = (&option.ident, &option.ty, &option.docs);
        let range = option.range.iter().map(|range| format!("Range: {}.", range.words()));
        let setter = format_ident!("with_{}", ident.unraw());
        let summary = format!("Sets `{}`.", ident.unraw());
        // The builder method of an `Option` also accepts a plain value.
        let (argument, value) = match &option.into {
            Some(into) => (
                quote!(impl ::core::convert::Into<#into>),
                quote!(<#ty as ::core::convert::From<#into>>::from(::core::convert::Into::into(#ident))),
            ),
            None if is_named(ty, "Option") => {
                (quote!(impl ::core::convert::Into<#ty>), quote!(::core::convert::Into::into(#ident)))
            }
            None => (quote!(#ty), quote!(#ident)),
        };
        quote! {
            #[doc = #summary]
            #[doc = ""]
            #(#docs)*
            #(#[doc = ""] #[doc = #range])*
            #[must_use]
            #[inline]
            #visibility fn #setter(mut self, #ident: #argument) -> Self {
                self.#ident = #value;
                self
            }
        }
    });
    let ranges = options.iter().filter(|option| matches!(option.start, Start::Required));
    let ranges = ranges.filter_map(|option| {
        Some(format!("\n* `{}`: {}", option.ident.unraw(), option.range.as_ref()?.words()))
    });
    quote! {
        #[automatically_derived]
        #[allow(dead_code, clippy::new_without_default)]
        impl #generics #name #arguments #clause {
            /// Returns a configuration with the required values and the defaults of all others.
            #(#[doc = #ranges])*
            #[inline]
            #visibility fn new(#(#parameters),*) -> Self {
                #name { #(#values),* }
            }
            #(#setters)*
        }
    }
}
