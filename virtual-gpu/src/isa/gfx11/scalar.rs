//! Numbers of the scalar instructions of GFX11, and of the floating-point ones of gfx1151.

use crate::isa::tables::encodings;

encodings! {
    /// Two sources.
    SOP2: ScalarRow {
        0x00 s_add_u32  0x01 s_sub_u32  0x02 s_add_i32  0x03 s_sub_i32  0x04 s_addc_u32  0x05 s_subb_u32
        0x06 s_absdiff_i32  0x08 s_lshl_b32  0x09 s_lshl_b64  0x0a s_lshr_b32  0x0b s_lshr_b64
        0x0c s_ashr_i32  0x0d s_ashr_i64  0x0e s_lshl1_add_u32  0x0f s_lshl2_add_u32  0x10 s_lshl3_add_u32
        0x11 s_lshl4_add_u32  0x12 s_min_i32  0x13 s_min_u32  0x14 s_max_i32  0x15 s_max_u32  0x16 s_and_b32
        0x17 s_and_b64  0x18 s_or_b32  0x19 s_or_b64  0x1a s_xor_b32  0x1b s_xor_b64  0x1c s_nand_b32
        0x1d s_nand_b64  0x1e s_nor_b32  0x1f s_nor_b64  0x20 s_xnor_b32  0x21 s_xnor_b64
        0x22 s_and_not1_b32 = s_andn2_b32  0x23 s_and_not1_b64 = s_andn2_b64
        0x24 s_or_not1_b32 = s_orn2_b32  0x25 s_or_not1_b64 = s_orn2_b64  0x26 s_bfe_u32  0x27 s_bfe_i32
        0x28 s_bfe_u64  0x29 s_bfe_i64  0x2a s_bfm_b32  0x2b s_bfm_b64  0x2c s_mul_i32  0x2d s_mul_hi_u32
        0x2e s_mul_hi_i32  0x30 s_cselect_b32  0x31 s_cselect_b64  0x32 s_pack_ll_b32_b16
        0x33 s_pack_lh_b32_b16  0x34 s_pack_hh_b32_b16  0x35 s_pack_hl_b32_b16
    }
    /// Two sources, on gfx1151.
    SOP2_FLOAT: ScalarRow {
        0x40 s_add_f32  0x41 s_sub_f32  0x42 s_min_f32  0x43 s_max_f32  0x44 s_mul_f32  0x45 s_fmaak_f32
        0x46 s_fmamk_f32  0x47 s_fmac_f32  0x48 s_cvt_pk_rtz_f16_f32  0x49 s_add_f16  0x4a s_sub_f16
        0x4b s_min_f16  0x4c s_max_f16  0x4d s_mul_f16  0x4e s_fmac_f16
    }
    /// One source.
    SOP1: ScalarRow {
        0x00 s_mov_b32  0x01 s_mov_b64  0x02 s_cmov_b32  0x03 s_cmov_b64  0x04 s_brev_b32  0x05 s_brev_b64
        0x08 s_ctz_i32_b32 = s_ff1_i32_b32  0x09 s_ctz_i32_b64 = s_ff1_i32_b64
        0x0a s_clz_i32_u32 = s_flbit_i32_b32  0x0b s_clz_i32_u64 = s_flbit_i32_b64
        0x0c s_cls_i32 = s_flbit_i32  0x0d s_cls_i32_i64 = s_flbit_i32_i64  0x0e s_sext_i32_i8
        0x0f s_sext_i32_i16  0x10 s_bitset0_b32  0x11 s_bitset0_b64  0x12 s_bitset1_b32  0x13 s_bitset1_b64
        0x14 s_bitreplicate_b64_b32  0x15 s_abs_i32  0x16 s_bcnt0_i32_b32  0x17 s_bcnt0_i32_b64
        0x18 s_bcnt1_i32_b32  0x19 s_bcnt1_i32_b64  0x1a s_quadmask_b32  0x1b s_quadmask_b64  0x1c s_wqm_b32
        0x1d s_wqm_b64  0x1e s_not_b32  0x1f s_not_b64  0x20 s_and_saveexec_b32  0x21 s_and_saveexec_b64
        0x22 s_or_saveexec_b32  0x23 s_or_saveexec_b64  0x24 s_xor_saveexec_b32  0x25 s_xor_saveexec_b64
        0x26 s_nand_saveexec_b32  0x27 s_nand_saveexec_b64  0x28 s_nor_saveexec_b32  0x29 s_nor_saveexec_b64
        0x2a s_xnor_saveexec_b32  0x2b s_xnor_saveexec_b64
        0x2c s_and_not0_saveexec_b32 = s_andn1_saveexec_b32
        0x2d s_and_not0_saveexec_b64 = s_andn1_saveexec_b64
        0x2e s_or_not0_saveexec_b32 = s_orn1_saveexec_b32  0x2f s_or_not0_saveexec_b64 = s_orn1_saveexec_b64
        0x30 s_and_not1_saveexec_b32 = s_andn2_saveexec_b32
        0x31 s_and_not1_saveexec_b64 = s_andn2_saveexec_b64
        0x32 s_or_not1_saveexec_b32 = s_orn2_saveexec_b32  0x33 s_or_not1_saveexec_b64 = s_orn2_saveexec_b64
        0x34 s_and_not0_wrexec_b32 = s_andn1_wrexec_b32  0x35 s_and_not0_wrexec_b64 = s_andn1_wrexec_b64
        0x36 s_and_not1_wrexec_b32 = s_andn2_wrexec_b32  0x37 s_and_not1_wrexec_b64 = s_andn2_wrexec_b64
        0x40 s_movrels_b32  0x41 s_movrels_b64  0x42 s_movreld_b32  0x43 s_movreld_b64
        0x44 s_movrelsd_2_b32  0x47 s_getpc_b64  0x48 s_setpc_b64  0x49 s_swappc_b64  0x4a s_rfe_b64
        0x4c s_sendmsg_rtn_b32  0x4d s_sendmsg_rtn_b64
    }
    /// One source, on gfx1151.
    SOP1_FLOAT: ScalarRow {
        0x60 s_ceil_f32  0x61 s_floor_f32  0x62 s_trunc_f32  0x63 s_rndne_f32  0x64 s_cvt_f32_i32
        0x65 s_cvt_f32_u32  0x66 s_cvt_i32_f32  0x67 s_cvt_u32_f32  0x68 s_cvt_f16_f32  0x69 s_cvt_f32_f16
        0x6a s_cvt_hi_f32_f16  0x6b s_ceil_f16  0x6c s_floor_f16  0x6d s_trunc_f16  0x6e s_rndne_f16
    }
    /// Comparisons.
    SOPC: ScalarRow {
        0x00 s_cmp_eq_i32  0x01 s_cmp_lg_i32  0x02 s_cmp_gt_i32  0x03 s_cmp_ge_i32  0x04 s_cmp_lt_i32
        0x05 s_cmp_le_i32  0x06 s_cmp_eq_u32  0x07 s_cmp_lg_u32  0x08 s_cmp_gt_u32  0x09 s_cmp_ge_u32
        0x0a s_cmp_lt_u32  0x0b s_cmp_le_u32  0x0c s_bitcmp0_b32  0x0d s_bitcmp1_b32  0x0e s_bitcmp0_b64
        0x0f s_bitcmp1_b64  0x10 s_cmp_eq_u64  0x11 s_cmp_lg_u64
    }
    /// Comparisons of floats, on gfx1151.
    SOPC_FLOAT: ScalarRow {
        0x41 s_cmp_lt_f32  0x42 s_cmp_eq_f32  0x43 s_cmp_le_f32  0x44 s_cmp_gt_f32  0x45 s_cmp_lg_f32
        0x46 s_cmp_ge_f32  0x47 s_cmp_o_f32  0x48 s_cmp_u_f32  0x49 s_cmp_nge_f32  0x4a s_cmp_nlg_f32
        0x4b s_cmp_ngt_f32  0x4c s_cmp_nle_f32  0x4d s_cmp_neq_f32  0x4e s_cmp_nlt_f32  0x51 s_cmp_lt_f16
        0x52 s_cmp_eq_f16  0x53 s_cmp_le_f16  0x54 s_cmp_gt_f16  0x55 s_cmp_lg_f16  0x56 s_cmp_ge_f16
        0x57 s_cmp_o_f16  0x58 s_cmp_u_f16  0x59 s_cmp_nge_f16  0x5a s_cmp_nlg_f16  0x5b s_cmp_ngt_f16
        0x5c s_cmp_nle_f16  0x5d s_cmp_neq_f16  0x5e s_cmp_nlt_f16
    }
    /// A register and a constant.
    SOPK: ScalarRow {
        0x00 s_movk_i32  0x01 s_version  0x02 s_cmovk_i32  0x03 s_cmpk_eq_i32  0x04 s_cmpk_lg_i32
        0x05 s_cmpk_gt_i32  0x06 s_cmpk_ge_i32  0x07 s_cmpk_lt_i32  0x08 s_cmpk_le_i32  0x09 s_cmpk_eq_u32
        0x0a s_cmpk_lg_u32  0x0b s_cmpk_gt_u32  0x0c s_cmpk_ge_u32  0x0d s_cmpk_lt_u32  0x0e s_cmpk_le_u32
        0x0f s_addk_i32  0x10 s_mulk_i32  0x11 s_getreg_b32  0x12 s_setreg_b32  0x13 s_setreg_imm32_b32
        0x14 s_call_b64  0x16 s_subvector_loop_begin  0x17 s_subvector_loop_end  0x18 s_waitcnt_vscnt
        0x19 s_waitcnt_vmcnt  0x1a s_waitcnt_expcnt  0x1b s_waitcnt_lgkmcnt
    }
    /// The program: branches, barriers, waits.
    SOPP: ScalarRow {
        0x00 s_nop  0x01 s_setkill  0x02 s_sethalt  0x03 s_sleep  0x04 s_set_inst_prefetch_distance
        0x05 s_clause  0x07 s_delay_alu  0x08 s_waitcnt_depctr  0x09 s_waitcnt  0x0a s_wait_idle
        0x0b s_wait_event  0x10 s_trap  0x11 s_round_mode  0x12 s_denorm_mode  0x1f s_code_end
        0x20 s_branch  0x21 s_cbranch_scc0  0x22 s_cbranch_scc1  0x23 s_cbranch_vccz  0x24 s_cbranch_vccnz
        0x25 s_cbranch_execz  0x26 s_cbranch_execnz  0x27 s_cbranch_cdbgsys  0x28 s_cbranch_cdbguser
        0x29 s_cbranch_cdbgsys_or_user  0x2a s_cbranch_cdbgsys_and_user  0x30 s_endpgm  0x31 s_endpgm_saved
        0x34 s_wakeup  0x35 s_setprio  0x36 s_sendmsg  0x37 s_sendmsghalt  0x38 s_incperflevel
        0x39 s_decperflevel  0x3a s_ttracedata  0x3b s_ttracedata_imm  0x3c s_icache_inv  0x3d s_barrier
    }
    /// On gfx1151.
    SOPP_1151: ScalarRow {
        0x13 s_singleuse_vdst
    }
}
