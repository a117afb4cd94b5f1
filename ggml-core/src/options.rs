//! Option structures that may get more fields: an application begins with the default and sets what it wants.

/// Methods that set one field each of a structure and return it.
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
