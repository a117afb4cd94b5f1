//! Programs without a code object: initial registers, the work-groups that run, and rejected programs.

use crate::support;

use support::{TARGETS, compile};
use virtual_gpu::{Bare, BareKernel, BareLaunch, Counters, FaultKind, Gpu, MAX_LDS, Options, Target};

/// Address of descriptor sets; its upper half is not passed in a register.
const SETS: u64 = 0xffff_8000_0004_0000;

/// Fourth word of a buffer resource with 32-bit elements.
const WORDS: u32 = 0x27fac;

/// 24 vector registers; F32 denormals are flushed, those of halves and doubles preserved.
const RSRC1: u32 = 5 | 0xc0 << 12;

/// Returns `COMPUTE_PGM_RSRC2`: user SGPRs, work-group ids along three axes, TG_SIZE, work-item coordinates.
const fn rsrc2(user: u32, size: bool, coordinates: u32) -> u32 {
    user << 1 | 7 << 7 | (size as u32) << 10 | (coordinates - 1) << 11
}

fn load(gpu: &Gpu, text: &str, rsrc2: u32, threads: [u32; 3]) -> BareKernel {
    let code = compile::bare(gpu.target(), text);
    gpu.load_bare(&Bare {
        name: "bare",
        code: &code,
        rsrc1: RSRC1,
        rsrc2,
        threads,
        lds_bytes: 0,
        wave32: false,
    })
    .unwrap_or_else(|fault| panic!("{}: {fault}", gpu.target().name()))
}

/// Creates a device with a buffer of some bytes and a descriptor set for it.
fn device(target: Target, bytes: usize) -> (Gpu, u64) {
    let gpu = Gpu::new(target, Options::default());
    let buffer = gpu.allocate_host(bytes).expect("memory").as_ptr() as u64;
    gpu.allocate_at(SETS, 4096).expect("nobody is there");
    let resource = [buffer as u32, (buffer >> 32) as u32, bytes as u32, WORDS];
    gpu.write(SETS, bytemuck::cast_slice(&resource)).expect("it is there");
    (gpu, buffer)
}

fn words(gpu: &Gpu, address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0; count];
    gpu.read(address, bytemuck::cast_slice_mut(&mut words)).expect("it is there");
    words
}

/// Stores eight words per work-item: two user SGPRs, the work-group's ids, TG_SIZE, the work-item's
/// coordinates, and the denormal with bit pattern 1 added to itself.
const START: &str = "
  s_mov_b32 s9, 0xffff8000
  s_mov_b32 s8, s0
  s_load_dwordx4 s[12:15], s[8:9], 0x0
  s_sub_u32 s10, s3, 5
  s_sub_u32 s11, s4, 6
  s_lshl_b32 s11, s11, 1
  s_add_u32 s10, s10, s11
  s_lshl_b32 s10, s10, 12
  v_lshlrev_b32 v3, 8, v1
  v_lshlrev_b32 v4, 16, v2
  v_or3_b32 v14, v0, v3, v4
  v_lshlrev_b32 v3, 3, v1
  v_lshlrev_b32 v4, 5, v2
  v_add3_u32 v3, v0, v3, v4
  v_lshlrev_b32 v3, 5, v3
  v_mov_b32 v8, s1
  v_mov_b32 v9, s2
  v_mov_b32 v10, s3
  v_mov_b32 v11, s4
  v_mov_b32 v12, s5
  v_mov_b32 v13, s6
  v_add_f32 v15, 1, 1
  s_waitcnt lgkmcnt(0)
  buffer_store_dwordx4 v[8:11], v3, s[12:15], s10 offen
  buffer_store_dwordx4 v[12:15], v3, s[12:15], s10 offen offset:16
  s_endpgm
";

#[test]
fn registers_at_the_start() {
    let threads = [8, 4, 4];
    for target in TARGETS {
        let (gpu, buffer) = device(target, 4 * 128 * 32);
        let kernel = load(&gpu, START, rsrc2(3, true, 3), threads);
        let user_sgprs = [SETS as u32, 0x1234_5678, 0x9abc_def0];
        let launch = BareLaunch { groups: [2, 2, 1], first_group: [5, 6, 7], user_sgprs: &user_sgprs };
        let counters = gpu.launch_bare(&kernel, &launch).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((counters.waves, counters.vmem_store, counters.smem), (8, 16, 8));
        assert_eq!(counters.global_written, 4 * 128 * 32);
        for (n, got) in words(&gpu, buffer, 4 * 128 * 8).chunks(8).enumerate() {
            let (group, item) = (n as u32 / 128, n as u32 % 128);
            let size = 2 + 64 * (item / 64);
            let coordinates = item % 8 + 0x100 * (item / 8 % 4) + 0x1_0000 * (item / 32);
            let want = [user_sgprs[1], user_sgprs[2], 5 + group % 2, 6 + group / 2, 7, size, coordinates, 0];
            assert_eq!(got, want, "{} group {group} item {item}", target.name());
        }
        gpu.unload_bare(&kernel).expect("it is loaded");
        gpu.unload_bare(&kernel).expect_err("once is enough");
    }
}

