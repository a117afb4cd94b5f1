//! Mistakes planted in kernels: each gives the fault of its kind, which names the kernel, the instruction's address and
//! its mnemonic, and the kernel without the mistake passes.

mod support;

use support::{Arguments, AsmKernel, Session, TARGETS, asm, compile};
use virtual_gpu::{Access, Checks, Fault, FaultKind, Gpu, Options, Space, Target};

/// A kernel, wrong and right.
///
/// s[4:5] points to 256 bytes, s[6:7] to 4096 bytes that are zero, and v1 is four times the work item's number. The
/// kernel has 512 bytes of LDS. `@` marks an instruction that may be named as the culprit.
struct Planted {
    name: &'static str,
    wrong: &'static str,
    right: &'static str,
    threads: u32,
    /// Mnemonics of the marked instructions.
    mnemonics: &'static [&'static str],
    kind: fn(&FaultKind) -> bool,
}

const PROLOGUE: &str = "
.macro prologue
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  s_waitcnt lgkmcnt(0)
.endm
";

const CASES: &[Planted] = &[
    Planted {
        name: "race_of_writes",
        wrong: "v_and_b32 v3, 0xff, v1\n@ds_write_b32 v3, v0",
        right: "ds_write_b32 v1, v0",
        threads: 128,
        mnemonics: &["ds_write_b32"],
        kind: |kind| matches!(kind, FaultKind::Race(range, _) if range.space == Space::Lds),
    },
    Planted {
        name: "race_of_atomic_and_read",
        wrong: "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n@ds_add_u32 v2, v0\ns_waitcnt lgkmcnt(0)\n\
                @ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)",
        right: "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_add_u32 v2, v0\ns_waitcnt lgkmcnt(0)\n\
                s_barrier\nds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)",
        threads: 128,
        mnemonics: &["ds_add_u32", "ds_read_b32"],
        kind: |kind| matches!(kind, FaultKind::Race(..)),
    },
    Planted {
        name: "missing_barrier",
        // All of LDS is written and seen by all; then each wavefront reads what the other one writes anew.
        wrong: "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n@ds_write_b32 v1, v0\nv_xor_b32 v3, 0x100, v1\n\
                s_waitcnt lgkmcnt(0)\n@ds_read_b32 v4, v3\ns_waitcnt lgkmcnt(0)",
        right: "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v0\nv_xor_b32 v3, 0x100, v1\n\
                s_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v4, v3\ns_waitcnt lgkmcnt(0)",
        threads: 128,
        mnemonics: &["ds_read_b32", "ds_write_b32"],
        kind: |kind| matches!(kind, FaultKind::Race(..)),
    },
    Planted {
        name: "missing_second_barrier",
        // Read and overwritten again with no barrier in between, the mistake of loops over tiles.
        wrong: "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32 v3, 0x100, v1\n@ds_read_b32 v4, v3\n\
                s_waitcnt lgkmcnt(0)\n@ds_write_b32 v1, v2",
        right: "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32 v3, 0x100, v1\nds_read_b32 v4, v3\n\
                s_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v2",
        threads: 128,
        mnemonics: &["ds_read_b32", "ds_write_b32"],
        kind: |kind| matches!(kind, FaultKind::Race(..)),
    },
    Planted {
        name: "write_beyond_the_end",
        wrong: "@global_store_dword v1, v0, s[4:5]",
        right: "global_store_dword v1, v0, s[6:7]",
        threads: 65,
        mnemonics: &["global_store_dword"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Write && r.space == Space::Global),
    },
    Planted {
        name: "read_before_the_start",
        wrong: "@global_load_dword v3, v1, s[4:5] offset:-4\ns_waitcnt vmcnt(0)",
        right: "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)",
        threads: 1,
        mnemonics: &["global_load_dword"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read && r.bytes == 4),
    },
    Planted {
        name: "read_across_the_end",
        wrong: "@global_load_dwordx4 v[4:7], v1, s[4:5] offset:4\ns_waitcnt vmcnt(0)",
        right: "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)",
        threads: 61,
        mnemonics: &["global_load_dwordx4"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read),
    },
    Planted {
        name: "scalar_read_beyond_the_end",
        wrong: "@s_load_dwordx2 s[8:9], s[4:5], 0xfc\ns_waitcnt lgkmcnt(0)",
        right: "s_load_dwordx2 s[8:9], s[4:5], 0xf8\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["s_load_dwordx2"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read && r.space == Space::Global),
    },
    Planted {
        name: "address_that_is_no_address",
        wrong: "v_mov_b32 v3, 0\nv_mov_b32 v4, 0\n@flat_load_dword v5, v[3:4]\ns_waitcnt vmcnt(0) lgkmcnt(0)",
        right: "v_mov_b32 v3, s4\nv_mov_b32 v4, s5\nflat_load_dword v5, v[3:4]\ns_waitcnt vmcnt(0) lgkmcnt(0)",
        threads: 64,
        mnemonics: &["flat_load_dword"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read),
    },
    Planted {
        name: "atomic_beyond_the_end",
        wrong: "@global_atomic_add v1, v0, s[4:5]",
        right: "v_and_b32 v1, 0xff, v1\nglobal_atomic_add v1, v0, s[4:5]",
        threads: 128,
        mnemonics: &["global_atomic_add"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Atomic),
    },
    Planted {
        name: "lds_beyond_the_end",
        wrong: "@ds_write_b32 v1, v0 offset:256",
        right: "ds_write_b32 v1, v0 offset:252",
        threads: 65,
        mnemonics: &["ds_write_b32"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Write && r.space == Space::Lds),
    },
    Planted {
        name: "lds_never_written",
        wrong: "@ds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)",
        right: "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["ds_read_b32"],
        kind: |kind| matches!(kind, FaultKind::Uninitialised(r) if r.space == Space::Lds && r.access == Access::Read),
    },
    Planted {
        name: "lds_half_written",
        wrong: "ds_write_b16 v1, v0\ns_waitcnt lgkmcnt(0)\n@ds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)",
        right: "ds_write_b16 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_u16 v3, v1\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["ds_read_b32"],
        kind: |kind| matches!(kind, FaultKind::Uninitialised(..)),
    },
    Planted {
        name: "barrier_of_some",
        // Wavefront 1 ends while wavefront 0 waits.
        wrong: "v_readfirstlane_b32 s8, v0\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 1f\n@s_barrier\n1:\n@s_endpgm",
        right: "s_barrier",
        threads: 128,
        mnemonics: &["s_barrier", "s_endpgm"],
        kind: |kind| matches!(kind, FaultKind::BarrierDivergence(..)),
    },
    Planted {
        name: "different_barriers",
        wrong: "v_readfirstlane_b32 s8, v0\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 1f\n@s_barrier\ns_branch 2f\n\
                1:\n@s_barrier\n2:",
        right: "v_readfirstlane_b32 s8, v0\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 1f\ns_nop 0\n1:\ns_barrier",
        threads: 128,
        mnemonics: &["s_barrier"],
        kind: |kind| matches!(kind, FaultKind::BarrierDivergence(..)),
    },
    Planted {
        name: "misaligned_atomic",
        wrong: "@global_atomic_add v2, v0, s[6:7] offset:2",
        right: "global_atomic_add v2, v0, s[6:7] offset:4",
        threads: 64,
        mnemonics: &["global_atomic_add"],
        kind: |kind| matches!(kind, FaultKind::Misaligned(r, 4) if r.access == Access::Atomic),
    },
    Planted {
        name: "misaligned_wide_atomic",
        wrong: "@global_atomic_add_x2 v2, v[4:5], s[6:7] offset:4",
        right: "global_atomic_add_x2 v2, v[4:5], s[6:7] offset:8",
        threads: 64,
        mnemonics: &["global_atomic_add_x2"],
        kind: |kind| matches!(kind, FaultKind::Misaligned(r, 8) if r.access == Access::Atomic),
    },
    Planted {
        name: "misaligned_lds_atomic",
        wrong: "ds_write_b64 v2, v[4:5]\ns_waitcnt lgkmcnt(0)\n@ds_add_u32 v2, v0 offset:1",
        right: "ds_write_b64 v2, v[4:5]\ns_waitcnt lgkmcnt(0)\nds_add_u32 v2, v0 offset:4",
        threads: 64,
        mnemonics: &["ds_add_u32"],
        kind: |kind| matches!(kind, FaultKind::Misaligned(r, 4) if r.space == Space::Lds),
    },
    Planted {
        name: "endless_loop",
        wrong: "1:\n@s_branch 1b",
        right: "s_movk_i32 s8, 0x3e8\n1:\ns_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 1b",
        threads: 64,
        mnemonics: &["s_branch"],
        kind: |kind| matches!(kind, FaultKind::Budget(LIMIT)),
    },
    Planted {
        name: "waits_for_nobody",
        // Spins on a flag that nobody sets.
        wrong: "1:\n@s_load_dword s8, s[6:7], 0x0 glc\n@s_waitcnt lgkmcnt(0)\n@s_cmp_eq_u32 s8, 0\n@s_cbranch_scc1 1b",
        right: "1:\ns_load_dword s8, s[6:7], 0x0 glc\ns_waitcnt lgkmcnt(0)\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 1b",
        threads: 64,
        mnemonics: &["s_load_dword", "s_waitcnt", "s_cmp_eq_u32", "s_cbranch_scc1"],
        kind: |kind| matches!(kind, FaultKind::Budget(LIMIT)),
    },
    Planted {
        name: "scalar_instruction_that_is_none",
        wrong: "@.long 0xbe80ff00",
        right: "s_mov_b32 s0, s0",
        threads: 64,
        mnemonics: &[],
        kind: |kind| matches!(kind, FaultKind::IllegalInstruction(0xbe80_ff00)),
    },
    Planted {
        name: "vector_instruction_that_is_none",
        wrong: "@.long 0x7e01fe00",
        right: "v_mov_b32 v0, v0",
        threads: 64,
        mnemonics: &[],
        kind: |kind| matches!(kind, FaultKind::IllegalInstruction(0x7e01_fe00)),
    },
    Planted {
        name: "trap",
        wrong: "@s_trap 2",
        right: "s_nop 0",
        threads: 64,
        mnemonics: &["s_trap"],
        kind: |kind| matches!(kind, FaultKind::Trap(2)),
    },
    Planted {
        name: "off_the_end_of_the_code",
        wrong: "s_getpc_b64 s[8:9]\ns_add_u32 s8, s8, 0x100000\ns_addc_u32 s9, s9, 0\n@s_setpc_b64 s[8:9]",
        right: "s_getpc_b64 s[8:9]\n1:\ns_add_u32 s8, s8, 2f-1b\ns_addc_u32 s9, s9, 0\ns_setpc_b64 s[8:9]\ns_trap 2\n2:",
        threads: 64,
        mnemonics: &[],
        kind: |kind| !matches!(kind, FaultKind::Unimplemented(_) | FaultKind::Budget(_)),
    },
];

