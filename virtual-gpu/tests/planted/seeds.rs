//! Choices under a seed: programs that depend on them give other results under other seeds.

use super::labelled;
use crate::support::{Arguments, AsmKernel, Session, asm, compile};
use std::collections::BTreeSet;
use virtual_gpu::{Checks, FaultKind, Options, Random, Target, Window};

const MACROS: &str = super::PROLOGUE;

/// Assembles a kernel.
fn assemble(body: &str) -> Vec<u8> {
    let kernel = AsmKernel { lds: 512, vgprs: 64, ..AsmKernel::new("k", &labelled("k", body)) };
    compile::assemble(Target::Gfx906, &asm::file(MACROS, &[kernel]))
}

/// Runs a kernel under a seed; returns the 1024 words at its second argument.
fn run(object: &[u8], threads: u32, options: Options, groups: u32) -> Vec<u32> {
    let session = Session::with_options(Target::Gfx906, "seeds", object, options);
    let (from, to) = (session.allocate(256), session.upload(&[0u8; 4096]));
    let arguments = Arguments::new().add(from).add(to);
    session
        .attempt("k", [groups, 1, 1], [threads, 1, 1], 0, &arguments)
        .unwrap_or_else(|fault| panic!("{fault}"));
    session.download(to, 1024)
}

fn under(seed: u64, random: Random) -> Options {
    Options { checks: Checks::NONE, random, seed, ..Options::default() }
}

/// Returns how many different results a program has under 8 seeds, which are the same when it is run again.
fn results(body: &str, threads: u32, random: Random) -> usize {
    let object = assemble(body);
    let of = |seed| run(&object, threads, under(seed, random), 1);
    let all: BTreeSet<Vec<u32>> = (0..8).map(of).collect();
    assert_eq!(of(5), of(5), "{body}");
    all.len()
}

/// Kernels that use what nobody has set.
const UNSET: [&str; 5] = [
    "global_store_dword v1, v9, s[6:7]",
    "v_mov_b32 v3, s20\nglobal_store_dword v1, v3, s[6:7]",
    "v_mov_b32 v3, vcc_lo\nglobal_store_dword v1, v3, s[6:7]",
    "ds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v3, s[6:7]",
    "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v3, s[6:7]",
];

#[test]
fn what_nobody_has_set_differs_between_seeds() {
    for body in UNSET {
        assert_eq!(results(body, 64, Random::ALL), 8, "{body}");
        assert_eq!(results(body, 64, Random::NONE), 1, "{body}");
    }
    let zeroed = Random { memory: false, ..Random::ALL };
    assert_eq!(run(&assemble(UNSET[4]), 64, under(3, zeroed), 1), [0; 1024], "as kernel drivers do");
    assert_eq!(run(&assemble(UNSET[0]), 64, under(3, Random::NONE), 1), [0; 1024]);
}

/// The order of wavefronts, and of work-groups, is not the same under all seeds.
#[test]
fn orders_differ_between_seeds() {
    // The first thread of each wavefront writes how many came before.
    let body = "v_and_b32 v3, 63, v0\nv_cmp_eq_u32 vcc, 0, v3\ns_and_b64 exec, exec, vcc\nv_mov_b32 v4, 1\n\
                global_atomic_add v5, v2, v4, s[6:7] offset:2048 glc\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v5, s[6:7]";
    assert!(results(body, 1024, Random::ALL) > 4);
    assert_eq!(results(body, 1024, Random { waves: false, ..Random::ALL }), 1);
    let body = "v_mov_b32 v4, 1\nv_mov_b32 v3, s2\nv_lshlrev_b32 v3, 2, v3\ns_mov_b64 exec, 1\n\
                global_atomic_add v5, v2, v4, s[6:7] offset:2048 glc\ns_waitcnt vmcnt(0)\nglobal_store_dword v3, v5, s[6:7]";
    let object = assemble(body);
    let of = |seed| run(&object, 64, under(seed, Random::ALL), 32);
    assert!((0..8).map(of).collect::<BTreeSet<_>>().len() > 4);
}

