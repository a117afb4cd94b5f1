//! Accesses to global memory that nothing orders: of two wavefronts, and of two work-groups.

use super::{labelled, sites};
use crate::support::{Arguments, AsmKernel, Session, TARGETS, asm, compile};
use virtual_gpu::{Access, Checks, Fault, FaultKind, Options, Other, Random, Target};

/// Work-groups of each launch.
const GROUPS: u32 = 4;

/// As `Planted`, launched with [`GROUPS`] work-groups; s2 is the id of the work-group. `part` stores each work-item's word
/// to the work-group's part, `arrive` counts the work-group in the word at s[6:7] and leaves all but the last, `join` adds
/// what all have stored. `&` marks instructions that the other access may be.
struct Unordered {
    name: &'static str,
    wrong: &'static str,
    right: &'static str,
    threads: u32,
    kind: fn(&FaultKind) -> bool,
}

const MACROS: &str = "
.macro prologue
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  s_lshl_b32 s8, s2, 9
  v_add_u32 v3, s8, v1
  v_mov_b32 v4, 1
  s_waitcnt lgkmcnt(0)
.endm
.macro old
  v_mov_b32 v5, 3
  global_atomic_inc v7, v2, v5, s[6:7] glc
  s_waitcnt vmcnt(0)
.endm
.macro first_thread
  v_cmp_eq_u32 vcc, 0, v0
  s_and_saveexec_b64 s[10:11], vcc
  s_cbranch_execz 7f
.endm
.macro last
  ds_write_b32 v2, v7
  s_waitcnt lgkmcnt(0)
  7:
  s_mov_b64 exec, s[10:11]
  s_barrier
  ds_read_b32 v8, v2
  s_waitcnt lgkmcnt(0)
  v_readfirstlane_b32 s12, v8
  s_cmp_lg_u32 s12, 3
  s_cbranch_scc1 8f
.endm
.macro join
  global_load_dword v11, v1, s[6:7] offset:1536
  global_load_dword v12, v1, s[6:7] offset:2048
  global_load_dword v13, v1, s[6:7] offset:2560
  s_waitcnt vmcnt(0)
  v_add3_u32 v10, v9, v11, v12
  v_add_u32 v10, v10, v13
  global_store_dword v1, v10, s[6:7] offset:3072
  8:
.endm
";

const RACE: fn(&FaultKind) -> bool = |kind| matches!(kind, FaultKind::GlobalRace(..));

fn other(kind: &FaultKind) -> Option<&Other> {
    match kind {
        FaultKind::GlobalRace(_, other) | FaultKind::StoreInFlight(_, other) => Some(other),
        _ => None,
    }
}

