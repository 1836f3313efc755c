//! Methods of builders.

/// Declares methods that set fields of a builder, as `method(argument: Type) => field = value;`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$meta:meta])*
        $method:ident($($argument:ident: $ty:ty),*) => $($($field:ident).+ = $value:expr),+;
    )*) => {$(
        $(#[$meta])*
        #[must_use]
        pub fn $method(mut self, $($argument: $ty),*) -> Self {
            $(self.$($field).+ = $value;)+
            self
        }
    )*};
}
