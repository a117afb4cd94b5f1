//! A malicious GGUF file cannot make the reader allocate more than a small multiple of its size.
//!
//! The counting allocator counts for the whole process, so this file has only one test.

use ggml_core::dtype::DType;
use ggml_core::gguf::{Array, GgufFile, GgufWriter};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes requested since the last reset.
static ASKED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is forwarded to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller meets the conditions of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn wrong_numbers_do_not_become_allocations() {
    let mut w = GgufWriter::new();
    w.set("general.architecture", "llama").unwrap().set("ids", Array::from(&[1u32; 50][..])).unwrap();
    w.set("words", Array::texts(["word"; 50])).unwrap();
    w.set("nested", Array::nested(&[Array::texts(["a"]), Array::from(&[true][..])]).unwrap()).unwrap();
    for i in 0..4 {
        w.tensor(format!("blk.{i}.weight"), DType::Q8_0, &[32, 2], vec![0; 68]).unwrap();
    }
    let bytes = w.to_bytes().unwrap();
    for at in 0..bytes.len() - 8 {
        for number in [1u64 << 63, u64::MAX, 1 << 48, 1 << 32, 1 << 20, 1 << 16, 255] {
            let mut changed = bytes.clone();
            changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
            ASKED.store(0, Ordering::Relaxed);
            let opened = GgufFile::from_bytes(changed).is_ok();
            let asked = ASKED.load(Ordering::Relaxed);
            assert!(asked < 16 * bytes.len(), "{number} at {at}: {asked} bytes asked for, opened: {opened}");
        }
    }
}
