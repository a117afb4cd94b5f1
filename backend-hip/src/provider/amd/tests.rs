//! Tests of the provider over C functions defined here: the arguments of each call, and the handling of its
//! codes.

use super::symbols::{REQUIRED, Symbols, attribute};
use super::*;
use crate::driver::{Arguments, Event, Function, Shape};
use crate::provider::ffi::Handle;
use std::ffi::{c_char, c_uint};
use std::sync::Mutex;

/// Calls recorded by the functions since the last check.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn saw(text: String) -> c_int {
    SEEN.lock().unwrap().push(text);
    0
}

fn seen() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

extern "C" fn version(to: *mut c_int) -> c_int {
    // SAFETY: the provider passes the address of an integer.
    unsafe { *to = 60_342_134 };
    0
}

extern "C" fn count(to: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *to = -5 };
    0
}

extern "C" fn attribute_of(to: *mut c_int, attribute: c_int, _device: c_int) -> c_int {
    let value = match attribute {
        attribute::WARP_SIZE => 64,
        attribute::PCI_BUS_ID => 0x43,
        attribute::IS_LARGE_BAR => 1,
        _ => return 1,
    };
    // SAFETY: as above.
    unsafe { *to = value };
    0
}

/// Fills the bytes of a layout with known values.
fn fill(to: *mut c_void, layout: properties::Layout, arch: &[u8]) -> c_int {
    // SAFETY: the provider passes a buffer that is larger than any layout.
    let data = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), layout.bytes) };
    data[layout.gcn_arch_name..][..arch.len()].copy_from_slice(arch);
    data[layout.total_global_mem..][..8].copy_from_slice(&(8u64 << 30).to_le_bytes());
    data[layout.warp_size] = 32;
    0
}

extern "C" fn old_properties(to: *mut c_void, _device: c_int) -> c_int {
    fill(to, properties::R0000, b"gfx900:xnack-")
}

extern "C" fn new_properties(to: *mut c_void, _device: c_int) -> c_int {
    fill(to, properties::R0600, b"gfx906:sramecc+:xnack-")
}

extern "C" fn malloc(to: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the provider passes the address of a pointer.
    unsafe { *to = 0x7000 as *mut c_void };
    saw(format!("malloc {bytes}"))
}

extern "C" fn copy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) -> c_int {
    saw(format!("copy {to:?} {from:?} {bytes} {kind} {stream:?}"))
}

extern "C" fn event(to: *mut Handle, flags: c_uint) -> c_int {
    // SAFETY: as above.
    unsafe { *to = 0xe as Handle };
    saw(format!("event {flags}"))
}

extern "C" fn query(event: Handle) -> c_int {
    [0, 600, 123_456][event as usize]
}

extern "C" fn name(code: c_int) -> *const c_char {
    if code == 5 { c"hipErrorFive".as_ptr() } else { std::ptr::null() }
}

#[allow(clippy::too_many_arguments)]
extern "C" fn launch(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    lds: c_uint,
    stream: Handle,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    // Two pointers and a structure of three integers, which need not be aligned here.
    // SAFETY: the test passes these three arguments.
    let (a, b, c) = unsafe {
        (
            (*arguments).cast::<u64>().read_unaligned(),
            (*arguments.add(1)).cast::<u64>().read_unaligned(),
            (*arguments.add(2)).cast::<[u32; 3]>().read_unaligned(),
        )
    };
    assert!(extra.is_null());
    saw(format!("launch {function:?} {gx},{gy},{gz} {bx},{by},{bz} {lds} {stream:?} {a:#x} {b:#x} {c:?}"))
}

extern "C" fn unused() -> c_int {
    801
}

extern "C" fn polling_version(to: *mut c_int) -> c_int {
    // SAFETY: the provider passes the address of an integer.
    unsafe { *to = 71_460_850 };
    0
}

extern "C" fn one(to: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *to = 1 };
    0
}

extern "C" fn two(to: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *to = 2 };
    0
}

extern "C" fn set_flags(flags: c_uint) -> c_int {
    saw(format!("flags {flags}"))
}

extern "C" fn set_device(device: c_int) -> c_int {
    saw(format!("device {device}"))
}

/// Returns the provider over the functions above; `new`: with the functions that HIP 6 added.
fn provider(new: bool) -> Amd {
    provider_with(new, version as *mut c_void, count as *mut c_void)
}

/// As [`provider`], with other functions that return the version and the number of devices.
fn provider_with(new: bool, version: *mut c_void, count: *mut c_void) -> Amd {
    let address = |name: &CStr| -> *mut c_void {
        match name.to_bytes() {
            b"hipRuntimeGetVersion" => version,
            b"hipGetDeviceCount" => count,
            b"hipSetDevice" => set_device as *mut c_void,
            b"hipSetDeviceFlags" => set_flags as *mut c_void,
            b"hipDeviceGetAttribute" => attribute_of as *mut c_void,
            b"hipGetDeviceProperties" => old_properties as *mut c_void,
            b"hipGetDevicePropertiesR0600" if new => new_properties as *mut c_void,
            b"hipMalloc" => malloc as *mut c_void,
            b"hipMemcpyAsync" => copy as *mut c_void,
            b"hipEventCreateWithFlags" => event as *mut c_void,
            b"hipEventQuery" => query as *mut c_void,
            b"hipGetErrorName" => self::name as *mut c_void,
            b"hipModuleLaunchKernel" => launch as *mut c_void,
            name if REQUIRED.iter().any(|r| r.as_bytes() == name) => unused as *mut c_void,
            _ => null_mut(),
        }
    };
    // SAFETY: the functions have the signatures of their names. `unused` ignores its arguments, which C's
    // calling conventions allow on the systems that HIP is loaded on.
    let symbols = unsafe { Symbols::find(address) }.unwrap();
    Amd {
        symbols,
        path: "/x/libamdhip64.so.6".into(),
        found: "test".into(),
        node: "/dev/kfd".into(),
        events: OnceLock::new(),
    }
}

