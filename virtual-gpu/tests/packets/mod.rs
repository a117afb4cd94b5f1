//! Launches by packets, of code in memory of this process, as a runtime and its kernel driver have them.

use crate::support;

mod cache;
mod errors;
mod grids;
mod messages;
mod preloaded;
mod process;
mod windows;

use process::{CODE, DATA, Process};
use support::{Arguments, AsmKernel, TARGETS, asm, compile};
use virtual_gpu::{Checks, FaultKind, Gpu, Options, Space, Target};

/// As a runtime's copy kernel: FLAT, and a wait for memory alone. s[0:1] points to source and destination.
const COPY: &str = "
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  v_mov_b32_e32 v3, s5
  v_add_co_u32_e32 v2, vcc, s4, v1
  v_addc_co_u32_e32 v3, vcc, 0, v3, vcc
  v_mov_b32_e32 v5, s7
  v_add_co_u32_e32 v4, vcc, s6, v1
  v_addc_co_u32_e32 v5, vcc, 0, v5, vcc
  flat_load_dword v6, v[2:3]
  s_waitcnt vmcnt(0)
  flat_store_dword v[4:5], v6
";

/// Returns a process with a code object of some kernels without metadata of sizes.
fn with_kernels(target: Target, kernels: &[AsmKernel]) -> Process {
    // Work-groups of some of these kernels store the same.
    let options = Options { checks: Checks { order: false, ..Checks::ALL }, ..Options::default() };
    let mut process = Process::new(target, options);
    process.load(&compile::assemble(target, &asm::file("", kernels)));
    process
}

#[test]
fn memory_of_the_process_is_copied_by_a_kernel() {
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("copy", COPY)]);
        let numbers: Vec<u32> = (0..64).map(|i| i * i + 7).collect();
        process.data.fill(0x100, bytemuck::cast_slice(&numbers));
        let (from, to) = (DATA + 0x100, DATA + 0x2000);
        let counters = process
            .dispatch("copy", &Arguments::new().add(from).add(to))
            .launch()
            .unwrap_or_else(|fault| panic!("{}: {fault}", target.name()));
        assert_eq!((counters.waves, counters.vmem_load, counters.vmem_store), (1, 1, 1));
        // The process sees it at its own address, the device at another.
        assert_eq!(process.data.words(0x2000, 64), numbers);
        let mut got = [0; 256];
        process.gpu.read(to, &mut got).expect("it is mapped");
        assert_eq!(bytemuck::cast_slice::<u8, u32>(&got), numbers);
        assert_eq!(process.gpu.available(), Gpu::new(target, Options::default()).available());
    }
}

/// LDS and scratch have the sizes in the packet, not those of the kernel.
#[test]
fn sizes_come_from_the_packet() {
    const SOURCE: &str = "
        extern SHARED u32 shared[];
        GLOBAL void reversed(u32* out, u32 size, u32 at) {
            volatile u32 own[16];
            for (u32 i = 0; i < 16; i++) own[i] = local_x() * 16 + i;
            shared[local_x()] = own[at & 15];
            barrier();
            out[local_x()] = shared[size - 1 - local_x()];
        }";
    for target in TARGETS {
        let object =
            compile::hip(target, "-O1", &format!("{}\n{SOURCE}", include_str!("../programs/prelude.h")));
        let mut process = Process::new(target, Options::default());
        process.load(&object);
        let arguments = Arguments::new().add(DATA + 0x1000).add(100u32).add(3u32);
        let scratch = process.descriptor("reversed")[1];
        assert!(scratch > 64, "{scratch}");
        let dispatch = process.dispatch("reversed", &arguments).grid([100, 1, 1], [100, 1, 1]);
        dispatch.sizes(400, scratch).launch().unwrap_or_else(|fault| panic!("{fault}"));
        let want: Vec<u32> = (0..100).rev().map(|i| i * 16 + 3).collect();
        assert_eq!(process.data.words(0x1000, 100), want);
        let fault = dispatch.sizes(396, scratch).launch().expect_err("too little LDS");
        assert!(matches!(fault.kind, FaultKind::OutOfBounds(r) if r.space == Space::Lds), "{fault}");
        let fault = dispatch.sizes(400, 16).launch().expect_err("too little scratch");
        assert!(matches!(fault.kind, FaultKind::OutOfBounds(r) if r.space == Space::Scratch), "{fault}");
    }
}