/// Constants are stored after the instructions; the code addresses them relative to itself.
#[test]
fn constants_behind_the_code() {
    let text = "
      s_getpc_b64 s[8:9]
    here:
      s_add_u32 s8, s8, constants-here
      s_addc_u32 s9, s9, 0
      s_load_dword s10, s[8:9], 0x0
      s_mov_b32 s7, 0xffff8000
      s_mov_b32 s6, s0
      s_load_dwordx4 s[12:15], s[6:7], 0x0
      v_lshlrev_b32 v1, 2, v0
      s_waitcnt lgkmcnt(0)
      v_add_u32 v0, s10, v0
      buffer_store_dword v0, v1, s[12:15], 0 offen
      s_endpgm
    constants:
      .long 0x1000";
    let (gpu, buffer) = device(Target::Gfx906, 256);
    let kernel = load(&gpu, text, rsrc2(1, false, 1), [64, 1, 1]);
    let launch = BareLaunch { groups: [1; 3], first_group: [0; 3], user_sgprs: &[SETS as u32] };
    gpu.launch_bare(&kernel, &launch).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(words(&gpu, buffer, 64), (0x1000..0x1040).collect::<Vec<u32>>());
}

/// The base of a resource has 48 bits and is sign-extended.
#[test]
fn buffers_at_high_addresses() {
    let text = "
      s_mov_b32 s8, s0
      s_mov_b32 s9, 0x8000
      s_mov_b32 s10, 64
      s_mov_b32 s11, 0x27fac
      v_lshlrev_b32 v1, 2, v0
      s_buffer_load_dword s4, s[8:11], 0x0
      s_waitcnt lgkmcnt(0)
      v_add_u32 v0, s4, v0
      buffer_store_dword v0, v1, s[8:11], 0 offen
      s_endpgm";
    let (gpu, _) = device(Target::Gfx906, 256);
    gpu.write(SETS, &7u32.to_le_bytes()).expect("it is there");
    let kernel = load(&gpu, text, rsrc2(1, false, 1), [16, 1, 1]);
    let launch = BareLaunch { groups: [1; 3], first_group: [0; 3], user_sgprs: &[SETS as u32] };
    let counters = gpu.launch_bare(&kernel, &launch).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(words(&gpu, SETS, 16), (7..23).collect::<Vec<u32>>());
    assert_eq!(
        (counters.smem, counters.scalar_read, counters.vmem_store, counters.global_written),
        (1, 4, 1, 64)
    );
}

#[test]
fn programs_that_no_hardware_starts() {
    let gpu = Gpu::new(Target::Gfx906, Options::default());
    let code = compile::bare(gpu.target(), "s_endpgm");
    let good = Bare {
        name: "bad",
        code: &code,
        rsrc1: RSRC1,
        rsrc2: rsrc2(2, false, 1),
        threads: [64, 1, 1],
        lds_bytes: 0,
        wave32: false,
    };
    let [invalid, unimplemented] = [false, true];
    for (what, program, unknown) in [
        ("no code", Bare { code: &[], ..good }, invalid),
        ("half a word", Bare { code: &code[..2], ..good }, invalid),
        ("17 user SGPRs", Bare { rsrc2: rsrc2(17, false, 1), ..good }, invalid),
        ("scratch", Bare { rsrc2: good.rsrc2 | 1, ..good }, unimplemented),
        ("a trap handler", Bare { rsrc2: good.rsrc2 | 1 << 6, ..good }, unimplemented),
        ("wavefronts of 32", Bare { wave32: true, ..good }, invalid),
        ("no work-items", Bare { threads: [64, 0, 1], ..good }, invalid),
        ("1025 work-items", Bare { threads: [1025, 1, 1], ..good }, invalid),
        ("too many registers", Bare { rsrc1: 31, threads: [1024, 1, 1], ..good }, invalid),
        ("too much LDS", Bare { lds_bytes: MAX_LDS + 512, ..good }, invalid),
    ] {
        let fault = gpu.load_bare(&program).expect_err(what);
        match fault.kind {
            FaultKind::InvalidCodeObject(_) => assert!(!unknown, "{what}: {fault}"),
            FaultKind::Unimplemented(_) => assert!(unknown, "{what}: {fault}"),
            _ => panic!("{what}: {fault}"),
        }
        assert!(fault.to_string().ends_with("(kernel bad)"), "{what}: {fault}");
    }
    let kernel = gpu.load_bare(&good).expect("it is good");
    assert_eq!(kernel.name(), "bad");
    let good = BareLaunch { groups: [1; 3], first_group: [0; 3], user_sgprs: &[0, 0] };
    gpu.launch_bare(&kernel, &good).expect("it is good");
    let nothing = gpu.launch_bare(&kernel, &BareLaunch { groups: [4, 0, 1], ..good });
    assert_eq!(nothing, Ok(Counters::default()));
    for (what, launch) in [
        ("too few user SGPRs", BareLaunch { user_sgprs: &[0], ..good }),
        ("too many work-items", BareLaunch { groups: [1 << 26, 1, 1], ..good }),
        ("too large a number", BareLaunch { first_group: [0, u32::MAX, 0], groups: [1, 2, 1], ..good }),
    ] {
        let fault = gpu.launch_bare(&kernel, &launch).expect_err(what);
        assert!(matches!(fault.kind, FaultKind::InvalidLaunch(_)), "{what}: {fault}");
    }
}
