//! Option structures that may gain fields: an application starts from the default and sets the fields it
//! needs.

/// Defines methods that set one field each of a structure and return the structure.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($options:ident { $($with:ident => $field:ident: $type:ty),+ $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](", stringify!($options), "::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: $type) -> $options {
                    self.$field = $field.into();
                    self
                }
            )+
        }
    };
}
