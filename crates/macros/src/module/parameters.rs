//! The type parameters of a module, and the bounds of its impls.
//!
//! On another backend, the module's backend parameter is replaced by the target backend, and each module parameter by
//! its type on that backend. Each of them gets a new type parameter, `InnerB` for `B`. The bounds of the type are
//! repeated with the replaced names.

use super::input::{Input, Role, inner_name};
use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{Error, GenericParam, Generics, Result, Type, TypeParam, TypeParamBound, WherePredicate};

pub(crate) struct Parameters {
    /// Without defaults; bounds remain where they were written.
    generics: Generics,
    /// The type parameter of the backend.
    backend: Option<Ident>,
    /// The type parameters that are modules.
    modules: Vec<Ident>,
    /// The type parameters of plain data.
    plain: Vec<Ident>,
}

/// The parts of an impl: generic parameters, type arguments and where clause.
type Pieces = (TokenStream, TokenStream, TokenStream);

impl Parameters {
    pub(crate) fn read(input: &Input) -> Result<Parameters> {
        let mut generics = input.generics.clone();
        for parameter in generics.params.iter_mut() {
            match parameter {
                GenericParam::Type(parameter) => {
                    parameter.default = None;
                }
                GenericParam::Const(parameter) => {
                    parameter.default = None;
                }
                GenericParam::Lifetime(_) => {}
            }
        }
        let mut parameters = Parameters { generics, backend: None, modules: Vec::new(), plain: Vec::new() };
        for parameter in input.generics.type_params() {
            parameters.add(input, parameter)?;
        }
        Ok(parameters)
    }

    fn add(&mut self, input: &Input, parameter: &TypeParam) -> Result<()> {
        let bounds = bounds_of(&input.generics, parameter);
        let traversed = || {
            input.fields().any(|field| field.role == Role::Module && mentions(&field.ty, &parameter.ident))
        };
        let is_kind = bounds.iter().any(|bound| bound == "Kind" || bound == "Numeric");
        if bounds.iter().any(|bound| bound == "Backend" || bound == "AutodiffBackend") {
            if self.backend.is_some() {
                let problem =
                    "a module is on one backend, but this is a second type parameter bound by `Backend`";
                return Err(Error::new_spanned(parameter, problem));
            }
            self.backend = Some(parameter.ident.clone());
        } else if traversed() && !is_kind {
            self.modules.push(parameter.ident.clone());
        } else {
            self.plain.push(parameter.ident.clone());
        }
        Ok(())
    }

    /// The backend: the type parameter, or one generated for the impl.
    pub(crate) fn backend(&self) -> Ident {
        self.backend.clone().unwrap_or_else(|| format_ident!("AnyB"))
    }