/// Approximations are off by one unit in the last place at most, some of them are, and exact values stay.
#[test]
fn approximations_differ_between_seeds() {
    for name in ["v_rcp_f32", "v_rsq_f32", "v_sqrt_f32", "v_exp_f32", "v_log_f32", "v_sin_f32", "v_cos_f32"] {
        let body = format!(
            "v_cvt_f32_u32 v3, v0\nv_mul_f32 v3, 0x3f9a3b21, v3\nv_add_f32 v3, 0x3e99999a, v3\n{name} v4, v3\n\
             global_store_dword v1, v4, s[6:7]\nv_mov_b32 v3, 1.0\n{name} v4, v3\nglobal_store_dword v1, v4, s[6:7] offset:256"
        );
        let object = assemble(&body);
        let only = Random { approximations: true, ..Random::NONE };
        let exact = run(&object, 64, under(0, Random::NONE), 1);
        let (mut off, mut kinds) = (0, BTreeSet::new());
        for seed in 0..4 {
            let got = run(&object, 64, under(seed, only), 1);
            for (&x, &y) in exact.iter().zip(&got).take(64) {
                assert!(x.abs_diff(y) <= 1, "{name}: {x:x} {y:x}");
                off += u32::from(x != y);
            }
            if ["v_rcp_f32", "v_rsq_f32", "v_sqrt_f32", "v_exp_f32"].contains(&name) {
                assert_eq!(got[64..128], exact[64..128], "{name} of 1");
            }
            kinds.insert(got);
        }
        assert!(off > 32 && kinds.len() == 4, "{name}: {off} differ");
    }
}

/// A launch keeps to its windows, in an arena of many tensors.
#[test]
fn strays_into_a_neighbour_are_found() {
    const ROW: u64 = 256;
    let body = "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v3, s[6:7]";
    let kernel = AsmKernel::new("copy", &labelled("copy", body));
    let object = compile::assemble(Target::Gfx906, &asm::file(MACROS, &[kernel]));
    let session = Session::new(Target::Gfx906, "windows", &object);
    let arena = session.upload(&[7u8; 8192]);
    let run = |from: u64, to: u64, windows: &[(u64, u64, bool)]| {
        let windows: Vec<Window> =
            windows.iter().map(|&(at, bytes, writable)| Window { at: arena + at, bytes, writable }).collect();
        let arguments = Arguments::new().add(arena + from).add(arena + to);
        let kernel = session.module.kernel("copy").expect("the kernel");
        let launch = virtual_gpu::Launch {
            groups: [1; 3],
            threads: [64, 1, 1],
            dynamic_lds: 0,
            arguments: &arguments.0,
            windows: Some(&windows),
        };
        session.gpu.launch(&kernel, &launch).map(drop).map_err(|fault| (fault.kind, fault.address))
    };
    // One row is read and one written; also at addresses that are no multiple of 16.
    for from in [1024, 1028] {
        let windows = [(from, ROW, false), (from + ROW, ROW, true)];
        run(from, from + ROW, &windows).expect("it stays inside");
        for (name, from, to) in [
            ("the operand one row further", from + ROW * 2, from + ROW),
            ("the result one row further", from, from + 2 * ROW),
            ("the result over the operand", from, from),
            ("a word before", from - 4, from + ROW),
            ("a word after", from, from + ROW + 4),
        ] {
            let (kind, address) = run(from, to, &windows).expect_err(name);
            assert!(matches!(kind, FaultKind::OutsideWindows(r) if r.at > arena), "{name}: {kind}");
            assert!(address > 0, "{name}");
        }
    }
    // In place, and a window that is not in memory.
    run(1024, 1024, &[(1024, ROW, false), (1024, ROW, true)]).expect("in place");
    let (kind, _) = run(0, 0, &[(8000, 1000, true)]).expect_err("beyond the arena");
    assert!(matches!(kind, FaultKind::OutOfBounds(_)), "{kind}");
}
