//! FLAT: each lane needs the wait for the memory that it reaches.

use super::cases::Planted;
use virtual_gpu::FaultKind;

/// Results used too early, as those of other accesses.
pub(crate) const FLAT_WAITS: &[Planted] = &[
    Planted {
        // The kernel knows that all addresses are in memory, as AMD's own copy kernels do.
        name: "flat_load_from_memory_not_waited_for",
        wrong: "in_memory\nflat_load_dword v3, v[4:5]\n@v_mov_b32_e32 v6, v3",
        right: "in_memory\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_load_from_memory_with_the_other_wait",
        wrong: "in_memory\nflat_load_dword v3, v[4:5]\ns_waitcnt lgkmcnt(0)\n@v_mov_b32_e32 v6, v3",
        right: "in_memory\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "younger_of_two_flat_loads",
        wrong: "in_memory\nflat_load_dword v3, v[4:5]\nflat_load_dword v6, v[4:5]\ns_waitcnt vmcnt(1)\n\
                v_mov_b32_e32 v7, v3\n@v_mov_b32_e32 v7, v6",
        right: "in_memory\nflat_load_dword v3, v[4:5]\nflat_load_dword v6, v[4:5]\ns_waitcnt vmcnt(1)\n\
                v_mov_b32_e32 v7, v3\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v7, v6",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_atomic_not_waited_for",
        wrong: "in_memory\nflat_atomic_add v3, v[4:5], v0 glc\n@v_mov_b32_e32 v6, v3",
        right: "in_memory\nflat_atomic_add v3, v[4:5], v0 glc\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_load_from_lds_with_the_other_wait",
        wrong: "in_lds\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\n@v_mov_b32_e32 v6, v3",
        right: "in_lds\nflat_load_dword v3, v[4:5]\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_load_from_lds_is_in_no_order",
        wrong: "in_lds\nflat_load_dword v3, v[4:5]\nds_read_b32 v6, v1\ns_waitcnt lgkmcnt(1)\n\
                @v_mov_b32_e32 v7, v3",
        right: "in_lds\nflat_load_dword v3, v[4:5]\nds_read_b32 v6, v1\ns_waitcnt lgkmcnt(0)\n\
                v_mov_b32_e32 v7, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // Lanes in memory have their values after one wait, those in LDS after the other.
        name: "flat_load_from_both_waits_for_memory_only",
        wrong: "in_both\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\n@v_mov_b32_e32 v6, v3",
        right: "in_both\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0)\ns_mov_b64 exec, 0xff\n\
                v_mov_b32_e32 v6, v3\ns_mov_b64 exec, -1\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_load_from_both_waits_for_lds_only",
        wrong: "in_both\nflat_load_dword v3, v[4:5]\ns_waitcnt lgkmcnt(0)\n@v_mov_b32_e32 v6, v3",
        right: "in_both\nflat_load_dword v3, v[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32_e32 v6, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        name: "flat_load_from_both_is_in_no_order",
        wrong: "in_both\nflat_load_dword v3, v[4:5]\nglobal_load_dword v6, v1, s[6:7]\n\
                s_waitcnt vmcnt(1) lgkmcnt(0)\n@v_mov_b32_e32 v7, v3",
        right: "in_both\nflat_load_dword v3, v[4:5]\nglobal_load_dword v6, v1, s[6:7]\n\
                s_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32_e32 v7, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // A load from memory counts there too: the one that is left may be the load from LDS.
        name: "flat_load_delays_lds",
        wrong: "in_lds\nin_memory\nds_read_b32 v3, v1\nflat_load_dword v6, v[4:5]\ns_waitcnt lgkmcnt(1)\n\
                @v_mov_b32_e32 v7, v3",
        right: "in_lds\nin_memory\nds_read_b32 v3, v1\nflat_load_dword v6, v[4:5]\ns_waitcnt lgkmcnt(0)\n\
                v_mov_b32_e32 v7, v3",
        threads: 64,
        mnemonics: &["v_mov_b32_e32"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
    Planted {
        // A store to memory may be in flight at a barrier.
        name: "flat_store_to_lds_at_a_barrier",
        wrong: "in_lds\nflat_store_dword v[4:5], v0\ns_waitcnt vmcnt(0)\n@s_barrier",
        right: "in_lds\nflat_store_dword v[4:5], v0\ns_waitcnt lgkmcnt(0)\nin_memory\n\
                flat_store_dword v[4:5], v0\ns_barrier",
        threads: 128,
        mnemonics: &["s_barrier"],
        kind: |kind| matches!(kind, FaultKind::MissingWait(_)),
    },
];
