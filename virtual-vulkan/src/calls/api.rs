//! Helpers for Vulkan functions: lists, chains, codes.

use crate::reply::Reply;
use ash::vk;
use std::ffi::{CStr, c_char};

/// Returns the code of a reply.
pub(crate) fn code(reply: Reply) -> vk::Result {
    reply.err().unwrap_or(vk::Result::SUCCESS)
}

/// Returns a list of a Vulkan structure as a slice.
///
/// # Safety `at` is valid for `count` elements, which live as long as the result is used, or `count` is 0.
pub(crate) unsafe fn list<'a, T>(at: *const T, count: u32) -> &'a [T] {
    match count == 0 || at.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(at, count as usize) },
    }
}

/// Writes a list as Vulkan's enumeration functions do: its length if `to` is null, otherwise as many elements
/// as fit.
///
/// # Safety `count` is valid, and `to` is null or valid for `*count` elements.
pub(crate) unsafe fn write_list<T: Copy>(list: &[T], count: *mut u32, to: *mut T) -> Reply {
    // SAFETY: the caller's promise.
    unsafe {
        if to.is_null() {
            *count = list.len() as u32;
            return Ok(());
        }
        let fits = list.len().min(*count as usize);
        std::ptr::copy_nonoverlapping(list.as_ptr(), to, fits);
        *count = fits as u32;
        if fits < list.len() { Err(vk::Result::INCOMPLETE) } else { Ok(()) }
    }
}

/// Iterates over the structures of a chain.
///
/// # Safety `at` is null or begins a chain of Vulkan structures that lives as long as the result is used.
pub(crate) unsafe fn chain(
    at: *const std::ffi::c_void,
) -> impl Iterator<Item = *mut vk::BaseOutStructure<'static>> {
    let first = at.cast_mut().cast::<vk::BaseOutStructure<'static>>();
    // SAFETY: the caller's promise: each element is null or a Vulkan structure.
    std::iter::successors((!first.is_null()).then_some(first), |&s| unsafe {
        (!(*s).p_next.is_null()).then_some((*s).p_next)
    })
}

/// Returns the structure of type `T` in a chain.
///
/// # Safety As for [`chain`]; the structure is not used through another reference while the result is.
pub(crate) unsafe fn chained<'a, T: vk::TaggedStructure>(at: *const std::ffi::c_void) -> Option<&'a mut T> {
    // SAFETY: the caller's promise; the tag proves that the structure is a `T`.
    unsafe { chain(at).find(|&s| (*s).s_type == T::STRUCTURE_TYPE).map(|s| &mut *s.cast::<T>()) }
}

/// Writes a text to a fixed array of Vulkan's, truncated if it does not fit.
pub(crate) fn put_text<const N: usize>(to: &mut [std::ffi::c_char; N], text: &str) {
    *to = [0; N];
    for (to, byte) in to.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte as std::ffi::c_char;
    }
}

/// Returns the names in a list of C strings.
///
/// # Safety `at` is valid for `count` C strings.
pub(crate) unsafe fn texts<'a>(at: *const *const c_char, count: u32) -> Vec<&'a CStr> {
    // SAFETY: the caller's promise.
    unsafe { list(at, count).iter().map(|&text| CStr::from_ptr(text)).collect() }
}

/// Returns the properties of one of this library's extensions.
pub(crate) fn extension(name: &CStr) -> vk::ExtensionProperties {
    let mut properties = vk::ExtensionProperties { spec_version: 1, ..Default::default() };
    put_text(&mut properties.extension_name, &name.to_string_lossy());
    properties
}