const CASES: &[Unordered] = &[
    Unordered {
        name: "work_groups_write_the_same",
        wrong: "@global_store_dword v1, v0, s[6:7]",
        right: "global_store_dword v3, v0, s[6:7]",
        threads: 64,
        kind: |kind| matches!(other(kind), Some(o) if o.access == Access::Write && o.group.is_some()),
    },
    Unordered {
        name: "one_byte_of_a_neighbour",
        wrong: "@global_store_dword v3, v0, s[6:7]\nv_cmp_eq_u32 vcc, 127, v0\ns_and_b64 exec, exec, vcc\n\
                @global_store_byte v3, v0, s[6:7] offset:4",
        right: "global_store_dword v3, v0, s[6:7]\nv_cmp_eq_u32 vcc, 127, v0\ns_and_b64 exec, exec, vcc\n\
                global_store_byte v3, v0, s[6:7] offset:3",
        threads: 128,
        kind: |kind| matches!(kind, FaultKind::GlobalRace(r, _) if r.at % 512 == 0),
    },
    Unordered {
        name: "bytes_beside_each_other",
        // Groups write the bytes of a word in turn.
        wrong: "v_lshlrev_b32 v6, 2, v0\nv_and_b32 v7, 1, s2\nv_add_u32 v6, v6, v7\n@global_store_short v6, v0, s[6:7]",
        right: "v_lshlrev_b32 v6, 2, v0\nv_add_u32 v6, s2, v6\nglobal_store_byte v6, v0, s[6:7]",
        threads: 64,
        kind: RACE,
    },
    Unordered {
        name: "reads_what_another_group_writes",
        wrong: "@global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x200, v3\n@global_load_dword v5, v6, s[6:7]\n\
                s_waitcnt vmcnt(0)",
        right: "global_store_dword v3, v0, s[6:7]\ns_waitcnt vmcnt(0)\nglobal_load_dword v5, v3, s[6:7]\n\
                s_waitcnt vmcnt(0)",
        threads: 128,
        kind: RACE,
    },
    Unordered {
        name: "scalar_read_of_another_group",
        wrong: "@global_store_dword v3, v0, s[6:7]\n@s_load_dwordx2 s[10:11], s[6:7], 0x208\ns_waitcnt lgkmcnt(0)",
        right: "global_store_dword v3, v0, s[6:7] offset:256\ns_load_dwordx2 s[10:11], s[6:7], 0x8\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        kind: RACE,
    },
    Unordered {
        name: "zeroed_by_one_group",
        // A counter must be zeroed by an earlier launch.
        wrong: "s_cmp_lg_u32 s2, 0\ns_cbranch_scc1 1f\n@global_store_dword v2, v2, s[6:7]\n1:\n\
                @global_atomic_add v2, v4, s[6:7]",
        right: "global_atomic_add v2, v4, s[6:7]",
        threads: 64,
        kind: |kind| matches!(other(kind), Some(o) if o.access != Access::Read),
    },
    Unordered {
        name: "counter_without_atomics",
        wrong: "@global_load_dword v5, v2, s[6:7]\ns_waitcnt vmcnt(0)\nv_add_u32 v5, 1, v5\n\
                @global_store_dword v2, v5, s[6:7]",
        right: "global_atomic_add v2, v4, s[6:7]",
        threads: 1,
        kind: RACE,
    },
    Unordered {
        name: "wavefronts_without_a_barrier",
        wrong: "@global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x100, v3\ns_waitcnt vmcnt(0)\n\
                @global_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        right: "global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x100, v3\ns_waitcnt vmcnt(0)\ns_barrier\n\
                global_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        threads: 128,
        kind: |kind| matches!(other(kind), Some(o) if !o.in_flight),
    },
    Unordered {
        name: "store_in_flight_at_a_barrier",
        wrong: "@global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x100, v3\ns_barrier\n\
                @global_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        right: "global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x100, v3\ns_waitcnt vmcnt(0)\ns_barrier\n\
                global_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        threads: 128,
        kind: |kind| matches!(kind, FaultKind::StoreInFlight(r, o) if r.access == Access::Read && o.wave < 2),
    },
    Unordered {
        name: "younger_store_in_flight_at_a_barrier",
        // The wait is for the older store only.
        wrong: "global_store_dword v3, v0, s[6:7] offset:2048\n@global_store_dword v3, v0, s[6:7]\nv_xor_b32 v6, 0x100, v3\n\
                s_waitcnt vmcnt(1)\ns_barrier\n@global_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        right: "global_store_dword v3, v0, s[6:7]\nglobal_store_dword v3, v0, s[6:7] offset:2048\nv_xor_b32 v6, 0x100, v3\n\
                s_waitcnt vmcnt(1)\ns_barrier\nglobal_load_dword v5, v6, s[6:7]\ns_waitcnt vmcnt(0)",
        threads: 128,
        kind: |kind| matches!(kind, FaultKind::StoreInFlight(..)),
    },
    Unordered {
        name: "last_group_without_an_atomic",
        // All leave but the one with the highest id, which is not known to be last.
        wrong: "@global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nbuffer_wbinvl1_vol\n\
                s_cmp_lg_u32 s2, 3\ns_cbranch_scc1 8f\n@global_load_dword v9, v1, s[6:7] offset:1024\njoin",
        right: "global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                buffer_wbinvl1_vol\nlast\nglobal_load_dword v9, v1, s[6:7] offset:1024\njoin",
        threads: 128,
        kind: |kind| matches!(other(kind), Some(o) if o.group.is_some() && !o.in_flight),
    },
    Unordered {
        name: "stores_of_other_wavefronts_in_flight",
        // What `is_last_group` was for gfx90a: the first wavefront waits for its own stores only.
        wrong: "@global_store_dword v3, v4, s[6:7] offset:1024\ns_barrier\nfirst_thread\ns_waitcnt vmcnt(0)\nold\n\
                buffer_wbinvl1_vol\nlast\n@global_load_dword v9, v1, s[6:7] offset:1024\njoin",
        right: "global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                buffer_wbinvl1_vol\nlast\nglobal_load_dword v9, v1, s[6:7] offset:1024\njoin",
        threads: 128,
        kind: |kind| matches!(other(kind), Some(o) if o.in_flight && o.wave == 1),
    },
    Unordered {
        name: "counts_before_its_store",
        wrong: "@global_store_dword v3, v4, s[6:7] offset:1024\nfirst_thread\nold\nbuffer_wbinvl1_vol\nlast\n\
                @global_load_dword v9, v1, s[6:7] offset:1024\njoin",
        right: "global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\nfirst_thread\nold\nbuffer_wbinvl1_vol\n\
                last\nglobal_load_dword v9, v1, s[6:7] offset:1024\njoin",
        threads: 64,
        kind: |kind| matches!(other(kind), Some(o) if o.in_flight && o.wave == 0),
    },
    Unordered {
        name: "no_acquire_after_counting",
        wrong: "@global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                last\n@global_load_dword v9, v1, s[6:7] offset:1024\njoin",
        right: "global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                buffer_wbinvl1_vol\nlast\nglobal_load_dword v9, v1, s[6:7] offset:1024\njoin",
        threads: 128,
        kind: |kind| matches!(other(kind), Some(o) if !o.in_flight),
    },
    Unordered {
        name: "reads_without_being_last",
        // Whoever comes second reads what the first has stored, and what the others have not.
        wrong: "@global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                buffer_wbinvl1_vol\nv_mov_b32 v7, 3\nlast\n@global_load_dword v9, v1, s[6:7] offset:1024\njoin",
        right: "global_store_dword v3, v4, s[6:7] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\nfirst_thread\nold\n\
                buffer_wbinvl1_vol\nlast\nglobal_load_dword v9, v1, s[6:7] offset:1024\njoin",
        threads: 128,
        kind: RACE,
    },
];

