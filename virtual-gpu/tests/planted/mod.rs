//! Errors planted in kernels: each gives a fault of its kind with the kernel, the instruction's address and
//! its mnemonic. The kernel without the error passes.

use crate::support;

mod cases;
mod flat;
mod order;
mod seeds;

use cases::{CASES, PROLOGUE, Planted, WAITS};
use flat::FLAT_WAITS;
use support::{Arguments, AsmKernel, Session, TARGETS, asm, compile};
use virtual_gpu::{Access, Checks, Fault, FaultKind, Gpu, Options, Target};

/// Maximum instructions of a wavefront in these tests.
pub(crate) const LIMIT: u64 = 20_000;

/// Replaces the marks of a body with labels: `NAME_at_0`, `NAME_at_1` and so on.
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

/// Returns the addresses of a kernel's marked instructions.
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
    find(CASES);
}

#[test]
fn missing_waits_are_found() {
    find(WAITS);
}

#[test]
fn missing_waits_for_flat_accesses_are_found() {
    find(FLAT_WAITS);
}

/// Runs the wrong kernels, which must fail as expected, and the right ones, which must pass.
fn find(cases: &[Planted]) {
    let all: Vec<AsmKernel> = cases.iter().flat_map(kernels).collect();
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file(PROLOGUE, &all));
        let session = session(target, &object, Checks::ALL);
        let mut wrong = Vec::new();
        for case in cases {
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

/// Returns the defect of a fault report, if any.
fn complaint(case: &Planted, kernel: &str, fault: &Fault, object: &[u8]) -> Option<String> {
    let addresses = sites(object, kernel);
    assert!(!addresses.is_empty(), "{kernel} has no marks");
    let mnemonic = fault.instruction.split_whitespace().next().unwrap_or_default();
    if !(case.kind)(&fault.kind) {
        return Some(format!("another kind of fault: {fault}"));
    }
    if fault.kernel != kernel {
        return Some(format!("the kernel is called {:?}", fault.kernel));
    }
    if case.name == "off_the_end_of_the_code" {
        return None; // Either the jump or the fetch may be reported.
    }
    if !addresses.contains(&fault.address) {
        return Some(format!("address {:#x}, not one of {addresses:x?}: {fault}", fault.address));
    }
    if !case.mnemonics.is_empty() && !case.mnemonics.contains(&mnemonic) {
        return Some(format!("the instruction is called {:?}", fault.instruction));
    }
    if case.mnemonics.is_empty() && fault.instruction.is_empty() {
        return Some("the instruction has no text".to_owned());
    }
    let text = fault.to_string();
    let complete =
        text.contains(kernel) && text.contains(mnemonic) && text.contains(&format!("{:x}", fault.address));
    (!complete).then(|| format!("the message is incomplete: {text}"))
}

/// Without the checks, errors that hardware does not detect pass; bounds are always checked.
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
            | "lds_half_written"
            | "store_past_its_buffer"
            | "load_past_its_buffer"
            | "atomic_past_its_buffer"
            | "scalar_load_past_its_buffer"
            | "scalar_load_of_four_past_its_buffer" => {
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

/// A fault contains the work-group and the wavefront.
#[test]
fn faults_name_group_and_wavefront() {
    // The second wavefront of the third work-group writes out of bounds.
    let body = "prologue\nv_readfirstlane_b32 s8, v0\ns_lshl_b32 s9, s2, 8\ns_add_u32 s8, s8, s9\n\
                s_cmp_lg_u32 s8, 0x240\ns_cbranch_scc1 1f\nv_add_u32_e32 v1, 0x10000000, v1\n1:\n\
                global_store_dword v1, v0, s[6:7]";
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file(PROLOGUE, &[AsmKernel::new("one", body)]));
        let session = session(target, &object, Checks::ALL);
        let buffer = session.upload(&[0u8; 4096]);
        let arguments = Arguments::new().add(buffer).add(buffer);
        let result = session.attempt("one", [5, 1, 1], [128, 1, 1], 0, &arguments);
        let fault = result.expect_err("one wavefront writes out of bounds");
        assert!(matches!(fault.kind, FaultKind::OutOfBounds(_)), "{fault}");
        assert_eq!((fault.group, fault.wave), ([2, 0, 0], 1), "{fault}");
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

/// Sets the processor in the flags of an object's ELF header.
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

/// gfx900 rejects each instruction that gfx906 introduced; gfx906 executes it.
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
