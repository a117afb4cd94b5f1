//! Numbers of the scalar instructions of GFX9.

use crate::isa::tables::encodings;

encodings! {
    /// Two sources.
    SOP2: ScalarRow {
        0x00 s_add_u32  0x01 s_sub_u32  0x02 s_add_i32  0x03 s_sub_i32  0x04 s_addc_u32  0x05 s_subb_u32
        0x06 s_min_i32  0x07 s_min_u32  0x08 s_max_i32  0x09 s_max_u32  0x0a s_cselect_b32
        0x0b s_cselect_b64  0x0c s_and_b32  0x0d s_and_b64  0x0e s_or_b32  0x0f s_or_b64  0x10 s_xor_b32
        0x11 s_xor_b64  0x12 s_andn2_b32  0x13 s_andn2_b64  0x14 s_orn2_b32  0x15 s_orn2_b64
        0x16 s_nand_b32  0x17 s_nand_b64  0x18 s_nor_b32  0x19 s_nor_b64  0x1a s_xnor_b32  0x1b s_xnor_b64
        0x1c s_lshl_b32  0x1d s_lshl_b64  0x1e s_lshr_b32  0x1f s_lshr_b64  0x20 s_ashr_i32  0x21 s_ashr_i64
        0x22 s_bfm_b32  0x23 s_bfm_b64  0x24 s_mul_i32  0x25 s_bfe_u32  0x26 s_bfe_i32  0x27 s_bfe_u64
        0x28 s_bfe_i64  0x29 s_cbranch_g_fork  0x2a s_absdiff_i32  0x2c s_mul_hi_u32  0x2d s_mul_hi_i32
        0x2e s_lshl1_add_u32  0x2f s_lshl2_add_u32  0x30 s_lshl3_add_u32  0x31 s_lshl4_add_u32
        0x32 s_pack_ll_b32_b16  0x33 s_pack_lh_b32_b16  0x34 s_pack_hh_b32_b16
    }
    /// One source.
    SOP1: ScalarRow {
        0x00 s_mov_b32  0x01 s_mov_b64  0x02 s_cmov_b32  0x03 s_cmov_b64  0x04 s_not_b32  0x05 s_not_b64
        0x06 s_wqm_b32  0x07 s_wqm_b64  0x08 s_brev_b32  0x09 s_brev_b64  0x0a s_bcnt0_i32_b32
        0x0b s_bcnt0_i32_b64  0x0c s_bcnt1_i32_b32  0x0d s_bcnt1_i32_b64  0x0e s_ff0_i32_b32
        0x0f s_ff0_i32_b64  0x10 s_ff1_i32_b32  0x11 s_ff1_i32_b64  0x12 s_flbit_i32_b32
        0x13 s_flbit_i32_b64  0x14 s_flbit_i32  0x15 s_flbit_i32_i64  0x16 s_sext_i32_i8
        0x17 s_sext_i32_i16  0x18 s_bitset0_b32  0x19 s_bitset0_b64  0x1a s_bitset1_b32  0x1b s_bitset1_b64
        0x1c s_getpc_b64  0x1d s_setpc_b64  0x1e s_swappc_b64  0x1f s_rfe_b64  0x20 s_and_saveexec_b64
        0x21 s_or_saveexec_b64  0x22 s_xor_saveexec_b64  0x23 s_andn2_saveexec_b64  0x24 s_orn2_saveexec_b64
        0x25 s_nand_saveexec_b64  0x26 s_nor_saveexec_b64  0x27 s_xnor_saveexec_b64  0x28 s_quadmask_b32
        0x29 s_quadmask_b64  0x2a s_movrels_b32  0x2b s_movrels_b64  0x2c s_movreld_b32  0x2d s_movreld_b64
        0x30 s_abs_i32  0x32 s_set_gpr_idx_idx  0x33 s_andn1_saveexec_b64  0x34 s_orn1_saveexec_b64
        0x35 s_andn1_wrexec_b64  0x36 s_andn2_wrexec_b64  0x37 s_bitreplicate_b64_b32
    }
    /// Comparisons.
    SOPC: ScalarRow {
        0x00 s_cmp_eq_i32  0x01 s_cmp_lg_i32  0x02 s_cmp_gt_i32  0x03 s_cmp_ge_i32  0x04 s_cmp_lt_i32
        0x05 s_cmp_le_i32  0x06 s_cmp_eq_u32  0x07 s_cmp_lg_u32  0x08 s_cmp_gt_u32  0x09 s_cmp_ge_u32
        0x0a s_cmp_lt_u32  0x0b s_cmp_le_u32  0x0c s_bitcmp0_b32  0x0d s_bitcmp1_b32  0x0e s_bitcmp0_b64
        0x0f s_bitcmp1_b64  0x11 s_set_gpr_idx_on  0x12 s_cmp_eq_u64  0x13 s_cmp_lg_u64
    }
    /// A register and a constant.
    SOPK: ScalarRow {
        0x00 s_movk_i32  0x01 s_cmovk_i32  0x02 s_cmpk_eq_i32  0x03 s_cmpk_lg_i32  0x04 s_cmpk_gt_i32
        0x05 s_cmpk_ge_i32  0x06 s_cmpk_lt_i32  0x07 s_cmpk_le_i32  0x08 s_cmpk_eq_u32  0x09 s_cmpk_lg_u32
        0x0a s_cmpk_gt_u32  0x0b s_cmpk_ge_u32  0x0c s_cmpk_lt_u32  0x0d s_cmpk_le_u32  0x0e s_addk_i32
        0x0f s_mulk_i32  0x11 s_getreg_b32  0x12 s_setreg_b32  0x14 s_setreg_imm32_b32  0x15 s_call_b64
    }
    /// The program: branches, barriers, waits.
    SOPP: ScalarRow {
        0x00 s_nop  0x01 s_endpgm  0x02 s_branch  0x03 s_wakeup  0x04 s_cbranch_scc0  0x05 s_cbranch_scc1
        0x06 s_cbranch_vccz  0x07 s_cbranch_vccnz  0x08 s_cbranch_execz  0x09 s_cbranch_execnz
        0x0a s_barrier  0x0b s_setkill  0x0c s_waitcnt  0x0d s_sethalt  0x0e s_sleep  0x0f s_setprio
        0x10 s_sendmsg  0x12 s_trap  0x13 s_icache_inv  0x14 s_incperflevel  0x15 s_decperflevel
        0x16 s_ttracedata  0x1b s_endpgm_saved  0x1c s_set_gpr_idx_off  0x1d s_set_gpr_idx_mode
    }
}
