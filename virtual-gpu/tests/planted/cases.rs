//! The kernels with errors and the corresponding correct kernels.

use crate::planted::LIMIT;
use virtual_gpu::{Access, FaultKind, Space};

/// A kernel in a wrong and a right version.
///
/// s[4:5] points to 256 bytes, s[6:7] to 4096 bytes of zeros, and v1 is four times the work-item id. The
/// kernel has 512 bytes of LDS. `in_memory` makes v[4:5] the addresses of v1 in those 4096 bytes, `in_lds` in LDS, and
/// `in_both` in memory for eight lanes only. `buffer N` makes s[12:15] a resource of N bytes from s[4:5] on. `@` marks an
/// instruction that the fault may name.
pub(crate) struct Planted {
    pub(crate) name: &'static str,
    pub(crate) wrong: &'static str,
    pub(crate) right: &'static str,
    pub(crate) threads: u32,
    /// Mnemonics of the marked instructions.
    pub(crate) mnemonics: &'static [&'static str],
    pub(crate) kind: fn(&FaultKind) -> bool,
}

pub(crate) const PROLOGUE: &str = "
.macro prologue
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  s_waitcnt lgkmcnt(0)
.endm
.macro buffer bytes
  s_mov_b64 s[12:13], s[4:5]
  s_mov_b32 s14, \\bytes
  s_mov_b32 s15, 0x27fac
.endm
.macro in_memory
  v_mov_b32 v5, s7
  v_add_co_u32 v4, vcc, s6, v1
  v_addc_co_u32 v5, vcc, 0, v5, vcc
.endm
.macro in_lds
  s_mov_b64 s[8:9], src_shared_base
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v4, v1
  v_mov_b32 v5, s9
.endm
.macro in_both
  in_lds
  s_mov_b64 exec, 0xff
  in_memory
  s_mov_b64 exec, -1
.endm
";

