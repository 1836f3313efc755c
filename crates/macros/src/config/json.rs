//! Generates the impls that serialize a configuration to JSON and deserialize it.
//!
//! Deserialization uses a private copy of the type that derives serde's `Deserialize`, since a derive cannot add
//! serde's attributes to the type itself.

use super::Input;
use super::options::{Body, ConfigOption, Start, Variant};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Fields, Ident, LitStr};

pub(crate) fn impls(input: &Input) -> TokenStream {
    let (krate, name) = (&input.krate, &input.ident);
    let (generics, arguments, _) = input.generics.split_for_impl();
    let writes = bounded(input, quote!(#krate::module::derived::serde::Serialize));
    let reads = bounded(input, quote!(#krate::module::derived::serde::de::DeserializeOwned));
    let both = bounded(
        input,
        quote!(#krate::module::derived::serde::Serialize + #krate::module::derived::serde::de::DeserializeOwned),
    );
    let (serialize, copy) = match &input.body {
        Body::Struct(options) => (write_struct(input, options), copy_of_struct(input, options)),
        Body::Enum(variants) => (write_enum(input, variants), copy_of_enum(input, variants)),
    };
    let check = match &input.body {
        Body::Struct(options) => check_ranges(krate, options),
        Body::Enum(_) => TokenStream::new(),
    };
    let mut read_generics = input.generics.clone();
    read_generics.params.insert(0, syn::parse_quote!('de));
    let (read_generics, _, _) = read_generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #generics #krate::module::derived::serde::Serialize for #name #arguments #writes {
            fn serialize<Ser: #krate::module::derived::serde::Serializer>(
                &self,
                serializer: Ser,
            ) -> ::core::result::Result<Ser::Ok, Ser::Error> {
                #serialize
            }
        }

        const _: () = {
            #copy

            #[automatically_derived]
            impl #read_generics #krate::module::derived::serde::Deserialize<'de> for #name #arguments #reads {
                fn deserialize<De: #krate::module::derived::serde::Deserializer<'de>>(
                    deserializer: De,
                ) -> ::core::result::Result<Self, De::Error> {
                    <__Copy #arguments as #krate::module::derived::serde::Deserialize<'de>>::deserialize(deserializer).map(__Copy::original)
                }
            }
        };

        #[automatically_derived]
        impl #generics #krate::Config for #name #arguments #both { #check }

        #[automatically_derived]
        impl #generics ::core::fmt::Display for #name #arguments #both {
            // Compiled only in crates that use it: it serializes every field.
            #[inline]
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                #krate::config::display(self, f)
            }
        }
    }
}