/// A kernel with calls that the compiler does not know has more than it declares.
#[test]
fn stacks_of_unknown_size() {
    const SOURCE: &str = "
        DEVICE NOINLINE u32 depth(u32 n) {
            volatile u32 own[8];
            own[n & 7] = n;
            return n == 0 ? 0 : 1 + depth(n - 1) + own[n & 7] - n;
        }
        GLOBAL void recursive(u32* out) { out[local_x()] = depth(local_x()); }";
    for target in TARGETS {
        let object =
            compile::hip(target, "-O0", &format!("{}\n{SOURCE}", include_str!("../programs/prelude.h")));
        let mut process = Process::new(target, Options::default());
        process.load(&object);
        let words = process.descriptor("recursive");
        assert_ne!(words[14] & 1 << 11, 0, "a dynamic stack");
        let dispatch = process.dispatch("recursive", &Arguments::new().add(DATA));
        let launch = dispatch.grid([32, 1, 1], [32, 1, 1]).sizes(0, words[1]).launch();
        launch.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(process.data.words(0, 32), (0..32).collect::<Vec<u32>>());
    }
}

/// The kernel reads its packet and the address of its queue.
#[test]
fn packet_and_queue_are_known_to_the_kernel() {
    // Later versions pass the queue as a hidden argument.
    const OPTIONS: &str = "-O1 -mcode-object-version=4";
    const SOURCE: &str = "
        GLOBAL void addresses(u64* out) {
            out[0] = (u64)__builtin_amdgcn_dispatch_ptr();
            out[1] = (u64)__builtin_amdgcn_queue_ptr();
            out[2] = ((__attribute__((address_space(4))) const u32*)__builtin_amdgcn_dispatch_ptr())[3];
        }";
    for target in TARGETS {
        let object =
            compile::hip(target, OPTIONS, &format!("{}\n{SOURCE}", include_str!("../programs/prelude.h")));
        let mut process = Process::new(target, Options::default());
        process.load(&object);
        let dispatch = process.dispatch("addresses", &Arguments::new().add(DATA + 0x1000));
        dispatch.grid([5, 1, 1], [64, 1, 1]).launch().unwrap_or_else(|fault| panic!("{fault}"));
        let words = process.data.words(0x1000, 6);
        let halves = |address: u64| [address as u32, (address >> 32) as u32];
        assert_eq!(words[..2], halves(process::PACKET));
        assert_eq!(words[2..4], halves(process::QUEUE));
        assert_eq!(words[4..], [5, 0], "the grid in the packet");
    }
}

/// FLAT reaches LDS and scratch through the apertures that a driver passes to the runtime.
#[test]
fn apertures_are_where_kernels_look() {
    let (lds, scratch) = Gpu::apertures();
    assert_ne!(lds, scratch);
    let body = format!(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_mov_b32 v2, 0\nv_mov_b32 v3, {lds:#x}\nv_mov_b32 v4, 77\n\
         s_mov_b64 s[6:7], src_shared_base\ns_mov_b64 s[8:9], src_private_base\n\
         flat_store_dword v[2:3], v4 offset:12\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 v5, 12\nds_read_b32 v6, v5\n\
         v_mov_b32 v7, s7\nv_mov_b32 v8, s9\ns_waitcnt lgkmcnt(0)\n\
         global_store_dwordx3 v2, v[6:8], s[4:5]"
    );
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("apertures", &body)]);
        let dispatch = process.dispatch("apertures", &Arguments::new().add(DATA + 0x1000).add(0u64));
        dispatch.grid([1; 3], [1; 3]).sizes(16, 0).launch().unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(process.data.words(0x1000, 3), [77, lds, scratch]);
    }
}

/// A fault has the name of the kernel and addresses in memory.
#[test]
fn faults_name_the_kernel_by_its_symbol() {
    for target in TARGETS {
        let process =
            with_kernels(target, &[AsmKernel::new("copy", COPY), AsmKernel::new("other", "s_nop 0")]);
        let bad = 0x1234_5678_0000u64;
        let dispatch = process.dispatch("copy", &Arguments::new().add(DATA).add(bad));
        let fault = dispatch.launch().expect_err("nothing is there");
        assert!(matches!(fault.kind, FaultKind::OutOfBounds(r) if r.at == bad), "{fault}");
        assert_eq!(fault.kernel, "copy");
        assert!(fault.instruction.starts_with("flat_store_dword"), "{fault}");
        let code = CODE..CODE + process.code.bytes() as u64;
        assert!(code.contains(&fault.address), "{fault}");
        let mut word = [0; 4];
        process.gpu.read(fault.address, &mut word).expect("it is mapped");
        assert_eq!(u32::from_le_bytes(word) >> 26, 0x37, "a FLAT instruction is there");
        // Without the header no one knows the name.
        process.code.fill(0, &[0; 4]);
        let fault = dispatch.launch().expect_err("nothing is there");
        assert_eq!(fault.kernel, format!("{:#x}", process.object("copy")));
    }
}