fn options(seed: u64) -> Options {
    Options { checks: Checks::ALL, random: Random::ALL, seed, ..Options::default() }
}

fn kernels(case: &Unordered) -> [AsmKernel; 2] {
    [("wrong", case.wrong), ("right", case.right)].map(|(which, body)| {
        let name = format!("{}_{which}", case.name);
        AsmKernel { lds: 512, ..AsmKernel::new(&name, &labelled(&name, body)) }
    })
}

fn launch(session: &Session, kernel: &str, groups: u32, threads: u32) -> Result<u64, Fault> {
    let buffer = session.upload(&[0u8; 4096]);
    let arguments = Arguments::new().add(buffer).add(buffer);
    session.attempt(kernel, [groups, 1, 1], [threads, 1, 1], 0, &arguments).map(|_| buffer)
}

/// Each is found under every seed, whatever ran first; the right kernel passes.
#[test]
fn unordered_accesses_are_found() {
    let all: Vec<AsmKernel> = CASES.iter().flat_map(kernels).collect();
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file(MACROS, &all));
        let mut wrong = Vec::new();
        for seed in 0..6 {
            let session = Session::with_options(target, "order", &object, options(seed));
            for case in CASES {
                let kernel = format!("{}_wrong", case.name);
                match launch(&session, &kernel, GROUPS, case.threads) {
                    Ok(_) => wrong.push(format!("{}: not found under seed {seed}", case.name)),
                    Err(fault) => wrong.extend(complaint(case, &kernel, &fault, seed, &object)),
                }
                if let Err(fault) = launch(&session, &format!("{}_right", case.name), GROUPS, case.threads) {
                    wrong.push(format!("{}: the right kernel fails: {fault}", case.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", target.name(), wrong.join("\n"));
    }
}

fn complaint(case: &Unordered, kernel: &str, fault: &Fault, seed: u64, object: &[u8]) -> Option<String> {
    let addresses = sites(object, kernel);
    let said = |what: &str| Some(format!("{}: {what}: {fault}", case.name));
    if !(case.kind)(&fault.kind) {
        return said("another fault");
    }
    let Some(other) = other(&fault.kind) else { return said("no other access") };
    // The loads of the last work-group are those of a macro, without marks.
    let anywhere = case.name == "reads_without_being_last";
    if !anywhere && !addresses.contains(&fault.address) && !addresses.contains(&other.address) {
        return said(&format!("not at {addresses:x?}"));
    }
    if fault.instruction.is_empty() || other.instruction.is_empty() || fault.kernel != kernel {
        return said("no instruction");
    }
    if fault.seed() != Some(seed) || !fault.to_string().contains(&format!("seed {seed}")) {
        return said("no seed");
    }
    let same = Some(fault.group) == other.group && fault.wave == other.wave;
    if same { said("a race with itself") } else { None }
}

/// The sums of the last work-group are right under every seed.
#[test]
fn right_kernels_give_the_same_under_every_seed() {
    let case = CASES.iter().find(|case| case.name == "stores_of_other_wavefronts_in_flight").expect("a case");
    let object = compile::assemble(Target::Gfx906, &asm::file(MACROS, &kernels(case)));
    for seed in 0..20 {
        let session = Session::with_options(Target::Gfx906, "order", &object, options(seed));
        let buffer = launch(&session, &format!("{}_right", case.name), GROUPS, 128).expect("it is right");
        assert_eq!(session.download::<u32>(buffer + 3072, 128), [GROUPS; 128]);
    }
}

/// The same one of many races is reported, however work-groups are spread over threads.
#[test]
fn the_verdict_does_not_depend_on_the_schedule() {
    let body = "v_lshrrev_b32 v6, 1, v0\nv_lshlrev_b32 v6, 2, v6\ns_lshl_b32 s8, s2, 5\nv_add_u32 v6, s8, v6\n\
                v_and_b32 v6, 0xfff, v6\n@global_store_dword v6, v0, s[6:7]\n@global_store_dword v1, v0, s[6:7] offset:1024";
    let kernel = AsmKernel::new("many", &labelled("many", body));
    let object = compile::assemble(Target::Gfx906, &asm::file(MACROS, &[kernel]));
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let random = Random { memory: false, ..Random::ALL };
        let session =
            Session::with_options(Target::Gfx906, "order", &object, Options { random, ..options(seed) });
        let mut fault = launch(&session, "many", 64, 64).expect_err("they race");
        fault.origin = None;
        seen.insert(fault.to_string().replace(&format!("{:#x}", at(&fault)), "AT"));
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

/// Address of the byte of a race, which differs from device to device only if allocations do.
fn at(fault: &Fault) -> u64 {
    match fault.kind {
        FaultKind::GlobalRace(range, _) => range.at,
        _ => 0,
    }
}

#[test]
fn source_lines_are_named() {
    const SOURCE: &str = "typedef unsigned u32;
extern \"C\" __attribute__((global)) void clash(u32 *to, u32 *unused) {
    u32 id = __builtin_amdgcn_workitem_id_x();
    to[id] =
        id;
    to[1024 + id + 64 * __builtin_amdgcn_workgroup_id_x()] = id;
}
";
    let options_of = |flag: &str| format!("-O1 {flag}");
    for (flag, line) in [("-gline-tables-only", true), ("-gdwarf-4 -gline-tables-only", true), ("", false)] {
        let object = compile::hip(Target::Gfx906, &options_of(flag), SOURCE);
        let session = Session::with_options(Target::Gfx906, "lines", &object, options(3));
        let buffer = session.upload(&[0u8; 8192]);
        let arguments = Arguments::new().add(buffer).add(buffer);
        let fault = session.attempt("clash", [2, 1, 1], [64, 1, 1], 0, &arguments).expect_err("they race");
        let other = other(&fault.kind).expect("a race");
        for found in [fault.line(), other.line.as_deref()] {
            assert_eq!(found.is_some_and(|found| found.ends_with("kernels.hip:4")), line, "{flag}: {fault}");
        }
        assert_eq!(fault.to_string().contains("kernels.hip:4"), line, "{fault}");
        assert_eq!((fault.group, other.group), ([1, 0, 0], Some([0, 0, 0])));
    }
}

/// `is_last_group` of hip-kernels as it was: the barrier, whose machine code waits for no store on gfx90a and later (here the
/// barrier is assembly, so that compilers for gfx906 add no wait either), then a release by the first thread alone.
const LAST_GROUP: &str = "typedef unsigned u32;
#define DEVICE static inline __attribute__((device, always_inline))
#define LDS __attribute__((shared))
DEVICE void memory_barrier() { __asm__ volatile(\"s_waitcnt lgkmcnt(0)\\n\\ts_barrier\" ::: \"memory\"); }
DEVICE bool is_last_group(u32 *counter, u32 count, u32 *scratch) {
    if (RELEASED) __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"agent\");
    memory_barrier();
    if (__builtin_amdgcn_workitem_id_x() == 0) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"agent\");
        *scratch = __builtin_amdgcn_atomic_inc32(counter, count - 1, __ATOMIC_RELAXED, \"agent\");
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"agent\");
    }
    memory_barrier();
    return __builtin_amdgcn_readfirstlane(*scratch) == count - 1;
}
extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(128, 128))) void join(u32 *parts, u32 *sums) {
    LDS u32 arrived;
    u32 id = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
    parts[1 + 128 * group + id] = id + group;
    if (!is_last_group(parts, 5, &arrived)) return;
    u32 sum = 0;
    for (u32 i = 0; i < 5; i++) sum += parts[1 + 128 * i + (id ^ 64)];
    sums[id] = sum;
}
";

#[test]
fn the_last_group_needs_all_stores() {
    for (released, options_of) in
        [(true, "-O1 -DRELEASED=1"), (true, "-O3 -DRELEASED=1"), (false, "-O1 -DRELEASED=0")]
    {
        let object = compile::hip(Target::Gfx906, options_of, LAST_GROUP);
        for seed in 0..4 {
            let session = Session::with_options(Target::Gfx906, "last group", &object, options(seed));
            let (parts, sums) = (session.upload(&[0u32; 1024]), session.upload(&[0u32; 128]));
            let arguments = Arguments::new().add(parts).add(sums);
            let result = session.attempt("join", [5, 1, 1], [128, 1, 1], 0, &arguments);
            if released {
                result.unwrap_or_else(|fault| panic!("{options_of}: {fault}"));
                let want: Vec<u32> = (0..128).map(|id| 5 * (id ^ 64) + 10).collect();
                assert_eq!(session.download::<u32>(sums, 128), want);
                continue;
            }
            let fault = result.expect_err("the second wavefront's stores are in flight");
            let other = other(&fault.kind).unwrap_or_else(|| panic!("{fault}"));
            // Of the same work-group before a barrier, or of another one before it signals.
            let in_flight = other.in_flight || matches!(fault.kind, FaultKind::StoreInFlight(..));
            assert!(in_flight && other.wave == 1 && other.access == Access::Write, "{fault}");
            assert!(other.instruction.contains("store_dword"), "{fault}");
        }
    }
}
