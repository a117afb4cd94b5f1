//! Code that changes: what a cache holds, and what ends it.

use crate::packets::process::{CODE, DATA, PACKET, Pages, Process, load};
use crate::packets::with_kernels;
use crate::support::{Arguments, AsmKernel, TARGETS, asm, compile};
use virtual_gpu::{FaultKind, Target};

/// A kernel that stores a number.
fn storing(number: u32) -> AsmKernel {
    let body = format!(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_mov_b32 v1, {number:#x}\nv_mov_b32 v2, 0\ns_waitcnt lgkmcnt(0)\n\
         global_store_dword v2, v1, s[4:5]"
    );
    AsmKernel::new("store", &body)
}

fn object(target: Target, number: u32) -> Vec<u8> {
    compile::assemble(target, &asm::file("", &[storing(number)]))
}

/// Runs the kernel; returns what it stored.
fn stored(process: &Process) -> u32 {
    let dispatch = process.dispatch("store", &Arguments::new().add(DATA + 0x40).add(0u64));
    dispatch.grid([1; 3], [1; 3]).launch().unwrap_or_else(|fault| panic!("{fault}"));
    process.data.words(0x40, 1)[0]
}

#[test]
fn code_is_cached_until_it_is_invalidated() {
    for target in TARGETS {
        let mut process = with_kernels(target, &[storing(0x111)]);
        assert_eq!(stored(&process), 0x111);
        process.load(&object(target, 0x222));
        assert_eq!(stored(&process), 0x111, "an instruction cache does not see stores");
        process.cache.invalidate(Some(CODE));
        assert_eq!(stored(&process), 0x222);
        process.load(&object(target, 0x333));
        process.cache.invalidate(Some(DATA));
        assert_eq!(stored(&process), 0x222, "other code");
        process.cache.invalidate(None);
        assert_eq!(stored(&process), 0x333);
    }
}

/// Memory that was freed and mapped again at the same address is other memory, without an invalidation.
#[test]
fn freed_code_is_never_executed() {
    for target in TARGETS {
        let process = with_kernels(target, &[storing(0x111)]);
        assert_eq!(stored(&process), 0x111);
        let other = Pages::new(process.code.bytes());
        load(&other, &object(target, 0x222));
        process.gpu.free(CODE).expect("it is mapped");
        let dispatch = process.dispatch("store", &Arguments::new().add(DATA + 0x40).add(0u64));
        let fault = dispatch.launch().expect_err("it is freed");
        assert!(
            matches!(&fault.kind, FaultKind::InvalidLaunch(why) if why.contains("kernel object")),
            "{fault}"
        );
        other.map(&process.gpu, CODE);
        assert_eq!(stored(&process), 0x222);
        // The same pages again: a new mapping, so they are read again.
        process.gpu.free(CODE).expect("it is mapped");
        load(&other, &object(target, 0x444));
        other.map(&process.gpu, CODE);
        assert_eq!(stored(&process), 0x444);
        process.gpu.free(CODE).expect("it is mapped");
        process.gpu.allocate_at(CODE, process.code.bytes()).expect("nobody is there");
        let fault = dispatch.launch().expect_err("zeros are no kernel");
        assert!(fault.address > CODE || matches!(fault.kind, FaultKind::InvalidLaunch(_)), "{fault}");
    }
}

/// Several queues launch the same code at the same time, while it is invalidated.
#[test]
fn queues_share_a_cache() {
    let process = &with_kernels(Target::Gfx906, &[storing(0x111)]);
    let dispatch = process.dispatch("store", &Arguments::new().add(DATA + 0x40).add(0u64));
    dispatch.grid([300, 1, 1], [1; 3]).launch().expect("it runs");
    let mut packet = [0; 64];
    process.gpu.read(PACKET, &mut packet).expect("it is mapped");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    process.gpu.launch_packet(&process.cache, &packet, PACKET, 0).expect("it runs");
                }
            });
        }
        scope.spawn(|| (0..1000).for_each(|_| process.cache.invalidate(None)));
    });
    assert_eq!(process.data.words(0x40, 1), [0x111]);
}