/// Instructions that a wavefront may execute here.
const LIMIT: u64 = 20_000;

/// A body with its marks made into symbols: `NAME_at_0`, `NAME_at_1` and so on.
fn labelled(name: &str, body: &str) -> String {
    let mut out = "prologue\n".to_owned();
    for (i, part) in body.split('@').enumerate() {
        if i > 0 {
            out += &format!("{name}_at_{}:\n", i - 1);
        }
        out += part;
    }
    out
}

fn kernels(case: &Planted) -> [AsmKernel; 2] {
    [("wrong", case.wrong), ("right", case.right)].map(|(which, body)| {
        let name = format!("{}_{which}", case.name);
        AsmKernel { lds: 512, ..AsmKernel::new(&name, &labelled(&name, body)) }
    })
}

/// Where the marked instructions of a kernel are.
fn sites(object: &[u8], kernel: &str) -> Vec<u64> {
    use object::{Object as _, ObjectSymbol as _};
    let file = object::File::parse(object).expect("the linker wrote an ELF file");
    let prefix = format!("{kernel}_at_");
    let named = |s: &object::Symbol<'_, '_>| s.name().is_ok_and(|name| name.starts_with(&prefix));
    file.symbols().filter(named).map(|symbol| symbol.address()).collect()
}

fn session(target: Target, object: &[u8], checks: Checks) -> Session {
    Session::with_options(
        target,
        "planted",
        object,
        Options { checks, max_instructions: LIMIT, ..Options::default() },
    )
}