pub(crate) const CASES: &[Planted] = &[
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
        // All of LDS is written and becomes visible to all; then each wavefront reads what the other one is
        // overwriting.
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
        // LDS is read and overwritten again without a barrier in between, a common error in loops over tiles.
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
        name: "store_past_its_buffer",
        wrong: "buffer 128\n@buffer_store_dword v0, v1, s[12:15], 0 offen",
        right: "buffer 256\nbuffer_store_dword v0, v1, s[12:15], 0 offen",
        threads: 33,
        mnemonics: &["buffer_store_dword"],
        kind: |kind| matches!(kind, FaultKind::BeyondBuffer { range, bytes: 128, .. } if range.access == Access::Write),
    },
    Planted {
        name: "load_past_its_buffer",
        wrong: "buffer 128\n@buffer_load_dwordx4 v[4:7], v2, s[12:15], 0 offen offset:116\ns_waitcnt vmcnt(0)",
        right: "buffer 128\nbuffer_load_dwordx4 v[4:7], v2, s[12:15], 0 offen offset:112\ns_waitcnt vmcnt(0)",
        threads: 64,
        mnemonics: &["buffer_load_dwordx4"],
        kind: |kind| matches!(kind, FaultKind::BeyondBuffer { range, bytes: 128, .. } if range.access == Access::Read),
    },
    Planted {
        name: "atomic_past_its_buffer",
        wrong: "buffer 128\n@buffer_atomic_add v0, v1, s[12:15], 4 offen",
        right: "buffer 128\nbuffer_atomic_add v0, v1, s[12:15], 0 offen",
        threads: 32,
        mnemonics: &["buffer_atomic_add"],
        kind: |kind| matches!(kind, FaultKind::BeyondBuffer { range, bytes: 128, .. } if range.access == Access::Atomic),
    },
    Planted {
        name: "scalar_load_past_its_buffer",
        wrong: "buffer 128\n@s_buffer_load_dwordx2 s[8:9], s[12:15], 0x7c\ns_waitcnt lgkmcnt(0)",
        right: "buffer 128\ns_buffer_load_dwordx2 s[8:9], s[12:15], 0x78\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["s_buffer_load_dwordx2"],
        kind: |kind| matches!(kind, FaultKind::BeyondBuffer { range, bytes: 128, .. } if range.access == Access::Read),
    },
    Planted {
        // The last of four words may be beyond the end, because there is no load of three words.
        name: "scalar_load_of_four_past_its_buffer",
        wrong: "buffer 128\n@s_buffer_load_dwordx4 s[8:11], s[12:15], 0x78\ns_waitcnt lgkmcnt(0)",
        right: "buffer 128\ns_buffer_load_dwordx4 s[8:11], s[12:15], 0x74\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["s_buffer_load_dwordx4"],
        kind: |kind| matches!(kind, FaultKind::BeyondBuffer { range, bytes: 128, .. } if range.access == Access::Read),
    },
    Planted {
        name: "buffer_that_lies_beyond_memory",
        wrong: "buffer 260\n@buffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        right: "buffer 260\nv_and_b32 v1, 0xff, v1\nbuffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        threads: 65,
        mnemonics: &["buffer_load_dword"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read && r.space == Space::Global),
    },
    Planted {
        name: "scalar_buffer_that_lies_beyond_memory",
        wrong: "buffer 260\n@s_buffer_load_dword s8, s[12:15], 0x100\ns_waitcnt lgkmcnt(0)",
        right: "buffer 260\ns_buffer_load_dword s8, s[12:15], 0xfc\ns_waitcnt lgkmcnt(0)",
        threads: 64,
        mnemonics: &["s_buffer_load_dword"],
        kind: |kind| matches!(kind, FaultKind::OutOfBounds(r) if r.access == Access::Read && r.space == Space::Global),
    },
    Planted {
        name: "load_into_lds",
        wrong: "buffer 256\ns_mov_b32 m0, 0\n@buffer_load_dword v1, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)",
        right: "buffer 256\nbuffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        threads: 64,
        mnemonics: &["buffer_load_dword"],
        kind: |kind| matches!(kind, FaultKind::Unimplemented(what) if what == "buffer_load_dword with lds"),
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
        // Spins on a flag that is never set.
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

/// Results used too early: the wrong kernel lacks a wait that the right one has.
pub(crate) const WAITS: &[Planted] = &[
    Planted {
        name: "load_not_waited_for",
        wrong: "global_load_dword v3, v1, s[6:7]\n@v_add_u32_e32 v4, v3, v3",
        right: "global_load_dword v3, v1, s[6:7]\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v4, v3, v3",
        threads: 64,
        mnemonics: &["v_add_u32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "loaded_register_overwritten",
        wrong: "global_load_dword v3, v1, s[6:7]\n@v_mov_b32_e32 v3, 1",
        right: "global_load_dword v3, v1, s[6:7]\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, 1",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "younger_of_two_loads",
        wrong: "global_load_dword v3, v1, s[6:7]\nglobal_load_dword v4, v1, s[6:7]\ns_waitcnt vmcnt(1)\n\
                v_mov_b32_e32 v5, v3\n@v_mov_b32_e32 v5, v4",
        right: "global_load_dword v3, v1, s[6:7]\nglobal_load_dword v4, v1, s[6:7]\ns_waitcnt vmcnt(1)\n\
                v_mov_b32_e32 v5, v3\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v4",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // The vector memory counter has six bits, which the instruction stores in two fields.
        name: "one_of_twenty_two_loads",
        wrong: ".macro loads\n.irp k,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\
                global_load_dword v\\k, v1, s[6:7]\n.endr\n.endm\nloads\ns_waitcnt vmcnt(21)\n\
                v_mov_b32_e32 v5, v10\n@v_mov_b32_e32 v5, v11",
        right: "loads\ns_waitcnt vmcnt(20)\nv_mov_b32_e32 v5, v10\nv_mov_b32_e32 v5, v11",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "scalar_load_not_waited_for",
        wrong: "s_load_dword s8, s[6:7], 0x0\n@s_add_u32 s9, s8, 1",
        right: "s_load_dword s8, s[6:7], 0x0\ns_waitcnt lgkmcnt(0)\ns_add_u32 s9, s8, 1",
        threads: 64,
        mnemonics: &["s_add_u32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "address_not_waited_for",
        wrong: "s_load_dwordx2 s[8:9], s[0:1], 0x8\n@global_load_dword v3, v1, s[8:9]\ns_waitcnt vmcnt(0)",
        right: "s_load_dwordx2 s[8:9], s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v3, v1, s[8:9]\n\
                s_waitcnt vmcnt(0)",
        threads: 64,
        mnemonics: &["global_load_dword"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "lds_load_not_waited_for",
        wrong: "ds_write_b32 v1, v0\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(1)\n@v_mov_b32_e32 v4, v3",
        right: "ds_write_b32 v1, v0\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v4, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "permutation_not_waited_for",
        wrong: "ds_bpermute_b32 v3, v1, v0\n@v_mov_b32_e32 v4, v3",
        right: "ds_bpermute_b32 v3, v1, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v4, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "lds_store_at_a_barrier",
        wrong: "ds_write_b32 v1, v0\n@s_barrier",
        right: "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier",
        threads: 128,
        mnemonics: &["s_barrier"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "buffer_load_not_waited_for",
        wrong: "buffer 256\nbuffer_load_dword v3, v1, s[12:15], 0 offen\n@v_mov_b32_e32 v4, v3",
        right: "buffer 256\nbuffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v4, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "buffer_address_not_waited_for",
        wrong: "buffer 256\nbuffer_load_dword v3, v1, s[12:15], 0 offen\n@buffer_load_dword v4, v3, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        right: "buffer 256\nbuffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)\nbuffer_load_dword v4, v3, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        threads: 64,
        mnemonics: &["buffer_load_dword"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "resource_not_waited_for",
        wrong: "buffer 256\ns_load_dwordx2 s[12:13], s[0:1], 0x0\n@buffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        right: "buffer 256\ns_load_dwordx2 s[12:13], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nbuffer_load_dword v3, v1, s[12:15], 0 offen\ns_waitcnt vmcnt(0)",
        threads: 64,
        mnemonics: &["buffer_load_dword"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "scalar_buffer_load_not_waited_for",
        wrong: "buffer 256\ns_buffer_load_dwordx4 s[8:11], s[12:15], 0x0\n@s_add_u32 s7, s11, 1",
        right: "buffer 256\ns_buffer_load_dwordx4 s[8:11], s[12:15], 0x0\ns_waitcnt lgkmcnt(0)\ns_add_u32 s7, s11, 1",
        threads: 64,
        mnemonics: &["s_add_u32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // A register is filled in two halves of EXEC, one of them by a load.
        name: "half_of_a_register",
        wrong: "s_mov_b64 exec, 0xff\nglobal_load_dword v3, v1, s[6:7]\ns_movk_i32 exec_lo, 0xf80\n@v_mov_b32_e32 v3, 1",
        right: "s_mov_b64 exec, 0xff\nglobal_load_dword v3, v1, s[6:7]\ns_movk_i32 exec_lo, 0xf00\nv_mov_b32_e32 v3, 1\n\
                s_waitcnt vmcnt(0)\ns_mov_b64 exec, -1\nv_mov_b32_e32 v4, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // Reads an inactive lane.
        name: "lane_of_a_register",
        wrong: "s_mov_b64 exec, 0xff\nglobal_load_dword v3, v1, s[6:7]\ns_movk_i32 exec_lo, 0xf00\n\
                @v_readlane_b32 s8, v3, 7",
        right: "s_mov_b64 exec, 0xff\nglobal_load_dword v3, v1, s[6:7]\ns_movk_i32 exec_lo, 0xf00\n\
                v_readlane_b32 s8, v3, 8\nv_writelane_b32 v3, s8, 9\nv_readfirstlane_b32 s8, v3",
        threads: 64,
        mnemonics: &["v_readlane_b32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // LDS returns in order even while a scalar load is in flight: at most one of the two LDS loads
        // remains.
        name: "lds_load_beside_a_scalar_load",
        wrong: "ds_write_b32 v1, v0\nds_read_b32 v3, v1\ns_load_dword s8, s[6:7], 0x0\nds_read_b32 v4, v1\n\
                s_waitcnt lgkmcnt(2)\n@v_mov_b32_e32 v5, v3",
        right: "ds_write_b32 v1, v0\nds_read_b32 v3, v1\ns_load_dword s8, s[6:7], 0x0\nds_read_b32 v4, v1\n\
                s_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v5, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // The remaining operation may be the scalar load.
        name: "scalar_load_beside_lds_loads",
        wrong: "ds_write_b32 v1, v0\ns_load_dword s8, s[6:7], 0x0\nds_read_b32 v3, v1\nds_read_b32 v4, v1\n\
                s_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v5, v3\n@s_add_u32 s9, s8, 1",
        right: "ds_write_b32 v1, v0\ns_load_dword s8, s[6:7], 0x0\nds_read_b32 v3, v1\nds_read_b32 v4, v1\n\
                s_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, v3\ns_add_u32 s9, s8, 1",
        threads: 64,
        mnemonics: &["s_add_u32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
];
