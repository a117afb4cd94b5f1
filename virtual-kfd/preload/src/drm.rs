//! The functions of libdrm that ROCm's thunk calls. They stand before those of the library itself, whose ioctls a file
//! in memory does not answer.
//!
//! Source: `amdgpu.h` and `amdgpu_drm.h` of libdrm.

use crate::files;
use crate::machine::{self, Node};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use virtual_kfd::{Buffer, DESCRIPTION_BYTES};

/// Words at the start of `struct amdgpu_gpu_info` that are set.
const INFO_WORDS: usize = 19;
/// Places in it of the flags, and of the frequency of the card's clock.
const FLAGS: usize = 4;
const FREQUENCY: usize = 18;
/// `AMDGPU_IDS_FLAGS_FUSION`: a part of the processor.
const INTEGRATED: u32 = 1;
/// The clock that kernels read, in kHz.
const CLOCK: u32 = 100_000;

/// `amdgpu_bo_handle_type_kms`.
const KMS: c_int = 1;
/// `amdgpu_bo_handle_type_dma_buf_fd`.
const DMABUF: c_int = 2;
/// `AMDGPU_VA_OP_MAP`.
const MAP: u32 = 1;
/// `AMDGPU_VA_OP_UNMAP`.
const UNMAP: u32 = 2;
/// `DRM_AMDGPU_GEM_MMAP`.
const GEM_MMAP: std::ffi::c_ulong = 1;
/// Handles of memory are its offset in these units.
const UNIT: u64 = 2 << 20;
/// `AMDGPU_GEM_DOMAIN_VRAM`.
const VRAM: u32 = 4;
/// Handle of memory that no descriptor shows.
const UNSHOWN: u32 = u32::MAX;
/// Offset that no file has.
const NOWHERE: u64 = 1 << 62;

/// Device behind an `amdgpu_device_handle`.
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
    let mut words = [0u32; INFO_WORDS];
    (words[0], words[1], words[3]) = (card.device, card.revision, card.family);
    words[FLAGS] = if card.integrated { INTEGRATED } else { 0 };
    words[FREQUENCY] = CLOCK;
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

/// `struct amdgpu_bo_import_result`.
#[repr(C)]
#[derive(Debug)]
pub struct Imported {
    buffer: *mut c_void,
    bytes: u64,
}

/// Imports memory of a descriptor.
///
/// # Safety `device` comes from [`amdgpu_device_initialize`], `to` is an address to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_import(
    device: *mut c_void,
    kind: c_int,
    handle: u32,
    to: *mut Imported,
) -> c_int {
    if kind != DMABUF {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let card = unsafe { (*device.cast::<Device>()).card };
    let imported = machine::driver().ok_or(libc::ENODEV).and_then(|d| d.import(handle as c_int, card));
    match imported {
        Ok(buffer) => {
            let bytes = buffer.bytes();
            // SAFETY: the caller's promise.
            unsafe { to.write(Imported { buffer: Box::into_raw(Box::new(buffer)).cast(), bytes }) };
            0
        }
        Err(errno) => -errno,
    }
}

/// Returns the memory that libdrm's handle stands for.
///
/// # Safety `buffer` comes from [`amdgpu_bo_import`] and is not freed.
unsafe fn buffer<'a>(buffer: *mut c_void) -> &'a Buffer<'static> {
    // SAFETY: the caller's promise.
    unsafe { &*buffer.cast::<Buffer<'static>>() }
}

/// Returns the number of memory, by which [`drmCommandWriteRead`] knows it.
///
/// # Safety `bo` comes from [`amdgpu_bo_import`]; `to` is an address to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_export(bo: *mut c_void, kind: c_int, to: *mut u32) -> c_int {
    if kind != KMS {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(buffer(bo).offset().map_or(UNSHOWN, |offset| (offset / UNIT) as u32)) };
    0
}

/// Returns the address of memory in this process.
///
/// # Safety As [`amdgpu_bo_export`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_cpu_map(bo: *mut c_void, to: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(at) = buffer(bo).host() else { return -libc::EINVAL };
        to.write(at.as_ptr().cast());
    }
    0
}

/// Makes memory known to the card at an address, or removes it.
///
/// # Safety `bo` comes from [`amdgpu_bo_import`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_va_op(
    bo: *mut c_void,
    offset: u64,
    bytes: u64,
    address: u64,
    _flags: u64,
    operation: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer(bo) };
    let done = match operation {
        MAP => buffer.map(offset, bytes, address),
        UNMAP => buffer.unmap(address),
        _ => Err(libc::EINVAL),
    };
    done.map_or_else(|errno| -errno, |()| 0)
}

/// Frees memory.
///
/// # Safety `bo` comes from [`amdgpu_bo_import`] and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_free(bo: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(bo.cast::<Buffer<'static>>()) });
    0
}

/// `struct amdgpu_bo_info`.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    bytes: u64,
    alignment: u64,
    heap: u32,
    flags: u64,
    description: [u8; DESCRIPTION_BYTES],
}

/// Describes memory.
///
/// # Safety `bo` comes from [`amdgpu_bo_import`]; `to` is an address to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_query_info(bo: *mut c_void, to: *mut Info) -> c_int {
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer(bo) };
    match buffer.description() {
        Ok(description) => {
            let info = Info { bytes: buffer.bytes(), alignment: UNIT, heap: VRAM, flags: 0, description };
            // SAFETY: the caller's promise.
            unsafe { to.write(info) };
            0
        }
        Err(errno) => -errno,
    }
}

/// Stores a description with memory, which processes that import it read.
///
/// # Safety `bo` comes from [`amdgpu_bo_import`]; `from` is the address of a `struct amdgpu_bo_metadata`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_bo_set_metadata(
    bo: *mut c_void,
    from: *const [u8; DESCRIPTION_BYTES],
) -> c_int {
    // SAFETY: the caller's promise.
    let described = unsafe { buffer(bo).describe(&*from) };
    described.map_or_else(|errno| -errno, |()| 0)
}

/// Calls the driver of a render node: only for the offset at which a descriptor shows memory.
///
/// # Safety As libdrm's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmCommandWriteRead(
    fd: c_int,
    command: std::ffi::c_ulong,
    data: *mut c_void,
    bytes: std::ffi::c_ulong,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, std::ffi::c_ulong, *mut c_void, std::ffi::c_ulong) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if !machine::is_ours(fd) {
        let next = files::next(&NEXT, c"drmCommandWriteRead");
        if next.is_null() {
            return -libc::ENOSYS;
        }
        // SAFETY: libdrm's function of this name has this type; the caller's promise.
        return unsafe { std::mem::transmute::<*mut c_void, Function>(next)(fd, command, data, bytes) };
    }
    if command != GEM_MMAP || bytes < 8 {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's promise: `union drm_amdgpu_gem_mmap`, a handle that an offset replaces.
    unsafe {
        let handle = data.cast::<u32>().read_unaligned();
        let offset = if handle == UNSHOWN { NOWHERE } else { u64::from(handle) * UNIT };
        data.cast::<u64>().write_unaligned(offset);
    }
    0
}