fn launch(session: &Session, kernel: &str, threads: u32) -> Result<(), Fault> {
    let (small, large) = (session.allocate(256), session.upload(&[0u8; 4096]));
    session.gpu.write(small, &[0; 256]).expect("the memory is there");
    let arguments = Arguments::new().add(small).add(large);
    session.attempt(kernel, [1; 3], [threads, 1, 1], 0, &arguments).map(drop)
}

#[test]
fn planted_mistakes_are_found() {
    let all: Vec<AsmKernel> = CASES.iter().flat_map(kernels).collect();
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file(PROLOGUE, &all));
        let session = session(target, &object, Checks::ALL);
        let mut wrong = Vec::new();
        for case in CASES {
            let kernel = format!("{}_wrong", case.name);
            match launch(&session, &kernel, case.threads) {
                Ok(()) => wrong.push(format!("{}: not found", case.name)),
                Err(fault) => {
                    wrong.extend(
                        complaint(case, &kernel, &fault, &object).map(|c| format!("{}: {c}", case.name)),
                    );
                }
            }
            if let Err(fault) = launch(&session, &format!("{}_right", case.name), case.threads) {
                wrong.push(format!("{}: the right kernel fails: {fault}", case.name));
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", target.name(), wrong.join("\n"));
    }
}

