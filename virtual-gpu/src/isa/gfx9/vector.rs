//! Numbers of the vector instructions of GFX9, and what gfx900 and gfx906 have beyond each other.

use crate::isa::tables::encodings;

encodings! {
    /// One source.
    VOP1: Row {
        0x00 v_nop  0x01 v_mov_b32  0x02 v_readfirstlane_b32  0x03 v_cvt_i32_f64  0x04 v_cvt_f64_i32
        0x05 v_cvt_f32_i32  0x06 v_cvt_f32_u32  0x07 v_cvt_u32_f32  0x08 v_cvt_i32_f32  0x0a v_cvt_f16_f32
        0x0b v_cvt_f32_f16  0x0c v_cvt_rpi_i32_f32  0x0d v_cvt_flr_i32_f32  0x0e v_cvt_off_f32_i4
        0x0f v_cvt_f32_f64  0x10 v_cvt_f64_f32  0x11 v_cvt_f32_ubyte0  0x12 v_cvt_f32_ubyte1
        0x13 v_cvt_f32_ubyte2  0x14 v_cvt_f32_ubyte3  0x15 v_cvt_u32_f64  0x16 v_cvt_f64_u32
        0x17 v_trunc_f64  0x18 v_ceil_f64  0x19 v_rndne_f64  0x1a v_floor_f64  0x1b v_fract_f32
        0x1c v_trunc_f32  0x1d v_ceil_f32  0x1e v_rndne_f32  0x1f v_floor_f32  0x20 v_exp_f32
        0x21 v_log_f32  0x22 v_rcp_f32  0x23 v_rcp_iflag_f32  0x24 v_rsq_f32  0x25 v_rcp_f64  0x26 v_rsq_f64
        0x27 v_sqrt_f32  0x28 v_sqrt_f64  0x29 v_sin_f32  0x2a v_cos_f32  0x2b v_not_b32  0x2c v_bfrev_b32
        0x2d v_ffbh_u32  0x2e v_ffbl_b32  0x2f v_ffbh_i32  0x30 v_frexp_exp_i32_f64  0x31 v_frexp_mant_f64
        0x32 v_fract_f64  0x33 v_frexp_exp_i32_f32  0x34 v_frexp_mant_f32  0x35 v_clrexcp
        0x37 v_screen_partition_4se_b32  0x39 v_cvt_f16_u16  0x3a v_cvt_f16_i16  0x3b v_cvt_u16_f16
        0x3c v_cvt_i16_f16  0x3d v_rcp_f16  0x3e v_sqrt_f16  0x3f v_rsq_f16  0x40 v_log_f16  0x41 v_exp_f16
        0x42 v_frexp_mant_f16  0x43 v_frexp_exp_i16_f16  0x44 v_floor_f16  0x45 v_ceil_f16  0x46 v_trunc_f16
        0x47 v_rndne_f16  0x48 v_fract_f16  0x49 v_sin_f16  0x4a v_cos_f16  0x4b v_exp_legacy_f32
        0x4c v_log_legacy_f32  0x4d v_cvt_norm_i16_f16  0x4e v_cvt_norm_u16_f16  0x4f v_sat_pk_u8_i16
        0x51 v_swap_b32
    }
    /// Two sources, or three of which one is the destination, a literal or a mask.
    VOP2: Row {
        0x00 v_cndmask_b32  0x01 v_add_f32  0x02 v_sub_f32  0x03 v_subrev_f32  0x04 v_mul_legacy_f32
        0x05 v_mul_f32  0x06 v_mul_i32_i24  0x07 v_mul_hi_i32_i24  0x08 v_mul_u32_u24  0x09 v_mul_hi_u32_u24
        0x0a v_min_f32  0x0b v_max_f32  0x0c v_min_i32  0x0d v_max_i32  0x0e v_min_u32  0x0f v_max_u32
        0x10 v_lshrrev_b32  0x11 v_ashrrev_i32  0x12 v_lshlrev_b32  0x13 v_and_b32  0x14 v_or_b32
        0x15 v_xor_b32  0x16 v_mac_f32  0x17 v_madmk_f32  0x18 v_madak_f32  0x19 v_add_co_u32
        0x1a v_sub_co_u32  0x1b v_subrev_co_u32  0x1c v_addc_co_u32  0x1d v_subb_co_u32
        0x1e v_subbrev_co_u32  0x1f v_add_f16  0x20 v_sub_f16  0x21 v_subrev_f16  0x22 v_mul_f16
        0x23 v_mac_f16  0x24 v_madmk_f16  0x25 v_madak_f16  0x26 v_add_u16  0x27 v_sub_u16
        0x28 v_subrev_u16  0x29 v_mul_lo_u16  0x2a v_lshlrev_b16  0x2b v_lshrrev_b16  0x2c v_ashrrev_i16
        0x2d v_max_f16  0x2e v_min_f16  0x2f v_max_u16  0x30 v_max_i16  0x31 v_min_u16  0x32 v_min_i16
        0x33 v_ldexp_f16  0x34 v_add_u32  0x35 v_sub_u32  0x36 v_subrev_u32
    }
    /// Additions of gfx906.
    VOP2_906: Row {
        0x3b v_fmac_f32  0x3d v_xnor_b32
    }
    /// Two or three sources with modifiers: instructions without another form. VOP1, VOP2 and VOPC instructions have this form, too.
    VOP3: Row {
        0x1c0 v_mad_legacy_f32  0x1c1 v_mad_f32  0x1c2 v_mad_i32_i24  0x1c3 v_mad_u32_u24
        0x1c4 v_cubeid_f32  0x1c5 v_cubesc_f32  0x1c6 v_cubetc_f32  0x1c7 v_cubema_f32  0x1c8 v_bfe_u32
        0x1c9 v_bfe_i32  0x1ca v_bfi_b32  0x1cb v_fma_f32  0x1cc v_fma_f64  0x1cd v_lerp_u8
        0x1ce v_alignbit_b32  0x1cf v_alignbyte_b32  0x1d0 v_min3_f32  0x1d1 v_min3_i32  0x1d2 v_min3_u32
        0x1d3 v_max3_f32  0x1d4 v_max3_i32  0x1d5 v_max3_u32  0x1d6 v_med3_f32  0x1d7 v_med3_i32
        0x1d8 v_med3_u32  0x1d9 v_sad_u8  0x1da v_sad_hi_u8  0x1db v_sad_u16  0x1dc v_sad_u32
        0x1dd v_cvt_pk_u8_f32  0x1de v_div_fixup_f32  0x1df v_div_fixup_f64  0x1e0 v_div_scale_f32
        0x1e1 v_div_scale_f64  0x1e2 v_div_fmas_f32  0x1e3 v_div_fmas_f64  0x1e4 v_msad_u8
        0x1e5 v_qsad_pk_u16_u8  0x1e6 v_mqsad_pk_u16_u8  0x1e7 v_mqsad_u32_u8  0x1e8 v_mad_u64_u32
        0x1e9 v_mad_i64_i32  0x1ea v_mad_legacy_f16  0x1eb v_mad_legacy_u16  0x1ec v_mad_legacy_i16
        0x1ed v_perm_b32  0x1ee v_fma_legacy_f16  0x1ef v_div_fixup_legacy_f16  0x1f0 v_cvt_pkaccum_u8_f32
        0x1f1 v_mad_u32_u16  0x1f2 v_mad_i32_i16  0x1f3 v_xad_u32  0x1f4 v_min3_f16  0x1f5 v_min3_i16
        0x1f6 v_min3_u16  0x1f7 v_max3_f16  0x1f8 v_max3_i16  0x1f9 v_max3_u16  0x1fa v_med3_f16
        0x1fb v_med3_i16  0x1fc v_med3_u16  0x1fd v_lshl_add_u32  0x1fe v_add_lshl_u32  0x1ff v_add3_u32
        0x200 v_lshl_or_b32  0x201 v_and_or_b32  0x202 v_or3_b32  0x203 v_mad_f16  0x204 v_mad_u16
        0x205 v_mad_i16  0x206 v_fma_f16  0x207 v_div_fixup_f16  0x280 v_add_f64  0x281 v_mul_f64
        0x282 v_min_f64  0x283 v_max_f64  0x284 v_ldexp_f64  0x285 v_mul_lo_u32  0x286 v_mul_hi_u32
        0x287 v_mul_hi_i32  0x288 v_ldexp_f32  0x289 v_readlane_b32  0x28a v_writelane_b32
        0x28b v_bcnt_u32_b32  0x28c v_mbcnt_lo_u32_b32  0x28d v_mbcnt_hi_u32_b32  0x28f v_lshlrev_b64
        0x290 v_lshrrev_b64  0x291 v_ashrrev_i64  0x292 v_trig_preop_f64  0x293 v_bfm_b32
        0x294 v_cvt_pknorm_i16_f32  0x295 v_cvt_pknorm_u16_f32  0x296 v_cvt_pkrtz_f16_f32
        0x297 v_cvt_pk_u16_u32  0x298 v_cvt_pk_i16_i32  0x299 v_cvt_pknorm_i16_f16
        0x29a v_cvt_pknorm_u16_f16  0x29c v_add_i32  0x29d v_sub_i32  0x29e v_add_i16  0x29f v_sub_i16
        0x2a0 v_pack_b32_f16
    }
    /// Two 16-bit values per register, dot products, mixed precision.
    VOP3P: Row {
        0x00 v_pk_mad_i16  0x01 v_pk_mul_lo_u16  0x02 v_pk_add_i16  0x03 v_pk_sub_i16  0x04 v_pk_lshlrev_b16
        0x05 v_pk_lshrrev_b16  0x06 v_pk_ashrrev_i16  0x07 v_pk_max_i16  0x08 v_pk_min_i16
        0x09 v_pk_mad_u16  0x0a v_pk_add_u16  0x0b v_pk_sub_u16  0x0c v_pk_max_u16  0x0d v_pk_min_u16
        0x0e v_pk_fma_f16  0x0f v_pk_add_f16  0x10 v_pk_mul_f16  0x11 v_pk_min_f16  0x12 v_pk_max_f16
    }
    /// Additions of gfx900.
    VOP3P_900: Row {
        0x20 v_mad_mix_f32  0x21 v_mad_mixlo_f16  0x22 v_mad_mixhi_f16
    }
    /// Additions of gfx906.
    VOP3P_906: Row {
        0x20 v_fma_mix_f32  0x21 v_fma_mixlo_f16  0x22 v_fma_mixhi_f16  0x23 v_dot2_f32_f16
        0x26 v_dot2_i32_i16  0x27 v_dot2_u32_u16  0x28 v_dot4_i32_i8  0x29 v_dot4_u32_u8  0x2a v_dot8_i32_i4
        0x2b v_dot8_u32_u4
    }
    /// Comparisons.
    VOPC: Row {
        0x10 v_cmp_class_f32  0x11 v_cmpx_class_f32  0x12 v_cmp_class_f64  0x13 v_cmpx_class_f64
        0x14 v_cmp_class_f16  0x15 v_cmpx_class_f16  0x20 v_cmp_f_f16  0x21 v_cmp_lt_f16  0x22 v_cmp_eq_f16
        0x23 v_cmp_le_f16  0x24 v_cmp_gt_f16  0x25 v_cmp_lg_f16  0x26 v_cmp_ge_f16  0x27 v_cmp_o_f16
        0x28 v_cmp_u_f16  0x29 v_cmp_nge_f16  0x2a v_cmp_nlg_f16  0x2b v_cmp_ngt_f16  0x2c v_cmp_nle_f16
        0x2d v_cmp_neq_f16  0x2e v_cmp_nlt_f16  0x2f v_cmp_tru_f16  0x30 v_cmpx_f_f16  0x31 v_cmpx_lt_f16
        0x32 v_cmpx_eq_f16  0x33 v_cmpx_le_f16  0x34 v_cmpx_gt_f16  0x35 v_cmpx_lg_f16  0x36 v_cmpx_ge_f16
        0x37 v_cmpx_o_f16  0x38 v_cmpx_u_f16  0x39 v_cmpx_nge_f16  0x3a v_cmpx_nlg_f16  0x3b v_cmpx_ngt_f16
        0x3c v_cmpx_nle_f16  0x3d v_cmpx_neq_f16  0x3e v_cmpx_nlt_f16  0x3f v_cmpx_tru_f16  0x40 v_cmp_f_f32
        0x41 v_cmp_lt_f32  0x42 v_cmp_eq_f32  0x43 v_cmp_le_f32  0x44 v_cmp_gt_f32  0x45 v_cmp_lg_f32
        0x46 v_cmp_ge_f32  0x47 v_cmp_o_f32  0x48 v_cmp_u_f32  0x49 v_cmp_nge_f32  0x4a v_cmp_nlg_f32
        0x4b v_cmp_ngt_f32  0x4c v_cmp_nle_f32  0x4d v_cmp_neq_f32  0x4e v_cmp_nlt_f32  0x4f v_cmp_tru_f32
        0x50 v_cmpx_f_f32  0x51 v_cmpx_lt_f32  0x52 v_cmpx_eq_f32  0x53 v_cmpx_le_f32  0x54 v_cmpx_gt_f32
        0x55 v_cmpx_lg_f32  0x56 v_cmpx_ge_f32  0x57 v_cmpx_o_f32  0x58 v_cmpx_u_f32  0x59 v_cmpx_nge_f32
        0x5a v_cmpx_nlg_f32  0x5b v_cmpx_ngt_f32  0x5c v_cmpx_nle_f32  0x5d v_cmpx_neq_f32
        0x5e v_cmpx_nlt_f32  0x5f v_cmpx_tru_f32  0x60 v_cmp_f_f64  0x61 v_cmp_lt_f64  0x62 v_cmp_eq_f64
        0x63 v_cmp_le_f64  0x64 v_cmp_gt_f64  0x65 v_cmp_lg_f64  0x66 v_cmp_ge_f64  0x67 v_cmp_o_f64
        0x68 v_cmp_u_f64  0x69 v_cmp_nge_f64  0x6a v_cmp_nlg_f64  0x6b v_cmp_ngt_f64  0x6c v_cmp_nle_f64
        0x6d v_cmp_neq_f64  0x6e v_cmp_nlt_f64  0x6f v_cmp_tru_f64  0x70 v_cmpx_f_f64  0x71 v_cmpx_lt_f64
        0x72 v_cmpx_eq_f64  0x73 v_cmpx_le_f64  0x74 v_cmpx_gt_f64  0x75 v_cmpx_lg_f64  0x76 v_cmpx_ge_f64
        0x77 v_cmpx_o_f64  0x78 v_cmpx_u_f64  0x79 v_cmpx_nge_f64  0x7a v_cmpx_nlg_f64  0x7b v_cmpx_ngt_f64
        0x7c v_cmpx_nle_f64  0x7d v_cmpx_neq_f64  0x7e v_cmpx_nlt_f64  0x7f v_cmpx_tru_f64  0xa0 v_cmp_f_i16
        0xa1 v_cmp_lt_i16  0xa2 v_cmp_eq_i16  0xa3 v_cmp_le_i16  0xa4 v_cmp_gt_i16  0xa5 v_cmp_ne_i16
        0xa6 v_cmp_ge_i16  0xa7 v_cmp_t_i16  0xa8 v_cmp_f_u16  0xa9 v_cmp_lt_u16  0xaa v_cmp_eq_u16
        0xab v_cmp_le_u16  0xac v_cmp_gt_u16  0xad v_cmp_ne_u16  0xae v_cmp_ge_u16  0xaf v_cmp_t_u16
        0xb0 v_cmpx_f_i16  0xb1 v_cmpx_lt_i16  0xb2 v_cmpx_eq_i16  0xb3 v_cmpx_le_i16  0xb4 v_cmpx_gt_i16
        0xb5 v_cmpx_ne_i16  0xb6 v_cmpx_ge_i16  0xb7 v_cmpx_t_i16  0xb8 v_cmpx_f_u16  0xb9 v_cmpx_lt_u16
        0xba v_cmpx_eq_u16  0xbb v_cmpx_le_u16  0xbc v_cmpx_gt_u16  0xbd v_cmpx_ne_u16  0xbe v_cmpx_ge_u16
        0xbf v_cmpx_t_u16  0xc0 v_cmp_f_i32  0xc1 v_cmp_lt_i32  0xc2 v_cmp_eq_i32  0xc3 v_cmp_le_i32
        0xc4 v_cmp_gt_i32  0xc5 v_cmp_ne_i32  0xc6 v_cmp_ge_i32  0xc7 v_cmp_t_i32  0xc8 v_cmp_f_u32
        0xc9 v_cmp_lt_u32  0xca v_cmp_eq_u32  0xcb v_cmp_le_u32  0xcc v_cmp_gt_u32  0xcd v_cmp_ne_u32
        0xce v_cmp_ge_u32  0xcf v_cmp_t_u32  0xd0 v_cmpx_f_i32  0xd1 v_cmpx_lt_i32  0xd2 v_cmpx_eq_i32
        0xd3 v_cmpx_le_i32  0xd4 v_cmpx_gt_i32  0xd5 v_cmpx_ne_i32  0xd6 v_cmpx_ge_i32  0xd7 v_cmpx_t_i32
        0xd8 v_cmpx_f_u32  0xd9 v_cmpx_lt_u32  0xda v_cmpx_eq_u32  0xdb v_cmpx_le_u32  0xdc v_cmpx_gt_u32
        0xdd v_cmpx_ne_u32  0xde v_cmpx_ge_u32  0xdf v_cmpx_t_u32  0xe0 v_cmp_f_i64  0xe1 v_cmp_lt_i64
        0xe2 v_cmp_eq_i64  0xe3 v_cmp_le_i64  0xe4 v_cmp_gt_i64  0xe5 v_cmp_ne_i64  0xe6 v_cmp_ge_i64
        0xe7 v_cmp_t_i64  0xe8 v_cmp_f_u64  0xe9 v_cmp_lt_u64  0xea v_cmp_eq_u64  0xeb v_cmp_le_u64
        0xec v_cmp_gt_u64  0xed v_cmp_ne_u64  0xee v_cmp_ge_u64  0xef v_cmp_t_u64  0xf0 v_cmpx_f_i64
        0xf1 v_cmpx_lt_i64  0xf2 v_cmpx_eq_i64  0xf3 v_cmpx_le_i64  0xf4 v_cmpx_gt_i64  0xf5 v_cmpx_ne_i64
        0xf6 v_cmpx_ge_i64  0xf7 v_cmpx_t_i64  0xf8 v_cmpx_f_u64  0xf9 v_cmpx_lt_u64  0xfa v_cmpx_eq_u64
        0xfb v_cmpx_le_u64  0xfc v_cmpx_gt_u64  0xfd v_cmpx_ne_u64  0xfe v_cmpx_ge_u64  0xff v_cmpx_t_u64
    }
}