/// The check of the fields with ranges: one call with a row for each, to keep the generated code small.
fn check_ranges(krate: &TokenStream, options: &[ConfigOption]) -> TokenStream {
    let rows = options.iter().filter_map(|option| {
        let range = option.range.as_ref()?;
        let (ident, name, bounds) = (&option.ident, text(&option.ident), range.expression());
        let expected = range.expected.as_ref().map_or_else(|| range.words(), LitStr::value);
        Some(quote!((&self.#ident, #name, #bounds, #expected)))
    });
    let rows: Vec<TokenStream> = rows.collect();
    if rows.is_empty() {
        return TokenStream::new();
    }
    quote! {
        fn check_ranges(&self) -> ::core::result::Result<(), #krate::OutOfRange> {
            #krate::config::check_ranges(&[#(#rows),*])
        }
    }
}

/// The where clause of the type plus a bound on each type parameter.
fn bounded(input: &Input, bound: TokenStream) -> TokenStream {
    let written = input.generics.where_clause.iter().flat_map(|clause| clause.predicates.iter());
    let parameters = input.generics.type_params().map(|parameter| &parameter.ident);
    quote!(where #(#written,)* #(#parameters: #bound),*)
}

fn text(ident: &Ident) -> String {
    ident.unraw().to_string()
}

fn write_struct(input: &Input, options: &[ConfigOption]) -> TokenStream {
    let (krate, name, count) = (&input.krate, text(&input.ident), options.len());
    let fields = options.iter().map(|option| {
        let (ident, key) = (&option.ident, text(&option.ident));
        quote!(#krate::module::derived::serde::ser::SerializeStruct::serialize_field(&mut writer, #key, &self.#ident)?;)
    });
    quote! {
        #[allow(unused_mut)]
        let mut writer = #krate::module::derived::serde::Serializer::serialize_struct(serializer, #name, #count)?;
        #(#fields)*
        #krate::module::derived::serde::ser::SerializeStruct::end(writer)
    }
}

fn write_enum(input: &Input, variants: &[Variant]) -> TokenStream {
    let (krate, name, enum_name) = (&input.krate, &input.ident, text(&input.ident));
    let arms = variants.iter().enumerate().map(|(index, variant)| {
        let (ident, key, index) = (&variant.ident, text(&variant.ident), index as u32);
        let (bindings, pattern) = bindings(&variant.fields);
        let count = bindings.len();
        let body = match &variant.fields {
            Fields::Unit => quote! {
                #krate::module::derived::serde::Serializer::serialize_unit_variant(serializer, #enum_name, #index, #key)
            },
            Fields::Unnamed(_) if count == 1 => quote! {
                #krate::module::derived::serde::Serializer::serialize_newtype_variant(serializer, #enum_name, #index, #key, field_0)
            },
            Fields::Unnamed(_) => quote! {{
                let mut writer = #krate::module::derived::serde::Serializer::serialize_tuple_variant(
                    serializer, #enum_name, #index, #key, #count,
                )?;
                #(#krate::module::derived::serde::ser::SerializeTupleVariant::serialize_field(&mut writer, #bindings)?;)*
                #krate::module::derived::serde::ser::SerializeTupleVariant::end(writer)
            }},
            Fields::Named(fields) => {
                let keys = fields.named.iter().filter_map(|field| field.ident.as_ref().map(text));
                quote! {{
                    let mut writer = #krate::module::derived::serde::Serializer::serialize_struct_variant(
                        serializer, #enum_name, #index, #key, #count,
                    )?;
                    #(#krate::module::derived::serde::ser::SerializeStructVariant::serialize_field(&mut writer, #keys, #bindings)?;)*
                    #krate::module::derived::serde::ser::SerializeStructVariant::end(writer)
                }}
            }
        };
        quote!(#name::#ident #pattern => #body,)
    });
    quote!(match self { #(#arms)* })
}

/// A binding for each field, and the pattern that binds them.
fn bindings(fields: &Fields) -> (Vec<Ident>, TokenStream) {
    let names: Vec<Ident> = (0..fields.len()).map(|index| format_ident!("field_{index}")).collect();
    let pattern = match fields {
        Fields::Unit => TokenStream::new(),
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Named(fields) => {
            let idents = fields.named.iter().map(|field| &field.ident);
            quote!({ #(#idents: #names),* })
        }
    };
    (names, pattern)
}

/// The serde attributes of the generated copy, without those of its fields.
fn copy_attributes(input: &Input) -> TokenStream {
    let krate = &input.krate;
    let (serde, name) = (quote!(#krate::module::derived::serde).to_string(), text(&input.ident));
    quote! {
        #[derive(#krate::module::derived::serde::Deserialize)]
        #[serde(crate = #serde, rename = #name, deny_unknown_fields)]
        #[allow(clippy::all)]
    }
}

fn copy_of_struct(input: &Input, options: &[ConfigOption]) -> TokenStream {
    let (name, attributes) = (&input.ident, copy_attributes(input));
    let (generics, arguments, clause) = input.generics.split_for_impl();
    let declared = declared_generics(input);
    let turbofish = arguments_as_expression(input);
    let fields = options.iter().map(|option| {
        let (ident, ty) = (&option.ident, &option.ty);
        let default = match &option.start {
            Start::Required => TokenStream::new(),
            Start::Absent => quote!(#[serde(default)]),
            Start::Default(_) => {
                let function = format!("__Copy{turbofish}::{}", default_name(ident));
                quote!(#[serde(default = #function)])
            }
        };
        quote!(#default #ident: #ty)
    });
    let defaults = options.iter().filter_map(|option| match &option.start {
        Start::Required | Start::Absent => None,
        Start::Default(expression) => {
            let (function, ty) = (default_name(&option.ident), &option.ty);
            Some(quote!(fn #function() -> #ty { #expression }))
        }
    });
    let idents: Vec<&Ident> = options.iter().map(|option| &option.ident).collect();
    quote! {
        #attributes
        struct __Copy #declared #clause { #(#fields),* }

        impl #generics __Copy #arguments #clause {
            #(#defaults)*
            fn original(self) -> #name #arguments {
                #name { #(#idents: self.#idents),* }
            }
        }
    }
}

fn copy_of_enum(input: &Input, variants: &[Variant]) -> TokenStream {
    let (name, attributes) = (&input.ident, copy_attributes(input));
    let (generics, arguments, clause) = input.generics.split_for_impl();
    let declared = declared_generics(input);
    let copies = variants.iter().map(|variant| {
        let ident = &variant.ident;
        let types = variant.fields.iter().map(|field| &field.ty);
        match &variant.fields {
            Fields::Unit => quote!(#ident),
            Fields::Unnamed(_) => quote!(#ident(#(#types),*)),
            Fields::Named(fields) => {
                let idents = fields.named.iter().map(|field| &field.ident);
                quote!(#ident { #(#idents: #types),* })
            }
        }
    });
    let arms = variants.iter().map(|variant| {
        let ident = &variant.ident;
        let (_, pattern) = bindings(&variant.fields);
        quote!(__Copy::#ident #pattern => #name::#ident #pattern,)
    });
    quote! {
        #attributes
        enum __Copy #declared #clause { #(#copies),* }

        impl #generics __Copy #arguments #clause {
            fn original(self) -> #name #arguments {
                match self { #(#arms)* }
            }
        }
    }
}

fn default_name(ident: &Ident) -> Ident {
    format_ident!("default_{}", ident.unraw())
}

/// The generic parameters as declared, without defaults.
fn declared_generics(input: &Input) -> TokenStream {
    let (generics, _, _) = input.generics.split_for_impl();
    quote!(#generics)
}

/// The generic arguments in expression form: `::<T>`.
fn arguments_as_expression(input: &Input) -> String {
    let (_, arguments, _) = input.generics.split_for_impl();
    arguments.as_turbofish().to_token_stream().to_string()
}