/// What is wrong with a report.
fn complaint(case: &Planted, kernel: &str, fault: &Fault, object: &[u8]) -> Option<String> {
    let places = sites(object, kernel);
    assert!(!places.is_empty(), "{kernel} has no marks");
    let mnemonic = fault.instruction.split_whitespace().next().unwrap_or_default();
    if !(case.kind)(&fault.kind) {
        return Some(format!("another kind of fault: {fault}"));
    }
    if fault.kernel != kernel {
        return Some(format!("the kernel is called {:?}", fault.kernel));
    }
    if case.name == "off_the_end_of_the_code" {
        return None; // Whether the jump or the fetch is at fault is a matter of taste.
    }
    if !places.contains(&fault.address) {
        return Some(format!("address {:#x}, not one of {places:x?}: {fault}", fault.address));
    }
    if !case.mnemonics.is_empty() && !case.mnemonics.contains(&mnemonic) {
        return Some(format!("the instruction is called {:?}", fault.instruction));
    }
    if case.mnemonics.is_empty() && fault.instruction.is_empty() {
        return Some("the instruction has no text".to_owned());
    }
    let text = fault.to_string();
    let whole =
        text.contains(kernel) && text.contains(mnemonic) && text.contains(&format!("{:x}", fault.address));
    (!whole).then(|| format!("the message lacks a part: {text}"))
}

/// Without the checks, mistakes that the hardware does not notice pass; bounds are checked always.
#[test]
fn checks_can_be_left_out() {
    let all: Vec<AsmKernel> = CASES.iter().flat_map(kernels).collect();
    let object = compile::assemble(Target::Gfx906, &asm::file(PROLOGUE, &all));
    let session = session(Target::Gfx906, &object, Checks::NONE);
    for case in CASES {
        let result = launch(&session, &format!("{}_wrong", case.name), case.threads);
        match case.name {
            "race_of_writes"
            | "race_of_atomic_and_read"
            | "missing_barrier"
            | "missing_second_barrier"
            | "lds_never_written"
            | "lds_half_written" => {
                assert_eq!(result, Ok(()), "{}", case.name);
            }
            name if name.contains("beyond") || name.contains("across") || name.contains("before") => {
                let fault = result.expect_err(name);
                assert!(matches!(fault.kind, FaultKind::OutOfBounds(_)), "{name}: {fault}");
            }
            _ => {}
        }
    }
}

#[test]
fn freed_memory() {
    let body = "prologue\nfreed_at_0: global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\n\
                global_store_dword v1, v3, s[6:7]";
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file(PROLOGUE, &[AsmKernel::new("freed", body)]));
        let session = session(target, &object, Checks::ALL);
        let (from, to) = (session.upload(&[7u32; 64]), session.upload(&[0u32; 64]));
        let arguments = Arguments::new().add(from).add(to);
        session.run("freed", [1; 3], [64, 1, 1], &arguments);
        assert_eq!(session.download::<u32>(to, 64), [7; 64]);
        session.gpu.free(from).expect("the memory is allocated");
        let fault = session.attempt("freed", [1; 3], [64, 1, 1], 0, &arguments).expect_err("it is freed");
        assert!(matches!(fault.kind, FaultKind::FreedMemory(r) if r.access == Access::Read), "{fault}");
        assert_eq!((fault.kernel.as_str(), fault.address), ("freed", sites(&object, "freed")[0]), "{fault}");
        assert!(fault.instruction.starts_with("global_load_dword"), "{fault}");

        let fault = session.gpu.read(from, &mut [0; 4]).expect_err("the host cannot read it either");
        assert!(matches!(fault.kind, FaultKind::FreedMemory(_)), "{fault}");
        session.gpu.free(from).expect_err("once is enough");
        session.gpu.write(to + 252, &[0; 8]).expect_err("the host stays within bounds");
    }
}

