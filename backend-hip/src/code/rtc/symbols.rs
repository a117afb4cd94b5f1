//! Table of hiprtc functions: the only place that declares them.
//!
//! Signatures are those of `hiprtc.h`; 7.0 changed only the constness of some pointers.

use crate::sys::table::function_table;
use std::ffi::{c_char, c_int, c_void};

/// Handle of a program.
pub(crate) type Handle = *mut c_void;

function_table! {
    /// Addresses of the functions in a loaded library, which stays loaded.
    Symbols {
    required {
        /// Major and minor version.
        hiprtcVersion: fn(*mut c_int, *mut c_int) -> c_int;
        /// Program, source, its name, number of headers, their texts, their include names.
        hiprtcCreateProgram: fn(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> c_int;
        /// Program, number of options, options.
        hiprtcCompileProgram: fn(Handle, c_int, *const *const c_char) -> c_int;
        /// Program, size of the log in bytes with its zero byte.
        hiprtcGetProgramLogSize: fn(Handle, *mut usize) -> c_int;
        /// Program, buffer of that size.
        hiprtcGetProgramLog: fn(Handle, *mut c_char) -> c_int;
        /// Program, size of the code object in bytes.
        hiprtcGetCodeSize: fn(Handle, *mut usize) -> c_int;
        /// Program, buffer of that size.
        hiprtcGetCode: fn(Handle, *mut c_char) -> c_int;
        /// Program.
        hiprtcDestroyProgram: fn(*mut Handle) -> c_int;
        /// Name of a code.
        hiprtcGetErrorString: fn(c_int) -> *const c_char;
    }
    optional {
    }
    }
}