    pub(crate) fn for_module(&self, krate: &TokenStream) -> Pieces {
        let mut bounds = self.plain_bounds();
        bounds.extend(self.modules.iter().map(|module| quote!(#module: #krate::Module)));
        self.pieces(&[], bounds)
    }

    pub(crate) fn for_backend_module(&self, input: &Input) -> Pieces {
        let (krate, backend) = (&input.krate, self.backend());
        let mut bounds = self.plain_bounds();
        bounds.push(quote!(#backend: #krate::module::derived::tensor::Backend));
        bounds.extend(self.modules.iter().map(|module| quote!(#module: #krate::BackendModule<#backend>)));
        bounds.extend(
            self.constant_fields(input).map(|ty| quote!(#ty: #krate::module::derived::AlsoOn<#backend>)),
        );
        self.pieces(&self.made_backend(), bounds)
    }

    pub(crate) fn for_module_on(&self, input: &Input) -> Pieces {
        let (krate, target) = (&input.krate, self.target());
        let mut bounds = self.plain_bounds();
        bounds.extend(self.plain.iter().map(|ident| quote!(#ident: ::core::clone::Clone)));
        bounds.push(quote!(#target: #krate::module::derived::tensor::Backend));
        let mut extra = vec![target.clone()];
        for module in &self.modules {
            let inner = inner_name(module);
            bounds.push(quote!(#module: #krate::ModuleOn<#target, On = #inner>));
            bounds.push(quote!(#inner: #krate::Module));
            extra.push(inner);
        }
        bounds.extend(self.inner_bounds());
        let constant = self.constant_fields(input);
        bounds.extend(constant.map(|ty| quote!(#ty: #krate::module::derived::SameOn<#target>)));
        self.pieces(&extra, bounds)
    }

    /// The target backend of `ModuleOn`.
    pub(crate) fn target(&self) -> Ident {
        self.backend.as_ref().map_or_else(|| self.backend(), inner_name)
    }

    /// The type arguments on the target backend.
    pub(crate) fn target_arguments(&self) -> TokenStream {
        let (_, arguments, _) = self.generics.split_for_impl();
        self.rename(arguments.into_token_stream())
    }

    /// The additional where-clause bounds of the type parameters of plain data.
    fn plain_bounds(&self) -> Vec<TokenStream> {
        let needs = |ident: &Ident| quote!(#ident: ::core::fmt::Debug + ::core::marker::Send);
        self.plain.iter().map(needs).collect()
    }

    /// The generated type parameter of the backend, for a type without one.
    fn made_backend(&self) -> Vec<Ident> {
        if self.backend.is_some() { Vec::new() } else { vec![self.backend()] }
    }

    /// For a type without a backend parameter: the types of fields that are the same on every backend.
    fn constant_fields<'a>(&'a self, input: &'a Input) -> impl Iterator<Item = &'a Type> {
        let traversed = input.fields().filter(|field| field.role == Role::Module);
        traversed.map(|field| &field.ty).filter(move |ty| self.is_constant(input, ty))
    }

    /// Whether the type of a traversed field is the same on every backend. A recursive type must not occur in its own
    /// bounds.
    pub(crate) fn is_constant(&self, input: &Input, ty: &Type) -> bool {
        self.backend.is_none()
            && !mentions(ty, &input.ident)
            && !self.modules.iter().any(|module| mentions(ty, module))
    }

    /// The declared bounds, repeated for the parameters on the target backend.
    fn inner_bounds(&self) -> Vec<TokenStream> {
        let mut written: Vec<TokenStream> = Vec::new();
        for parameter in self.generics.type_params().filter(|parameter| !parameter.bounds.is_empty()) {
            let (ident, bounds) = (&parameter.ident, &parameter.bounds);
            written.push(quote!(#ident: #bounds));
        }
        if let Some(clause) = &self.generics.where_clause {
            written.extend(clause.predicates.iter().map(ToTokens::to_token_stream));
        }
        let renamed = written.into_iter().filter(|bound| self.renames(bound.clone()));
        renamed.map(|bound| self.rename(bound)).collect()
    }

    fn pieces(&self, extra: &[Ident], bounds: Vec<TokenStream>) -> Pieces {
        let (_, arguments, clause) = self.generics.split_for_impl();
        let parameters = self.generics.params.iter();
        let written = clause.iter().flat_map(|clause| clause.predicates.iter());
        let generics = quote!(<#(#parameters,)* #(#extra),*>);
        (generics, arguments.into_token_stream(), quote!(where #(#written,)* #(#bounds),*))
    }

    fn replaced(&self) -> impl Iterator<Item = &Ident> {
        self.backend.iter().chain(&self.modules)
    }

    fn renames(&self, tokens: TokenStream) -> bool {
        self.replaced().any(|ident| contains(tokens.clone(), ident))
    }

    fn rename(&self, tokens: TokenStream) -> TokenStream {
        let rename = |tree: TokenTree| match tree {
            TokenTree::Ident(ident) if self.replaced().any(|replaced| *replaced == ident) => {
                inner_name(&ident).into()
            }
            TokenTree::Group(group) => {
                let mut renamed = Group::new(group.delimiter(), self.rename(group.stream()));
                renamed.set_span(group.span());
                renamed.into()
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => tree,
        };
        tokens.into_iter().map(rename).collect()
    }
}

/// The last path segments of the traits that bound a parameter, inline or in the where clause.
fn bounds_of(generics: &Generics, parameter: &TypeParam) -> Vec<String> {
    let inline = parameter.bounds.iter();
    let predicates = generics.where_clause.iter().flat_map(|clause| clause.predicates.iter());
    let in_clause = predicates.flat_map(|predicate| {
        let WherePredicate::Type(predicate) = predicate else { return Vec::new() };
        match is_exactly(&predicate.bounded_ty, &parameter.ident) {
            true => predicate.bounds.iter().collect(),
            false => Vec::new(),
        }
    });
    inline.chain(in_clause).filter_map(trait_name).collect()
}

fn trait_name(bound: &TypeParamBound) -> Option<String> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    bound.path.segments.last().map(|segment| segment.ident.to_string())
}

fn is_exactly(ty: &Type, ident: &Ident) -> bool {
    matches!(ty, Type::Path(ty) if ty.qself.is_none() && ty.path.is_ident(ident))
}

fn mentions(ty: &Type, ident: &Ident) -> bool {
    contains(ty.to_token_stream(), ident)
}

fn contains(tokens: TokenStream, ident: &Ident) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Ident(other) => other == *ident,
        TokenTree::Group(group) => contains(group.stream(), ident),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
