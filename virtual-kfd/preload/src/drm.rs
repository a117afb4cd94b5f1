//! The functions of libdrm that ROCm's thunk calls. They stand before those of the library itself, whose ioctls a file
//! in memory does not answer.
//!
//! Source: `amdgpu.h` and `amdgpu_drm.h` of libdrm.

use crate::machine::{self, Node};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `AMDGPU_FAMILY_AI`: Vega.
const FAMILY: u32 = 141;
/// Bytes at the start of `struct amdgpu_gpu_info` that are set: ids, and flags that are 0.
const INFO_BYTES: usize = 0x30;

/// What stands for `amdgpu_device_handle`.
struct Device {
    fd: c_int,
    /// Index of the card.
    card: usize,
}

/// Opens a device.
///
/// # Safety As libdrm's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_initialize(
    fd: c_int,
    major: *mut u32,
    minor: *mut u32,
    device: *mut *mut c_void,
) -> c_int {
    let card = machine::card_of(fd);
    // As libdrm, it keeps a descriptor of its own.
    let own = Node::Render(card).open();
    if own < 0 {
        return -libc::ENODEV;
    }
    // SAFETY: the caller's promise: three addresses to write.
    unsafe {
        (*major, *minor) = (3, 57);
        *device = Box::into_raw(Box::new(Device { fd: own, card })).cast();
    }
    0
}

/// Closes a device.
///
/// # Safety `device` comes from [`amdgpu_device_initialize`] and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_deinitialize(device: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let device = Box::from_raw(device.cast::<Device>());
        libc::close(device.fd);
    }
    0
}

/// Returns the descriptor of a device.
///
/// # Safety `device` comes from [`amdgpu_device_initialize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_get_fd(device: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (*device.cast::<Device>()).fd }
}

/// Returns the name of a card.
///
/// # Safety `device` comes from [`amdgpu_device_initialize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_get_marketing_name(device: *mut c_void) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let cards = machine::options().map(|o| &o.cards[..]).unwrap_or_default();
        cards.iter().map(|c| CString::new(c.marketing).unwrap_or_default()).collect()
    });
    // SAFETY: the caller's promise.
    let card = unsafe { (*device.cast::<Device>()).card };
    names.get(card).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Writes the ids of a card.
///
/// # Safety `device` comes from [`amdgpu_device_initialize`], `info` is the address of `struct amdgpu_gpu_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_query_gpu_info(device: *mut c_void, info: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let card = unsafe { (*device.cast::<Device>()).card };
    let Some(card) = machine::options().and_then(|o| o.cards.get(card)) else { return -libc::ENODEV };
    let mut words = [0u32; INFO_BYTES / 4];
    (words[0], words[1], words[3]) = (card.device, card.revision, FAMILY);
    // SAFETY: the caller's promise: the structure is larger.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), info.cast(), words.len()) };
    0
}

/// Opens a render node.
#[unsafe(no_mangle)]
pub extern "C" fn drmOpenRender(minor: c_int) -> c_int {
    let node = u32::try_from(minor).ok().and_then(Node::render);
    node.map_or_else(|| machine::failed(libc::ENOENT), Node::open)
}

/// Closes a descriptor.
///
/// # Safety As `close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmClose(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::close(fd) }
}
