//! Tables of C functions that are looked up in a loaded library.

use std::ffi::CStr;

/// Converts a literal that ends in a zero byte to a C string.
pub(crate) fn name_of(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

/// Declares a table of C functions: a structure of their addresses, the names of the required functions and
/// of those that a release may lack, and `resolve`, which fills the structure.
macro_rules! function_table {
    ($(#[$doc:meta])* $table:ident {
        required { $($(#[$rdoc:meta])* $required:ident: fn($($rarg:ty),*) -> $rret:ty;)* }
        optional { $($(#[$odoc:meta])* $optional:ident: fn($($oarg:ty),*) -> $oret:ty;)* }
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $table {
            $($(#[$rdoc])* pub(crate) $required: unsafe extern "C" fn($($rarg),*) -> $rret,)*
            $($(#[$odoc])* pub(crate) $optional: Option<unsafe extern "C" fn($($oarg),*) -> $oret>,)*
        }

        /// Functions without which nothing works.
        pub const REQUIRED: &[&str] = &[$(stringify!($required)),*];

        /// Functions that a release may lack, each with a fallback.
        pub const OPTIONAL: &[&str] = &[$(stringify!($optional)),*];

        impl $table {
            /// Fills the table. The error lists the required functions that are missing.
            ///
            /// # Safety
            /// `lookup` must return null or the address of the function of that name, valid until the
            /// process ends.
            pub(crate) unsafe fn resolve(
                mut lookup: impl FnMut(&std::ffi::CStr) -> *mut std::ffi::c_void,
            ) -> Result<$table, Vec<&'static str>> {
                use $crate::sys::table::name_of;
                let mut missing = Vec::new();
                let mut find = |name: &'static std::ffi::CStr, required: bool| {
                    let address = lookup(name);
                    if address.is_null() && required {
                        missing.push(name.to_str().unwrap_or_default());
                    }
                    address
                };
                $(let $required = find(name_of(concat!(stringify!($required), "\0")), true);)*
                $(let $optional = find(name_of(concat!(stringify!($optional), "\0")), false);)*
                if !missing.is_empty() {
                    return Err(missing);
                }
                // SAFETY: an address is that of the function with its name (guaranteed by the caller), which
                // has the declared signature in every release; an `Option` of a function pointer has the
                // pointer's layout with null as `None`, and the required ones were checked not to be null.
                unsafe {
                    Ok($table {
                        $($required: std::mem::transmute::<
                            *mut std::ffi::c_void,
                            unsafe extern "C" fn($($rarg),*) -> $rret>($required),)*
                        $($optional: std::mem::transmute::<
                            *mut std::ffi::c_void,
                            Option<unsafe extern "C" fn($($oarg),*) -> $oret>>($optional),)*
                    })
                }
            }
        }
    };
}

pub(crate) use function_table;
