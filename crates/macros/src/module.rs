//! `#[derive(Module)]`.

mod input;
mod parameters;

pub(crate) use input::crate_argument;
use input::{Body, Field, Input, Role, Variant};
use parameters::Parameters;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Ident, Result};

pub(crate) fn derive(input: DeriveInput) -> Result<TokenStream> {
    let input = Input::read(input)?;
    let parameters = Parameters::read(&input)?;
    let module = module(&input, &parameters);
    let backend = backend_module(&input, &parameters);
    let on = module_on(&input, &parameters);
    let display = if input.display { display(&input, &parameters) } else { TokenStream::new() };
    Ok(quote!(#module #backend #on #display))
}

/// Generates `impl Module`: the traversal. A function that is `#[inline]` is compiled only in crates that use it.
fn module(input: &Input, parameters: &Parameters) -> TokenStream {
    let (krate, name) = (&input.krate, &input.ident);
    let (generics, arguments, bounds) = parameters.for_module(krate);
    let visit = traversal(input, Traversal::Shared);
    let visit_mut = traversal(input, Traversal::Exclusive);
    quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #generics #krate::Module for #name #arguments #bounds {
            #[inline]
            fn visit(&self, path: &mut #krate::Path, visitor: &mut dyn #krate::Visitor) { #visit }
            #[inline]
            fn visit_mut(&mut self, path: &mut #krate::Path, visitor: &mut dyn #krate::VisitorMut) { #visit_mut }
        }
    }
}

/// Generates `impl BackendModule`: a marker with provided methods.
fn backend_module(input: &Input, parameters: &Parameters) -> TokenStream {
    let (krate, name) = (&input.krate, &input.ident);
    let (generics, arguments, bounds) = parameters.for_backend_module(input);
    let backend = parameters.backend();
    quote! {
        #[automatically_derived]
        impl #generics #krate::BackendModule<#backend> for #name #arguments #bounds {}
    }
}

/// Generates `impl ModuleOn`: the same module on another backend.
fn module_on(input: &Input, parameters: &Parameters) -> TokenStream {
    let (krate, name) = (&input.krate, &input.ident);
    let (generics, arguments, bounds) = parameters.for_module_on(input);
    let target = parameters.target();
    let on = parameters.target_arguments();
    let body = rebuilt(input, parameters);
    quote! {
        #[automatically_derived]
        #[allow(unused_imports, unused_variables)]
        impl #generics #krate::ModuleOn<#target> for #name #arguments #bounds {
            type On = #name #on;
            fn on(&self, path: &mut #krate::Path, place: &mut #krate::module::ReplaceParameter<'_>) -> Self::On {
                use #krate::module::derived::{NoModule as _, NotOn as _};
                #body
            }
        }
    }
}

/// Generates `impl Display`: the layer table.
fn display(input: &Input, parameters: &Parameters) -> TokenStream {
    let (krate, name) = (&input.krate, &input.ident);
    let (generics, arguments, bounds) = parameters.for_module(krate);
    quote! {
        #[automatically_derived]
        impl #generics ::core::fmt::Display for #name #arguments #bounds {
            #[inline]
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                #krate::module::display(self, f)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Traversal {
    Shared,
    Exclusive,
}

fn traversal(input: &Input, kind: Traversal) -> TokenStream {
    match &input.body {
        Body::Struct(fields) => {
            let access = |field: &Field| {
                let member = &field.member;
                match kind {
                    Traversal::Shared => quote!(&self.#member),
                    Traversal::Exclusive => quote!(&mut self.#member),
                }
            };
            let name = input.ident.to_string();
            entered(
                &name,
                fields.iter().map(|field| visit_field(input, field, &access(field), kind)).collect(),
            )
        }
        Body::Enum(variants) => {
            let arms = variants.iter().map(|variant| {
                let pattern = pattern(input, variant);
                let body = visit_variant(input, variant, kind);
                quote!(#pattern => { #body })
            });
            quote!(match self { #(#arms)* })
        }
    }
}

fn visit_variant(input: &Input, variant: &Variant, kind: Traversal) -> TokenStream {
    if let Some(field) = variant.only_unnamed() {
        let binding = binding(field);
        return visit_call(input, field, &quote!(#binding), kind);
    }
    let name = format!("{}::{}", input.ident, variant.ident);
    let fields = variant.fields.iter().map(|field| {
        let binding = binding(field);
        visit_field(input, field, &quote!(#binding), kind)
    });
    entered(&name, fields.collect())
}

fn entered(name: &str, body: TokenStream) -> TokenStream {
    quote! {
        visitor.enter(path, #name);
        #body
        visitor.exit(path, #name);
    }
}

fn visit_field(input: &Input, field: &Field, access: &TokenStream, kind: Traversal) -> TokenStream {
    let (krate, name) = (&input.krate, &field.name);
    let body = visit_call(input, field, access, kind);
    if body.is_empty() {
        return body;
    }
    // No `Path::within`: a closure for each field would take longer to compile.
    quote! {
        #krate::module::derived::enter(path, #name);
        #body;
        #krate::module::derived::leave(path);
    }
}

fn visit_call(input: &Input, field: &Field, access: &TokenStream, kind: Traversal) -> TokenStream {
    let (krate, ty) = (&input.krate, &field.ty);
    match (field.role, kind) {
        (Role::Skip | Role::Marker, _) | (Role::Attribute, Traversal::Exclusive) => TokenStream::new(),
        (Role::Attribute, Traversal::Shared) => quote!(visitor.attribute(path, #access)),
        (Role::Module, Traversal::Shared) => {
            quote_spanned!(ty.span()=> <#ty as #krate::Module>::visit(#access, path, visitor))
        }
        (Role::Module, Traversal::Exclusive) => {
            quote_spanned!(ty.span()=> <#ty as #krate::Module>::visit_mut(#access, path, visitor))
        }
    }
}

fn rebuilt(input: &Input, parameters: &Parameters) -> TokenStream {
    let name = &input.ident;
    match &input.body {
        Body::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                let member = &field.member;
                let value = rebuilt_field(input, field, quote!(&self.#member), parameters);
                quote!(#member: #value)
            });
            quote!(#name { #(#fields),* })
        }
        Body::Enum(variants) => {
            let arms = variants.iter().map(|variant| {
                let (pattern, ident) = (pattern(input, variant), &variant.ident);
                let fields = variant.fields.iter().map(|field| {
                    let (member, binding) = (&field.member, binding(field));
                    let value = match variant.only_unnamed() {
                        Some(field) => rebuilt_at(input, field, quote!(#binding), parameters),
                        None => rebuilt_field(input, field, quote!(#binding), parameters),
                    };
                    quote!(#member: #value)
                });
                quote!(#pattern => #name::#ident { #(#fields),* },)
            });
            quote!(match self { #(#arms)* })
        }
    }
}

/// Generates a field of the module on another backend, at its own path.
fn rebuilt_field(input: &Input, field: &Field, access: TokenStream, parameters: &Parameters) -> TokenStream {
    let (krate, name) = (&input.krate, &field.name);
    let value = rebuilt_at(input, field, access, parameters);
    match field.role {
        Role::Module => quote!({
            #krate::module::derived::enter(path, #name);
            let value = #value;
            #krate::module::derived::leave(path);
            value
        }),
        Role::Skip | Role::Attribute | Role::Marker => value,
    }
}

/// Generates a field of the module on another backend, at the current path.
fn rebuilt_at(input: &Input, field: &Field, access: TokenStream, parameters: &Parameters) -> TokenStream {
    let (krate, ty, target) = (&input.krate, &field.ty, parameters.target());
    match field.role {
        Role::Skip | Role::Attribute => quote_spanned!(ty.span()=> ::core::clone::Clone::clone(#access)),
        Role::Marker => quote!(::core::marker::PhantomData),
        Role::Module if parameters.is_constant(input, ty) => quote_spanned! {ty.span()=>
            <#ty as #krate::module::derived::SameOn<#target>>::same_on(#access, path, place)
        },
        Role::Module => quote_spanned! {ty.span()=>
            #krate::module::derived::OnField::<#ty, #target>::new(#access).on(path, place)
        },
    }
}

fn pattern(input: &Input, variant: &Variant) -> TokenStream {
    let (name, ident) = (&input.ident, &variant.ident);
    let bindings = variant.fields.iter().map(|field| {
        let (member, binding) = (&field.member, binding(field));
        quote!(#member: #binding)
    });
    quote!(#name::#ident { #(#bindings),* })
}

fn binding(field: &Field) -> Ident {
    match &field.member {
        syn::Member::Named(ident) => format_ident!("field_{}", ident),
        syn::Member::Unnamed(index) => format_ident!("field_{}", index.index),
    }
}