#[test]
fn versions_are_read() {
    assert_eq!(version_text(50_221_153), "5.2.21153");
    assert_eq!(version_text(70_253_211), "7.2.53211");
    let amd = provider(true);
    assert_eq!(amd.major(), Some(6));
    assert!(amd.versions().contains(&("hip runtime".into(), "6.3.42134".into())));
    assert_eq!(amd.versions()[0], ("library".into(), "/x/libamdhip64.so.6".into()));
}

#[test]
fn the_layout_is_that_of_the_function_that_was_called() {
    for (new, arch, layout) in [
        (true, "gfx906:sramecc+:xnack-", "hipGetDevicePropertiesR0600"),
        (false, "gfx900:xnack-", "hipGetDeviceProperties"),
    ] {
        let p = provider(new).properties(0).unwrap();
        assert_eq!((p.arch.as_str(), p.layout, p.memory), (arch, layout, 8 << 30));
        // Attributes override the structure, and a failing one leaves its value.
        assert_eq!((p.wave, p.pci, p.large_bar), (64, [0, 0x43, 0], Some(true)));
    }
}

#[test]
fn codes_are_integers() {
    let amd = provider(false);
    // SAFETY: handles of the functions above are small integers.
    let complete = |event| unsafe { amd.complete(Event(event)) };
    assert_eq!((complete(0), complete(1), complete(2)), (Ok(true), Ok(false), Err(123_456)));
    assert_eq!(amd.error_name(5).as_deref(), Some("hipErrorFive"));
    assert_eq!(amd.error_name(123_456), None);
    assert_eq!(amd.device_count(), Ok(0), "a count below zero is none");
    assert_eq!(amd.init(), Err(801));
    // SAFETY: the function is absent.
    assert_eq!(unsafe { amd.elapsed_ms(Event(0), Event(0)) }, Ok(None));
}

/// A single test, because the recorded calls are global.
#[test]
fn calls_pass_what_they_are_given() {
    let amd = provider(true);
    assert_eq!(amd.allocate(0), Ok(0x7000));
    assert_eq!(amd.create_event(true), Ok(Event(0xe)));
    assert_eq!(amd.create_event(false), Ok(Event(0xe)));
    for direction in
        [Direction::HostToHost, Direction::HostToDevice, Direction::DeviceToHost, Direction::DeviceToDevice]
    {
        // SAFETY: the function above only prints its arguments.
        unsafe { amd.copy(0x10, 0x20, 3, direction, Stream(0x5)) }.unwrap();
    }
    assert_eq!(
        seen(),
        [
            "malloc 1",
            "event 0",
            "event 2",
            "copy 0x10 0x20 3 0 0x5",
            "copy 0x10 0x20 3 1 0x5",
            "copy 0x10 0x20 3 2 0x5",
            "copy 0x10 0x20 3 3 0x5",
        ]
    );
    let bytes =
        [&0xaabb_u64.to_le_bytes()[..], &0xccdd_u64.to_le_bytes(), &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]]
            .concat();
    let shape = Shape { grid: [7, 8, 9], block: [64, 2, 1], lds_bytes: 512 };
    let launch = |offsets: &[u32]| {
        // SAFETY: the function above reads three arguments of these sizes.
        unsafe {
            amd.launch(Function(0xf), shape, Arguments { bytes: &bytes, offsets, windows: &[] }, Stream(0x5))
        }
    };
    launch(&[0, 8, 16]).unwrap();
    assert_eq!(seen(), ["launch 0xf 7,8,9 64,2,1 512 0x5 0xaabb 0xccdd [1, 2, 3]"]);
    assert_eq!(launch(&[0, 8, 28]), Err(1), "an argument outside the segment");
    assert_eq!(launch(&[0; 17]), Err(1), "too many arguments");

    // From HIP 7.14 on calls that wait have to block, before the device is chosen, if there is only one.
    let attached = |version: *mut c_void, count: *mut c_void| {
        provider_with(true, version, count).attach(0).unwrap();
        seen()
    };
    let (old, new) = (version as *mut c_void, polling_version as *mut c_void);
    let (one, two) = (one as *mut c_void, two as *mut c_void);
    assert_eq!(attached(new, one), ["flags 4", "device 0"]);
    assert_eq!(attached(new, two), ["device 0"]);
    assert_eq!(attached(old, one), ["device 0"]);
}

/// A capture that starts launches at once would change the cache of keys with inputs that are not there yet.
#[test]
fn releases_that_do_not_capture_have_no_graphs() {
    extern "C" fn old(version: *mut c_int) -> c_int {
        // SAFETY: the address of an integer, as the function promises.
        unsafe { *version = 50_221_153 };
        0
    }
    extern "C" fn newer(version: *mut c_int) -> c_int {
        // SAFETY: as above.
        unsafe { *version = 50_731_921 };
        0
    }
    for (version, captures) in [(old as *mut c_void, false), (newer as *mut c_void, true)] {
        assert_eq!(provider_with(false, version, count as *mut c_void).captures_launches(), captures);
    }
}