#[test]
fn launches_that_no_hardware_accepts() {
    let kernel = AsmKernel { lds: 512, vgprs: 64, ..AsmKernel::new("nothing", "s_nop 0") };
    let greedy = AsmKernel::new("greedy", "s_nop 0");
    let object = compile::assemble(Target::Gfx906, &asm::file(PROLOGUE, &[kernel, greedy]));
    let session = session(Target::Gfx906, &object, Checks::ALL);
    let arguments = Arguments::new().add(0u64).add(0u64);
    let launch = |threads: [u32; 3], lds: u32, arguments: &Arguments| {
        session.attempt("nothing", [1; 3], threads, lds, arguments)
    };
    launch([1024, 1, 1], 0, &arguments).expect("a group of 1024 fits");
    launch([8, 8, 16], 65536 - 512, &arguments).expect("64 KiB of LDS fit");
    for (what, result) in [
        ("1025 threads", launch([1025, 1, 1], 0, &arguments)),
        ("1024 threads of 96 registers", session.attempt("greedy", [1; 3], [1024, 1, 1], 0, &arguments)),
        ("no threads", launch([0, 1, 1], 0, &arguments)),
        ("too many threads in two dimensions", launch([64, 32, 1], 0, &arguments)),
        ("too much LDS", launch([64, 1, 1], 65536, &arguments)),
        ("too few arguments", launch([64, 1, 1], 0, &Arguments::new().add(0u64))),
    ] {
        let fault = result.expect_err(what);
        assert!(matches!(fault.kind, FaultKind::InvalidLaunch(_)), "{what}: {fault}");
    }
}

/// The flags of an object's header name its processor.
fn with_processor(mut object: Vec<u8>, machine: u8) -> Vec<u8> {
    const FLAGS_AT: usize = 48;
    object[FLAGS_AT] = machine;
    object
}

const EF_AMDGPU_MACH_GFX900: u8 = 0x2c;
const EF_AMDGPU_MACH_GFX906: u8 = 0x2f;

#[test]
fn objects_that_do_not_load() {
    let object =
        compile::assemble(Target::Gfx906, &asm::file(PROLOGUE, &[AsmKernel::new("nothing", "s_nop 0")]));
    assert_eq!(object[48], EF_AMDGPU_MACH_GFX906);
    let gpu = Gpu::new(Target::Gfx906, Options::default());
    gpu.load(&object).expect("it is an object of this processor");
    let cut = &object[..object.len() / 3];
    let host =
        std::fs::read(std::env::current_exe().expect("this program has a path")).expect("it can be read");
    for (what, bytes) in [
        ("nothing", &[][..]),
        ("text", &b"no object at all"[..]),
        ("a third of an object", cut),
        ("a program of the host", &host),
        ("another processor", &with_processor(object.clone(), EF_AMDGPU_MACH_GFX900)),
    ] {
        let fault = gpu.load(bytes).err().unwrap_or_else(|| panic!("{what} loads"));
        assert!(matches!(fault.kind, FaultKind::InvalidCodeObject(_)), "{what}: {fault}");
    }
}

/// Instructions that came with gfx906: gfx900 refuses each, gfx906 executes it.
#[test]
fn gfx900_refuses_what_came_later() {
    let later = [
        "v_fmac_f32 v3, v1, v2",
        "v_xnor_b32 v3, v1, v2",
        "v_dot2_f32_f16 v3, v1, v2, v2",
        "v_dot2_i32_i16 v3, v1, v2, v2",
        "v_dot2_u32_u16 v3, v1, v2, v2",
        "v_dot4_i32_i8 v3, v1, v2, v2",
        "v_dot4_u32_u8 v3, v1, v2, v2",
        "v_dot8_i32_i4 v3, v1, v2, v2",
        "v_dot8_u32_u4 v3, v1, v2, v2",
    ];
    let kernel = |(i, line): (usize, &&str)| {
        AsmKernel::new(&format!("k{i}"), &format!("prologue\nv_mov_b32 v3, 0\nk{i}_at_0: {line}"))
    };
    let all: Vec<AsmKernel> = later.iter().enumerate().map(kernel).collect();
    let object = compile::assemble(Target::Gfx906, &asm::file(PROLOGUE, &all));
    let old = with_processor(object.clone(), EF_AMDGPU_MACH_GFX900);
    let (new, old) =
        (session(Target::Gfx906, &object, Checks::ALL), session(Target::Gfx900, &old, Checks::ALL));
    for (i, line) in later.iter().enumerate() {
        let name = format!("k{i}");
        launch(&new, &name, 64).unwrap_or_else(|fault| panic!("gfx906 refuses {line}: {fault}"));
        let fault = launch(&old, &name, 64).expect_err(line);
        let refused = matches!(fault.kind, FaultKind::IllegalInstruction(_) | FaultKind::Unimplemented(_));
        assert!(refused, "{line}: {fault}");
        assert_eq!(fault.address, sites(&object, &name)[0], "{line}: {fault}");
    }
}
