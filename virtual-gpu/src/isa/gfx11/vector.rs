//! Numbers of the vector instructions of GFX11, and of what pairs consist of.

use crate::isa::tables::encodings;

encodings! {
    /// One source.
    VOP1: Row {
        0x00 v_nop  0x01 v_mov_b32  0x02 v_readfirstlane_b32  0x03 v_cvt_i32_f64  0x04 v_cvt_f64_i32
        0x05 v_cvt_f32_i32  0x06 v_cvt_f32_u32  0x07 v_cvt_u32_f32  0x08 v_cvt_i32_f32  0x0a v_cvt_f16_f32
        0x0b v_cvt_f32_f16  0x0c v_cvt_nearest_i32_f32 = v_cvt_rpi_i32_f32
        0x0d v_cvt_floor_i32_f32 = v_cvt_flr_i32_f32  0x0e v_cvt_off_f32_i4  0x0f v_cvt_f32_f64
        0x10 v_cvt_f64_f32  0x11 v_cvt_f32_ubyte0  0x12 v_cvt_f32_ubyte1  0x13 v_cvt_f32_ubyte2
        0x14 v_cvt_f32_ubyte3  0x15 v_cvt_u32_f64  0x16 v_cvt_f64_u32  0x17 v_trunc_f64  0x18 v_ceil_f64
        0x19 v_rndne_f64  0x1a v_floor_f64  0x1b v_pipeflush  0x1c v_mov_b16  0x20 v_fract_f32
        0x21 v_trunc_f32  0x22 v_ceil_f32  0x23 v_rndne_f32  0x24 v_floor_f32  0x25 v_exp_f32
        0x27 v_log_f32  0x2a v_rcp_f32  0x2b v_rcp_iflag_f32  0x2e v_rsq_f32  0x2f v_rcp_f64  0x31 v_rsq_f64
        0x33 v_sqrt_f32  0x34 v_sqrt_f64  0x35 v_sin_f32  0x36 v_cos_f32  0x37 v_not_b32  0x38 v_bfrev_b32
        0x39 v_clz_i32_u32 = v_ffbh_u32  0x3a v_ctz_i32_b32 = v_ffbl_b32  0x3b v_cls_i32 = v_ffbh_i32
        0x3c v_frexp_exp_i32_f64  0x3d v_frexp_mant_f64  0x3e v_fract_f64  0x3f v_frexp_exp_i32_f32
        0x40 v_frexp_mant_f32  0x42 v_movreld_b32  0x43 v_movrels_b32  0x44 v_movrelsd_b32
        0x48 v_movrelsd_2_b32  0x50 v_cvt_f16_u16  0x51 v_cvt_f16_i16  0x52 v_cvt_u16_f16
        0x53 v_cvt_i16_f16  0x54 v_rcp_f16  0x55 v_sqrt_f16  0x56 v_rsq_f16  0x57 v_log_f16  0x58 v_exp_f16
        0x59 v_frexp_mant_f16  0x5a v_frexp_exp_i16_f16  0x5b v_floor_f16  0x5c v_ceil_f16  0x5d v_trunc_f16
        0x5e v_rndne_f16  0x5f v_fract_f16  0x60 v_sin_f16  0x61 v_cos_f16
        0x62 v_sat_pk_u8_i16 = v_sat_pk_u8_i16_d16
        0x63 v_cvt_norm_i16_f16  0x64 v_cvt_norm_u16_f16  0x65 v_swap_b32  0x67 v_permlane64_b32
        0x68 v_swaprel_b32  0x69 v_not_b16  0x6a v_cvt_i32_i16  0x6b v_cvt_u32_u16
    }
    /// Two sources, or three of which one is the destination, a literal or a mask.
    VOP2: Row {
        0x01 v_cndmask_b32  0x02 v_dot2acc_f32_f16 = v_dot2c_f32_f16  0x03 v_add_f32  0x04 v_sub_f32
        0x05 v_subrev_f32  0x06 v_fmac_dx9_zero_f32 = v_fmac_legacy_f32
        0x07 v_mul_dx9_zero_f32 = v_mul_legacy_f32  0x08 v_mul_f32  0x09 v_mul_i32_i24
        0x0a v_mul_hi_i32_i24  0x0b v_mul_u32_u24  0x0c v_mul_hi_u32_u24  0x0f v_min_f32  0x10 v_max_f32
        0x11 v_min_i32  0x12 v_max_i32  0x13 v_min_u32  0x14 v_max_u32  0x18 v_lshlrev_b32
        0x19 v_lshrrev_b32  0x1a v_ashrrev_i32  0x1b v_and_b32  0x1c v_or_b32  0x1d v_xor_b32
        0x1e v_xnor_b32  0x20 v_add_co_ci_u32 = v_addc_co_u32  0x21 v_sub_co_ci_u32 = v_subb_co_u32
        0x22 v_subrev_co_ci_u32 = v_subbrev_co_u32  0x25 v_add_nc_u32 = v_add_u32
        0x26 v_sub_nc_u32 = v_sub_u32  0x27 v_subrev_nc_u32 = v_subrev_u32  0x2b v_fmac_f32
        0x2c v_fmamk_f32  0x2d v_fmaak_f32  0x2f v_cvt_pk_rtz_f16_f32 = v_cvt_pkrtz_f16_f32  0x32 v_add_f16
        0x33 v_sub_f16  0x34 v_subrev_f16  0x35 v_mul_f16  0x36 v_fmac_f16  0x37 v_fmamk_f16
        0x38 v_fmaak_f16  0x39 v_max_f16  0x3a v_min_f16  0x3b v_ldexp_f16  0x3c v_pk_fmac_f16
    }
    /// Comparisons.
    VOPC: Row {
        0x00 v_cmp_f_f16  0x01 v_cmp_lt_f16  0x02 v_cmp_eq_f16  0x03 v_cmp_le_f16  0x04 v_cmp_gt_f16
        0x05 v_cmp_lg_f16  0x06 v_cmp_ge_f16  0x07 v_cmp_o_f16  0x08 v_cmp_u_f16  0x09 v_cmp_nge_f16
        0x0a v_cmp_nlg_f16  0x0b v_cmp_ngt_f16  0x0c v_cmp_nle_f16  0x0d v_cmp_neq_f16  0x0e v_cmp_nlt_f16
        0x0f v_cmp_t_f16 = v_cmp_tru_f16  0x10 v_cmp_f_f32  0x11 v_cmp_lt_f32  0x12 v_cmp_eq_f32
        0x13 v_cmp_le_f32  0x14 v_cmp_gt_f32  0x15 v_cmp_lg_f32  0x16 v_cmp_ge_f32  0x17 v_cmp_o_f32
        0x18 v_cmp_u_f32  0x19 v_cmp_nge_f32  0x1a v_cmp_nlg_f32  0x1b v_cmp_ngt_f32  0x1c v_cmp_nle_f32
        0x1d v_cmp_neq_f32  0x1e v_cmp_nlt_f32  0x1f v_cmp_t_f32 = v_cmp_tru_f32  0x20 v_cmp_f_f64
        0x21 v_cmp_lt_f64  0x22 v_cmp_eq_f64  0x23 v_cmp_le_f64  0x24 v_cmp_gt_f64  0x25 v_cmp_lg_f64
        0x26 v_cmp_ge_f64  0x27 v_cmp_o_f64  0x28 v_cmp_u_f64  0x29 v_cmp_nge_f64  0x2a v_cmp_nlg_f64
        0x2b v_cmp_ngt_f64  0x2c v_cmp_nle_f64  0x2d v_cmp_neq_f64  0x2e v_cmp_nlt_f64
        0x2f v_cmp_t_f64 = v_cmp_tru_f64  0x31 v_cmp_lt_i16  0x32 v_cmp_eq_i16  0x33 v_cmp_le_i16
        0x34 v_cmp_gt_i16  0x35 v_cmp_ne_i16  0x36 v_cmp_ge_i16  0x39 v_cmp_lt_u16  0x3a v_cmp_eq_u16
        0x3b v_cmp_le_u16  0x3c v_cmp_gt_u16  0x3d v_cmp_ne_u16  0x3e v_cmp_ge_u16  0x40 v_cmp_f_i32
        0x41 v_cmp_lt_i32  0x42 v_cmp_eq_i32  0x43 v_cmp_le_i32  0x44 v_cmp_gt_i32  0x45 v_cmp_ne_i32
        0x46 v_cmp_ge_i32  0x47 v_cmp_t_i32  0x48 v_cmp_f_u32  0x49 v_cmp_lt_u32  0x4a v_cmp_eq_u32
        0x4b v_cmp_le_u32  0x4c v_cmp_gt_u32  0x4d v_cmp_ne_u32  0x4e v_cmp_ge_u32  0x4f v_cmp_t_u32
        0x50 v_cmp_f_i64  0x51 v_cmp_lt_i64  0x52 v_cmp_eq_i64  0x53 v_cmp_le_i64  0x54 v_cmp_gt_i64
        0x55 v_cmp_ne_i64  0x56 v_cmp_ge_i64  0x57 v_cmp_t_i64  0x58 v_cmp_f_u64  0x59 v_cmp_lt_u64
        0x5a v_cmp_eq_u64  0x5b v_cmp_le_u64  0x5c v_cmp_gt_u64  0x5d v_cmp_ne_u64  0x5e v_cmp_ge_u64
        0x5f v_cmp_t_u64  0x7d v_cmp_class_f16  0x7e v_cmp_class_f32  0x7f v_cmp_class_f64
        0x80 v_cmpx_f_f16  0x81 v_cmpx_lt_f16  0x82 v_cmpx_eq_f16  0x83 v_cmpx_le_f16  0x84 v_cmpx_gt_f16
        0x85 v_cmpx_lg_f16  0x86 v_cmpx_ge_f16  0x87 v_cmpx_o_f16  0x88 v_cmpx_u_f16  0x89 v_cmpx_nge_f16
        0x8a v_cmpx_nlg_f16  0x8b v_cmpx_ngt_f16  0x8c v_cmpx_nle_f16  0x8d v_cmpx_neq_f16
        0x8e v_cmpx_nlt_f16  0x8f v_cmpx_t_f16 = v_cmpx_tru_f16  0x90 v_cmpx_f_f32  0x91 v_cmpx_lt_f32
        0x92 v_cmpx_eq_f32  0x93 v_cmpx_le_f32  0x94 v_cmpx_gt_f32  0x95 v_cmpx_lg_f32  0x96 v_cmpx_ge_f32
        0x97 v_cmpx_o_f32  0x98 v_cmpx_u_f32  0x99 v_cmpx_nge_f32  0x9a v_cmpx_nlg_f32  0x9b v_cmpx_ngt_f32
        0x9c v_cmpx_nle_f32  0x9d v_cmpx_neq_f32  0x9e v_cmpx_nlt_f32  0x9f v_cmpx_t_f32 = v_cmpx_tru_f32
        0xa0 v_cmpx_f_f64  0xa1 v_cmpx_lt_f64  0xa2 v_cmpx_eq_f64  0xa3 v_cmpx_le_f64  0xa4 v_cmpx_gt_f64
        0xa5 v_cmpx_lg_f64  0xa6 v_cmpx_ge_f64  0xa7 v_cmpx_o_f64  0xa8 v_cmpx_u_f64  0xa9 v_cmpx_nge_f64
        0xaa v_cmpx_nlg_f64  0xab v_cmpx_ngt_f64  0xac v_cmpx_nle_f64  0xad v_cmpx_neq_f64
        0xae v_cmpx_nlt_f64  0xaf v_cmpx_t_f64 = v_cmpx_tru_f64  0xb1 v_cmpx_lt_i16  0xb2 v_cmpx_eq_i16
        0xb3 v_cmpx_le_i16  0xb4 v_cmpx_gt_i16  0xb5 v_cmpx_ne_i16  0xb6 v_cmpx_ge_i16  0xb9 v_cmpx_lt_u16
        0xba v_cmpx_eq_u16  0xbb v_cmpx_le_u16  0xbc v_cmpx_gt_u16  0xbd v_cmpx_ne_u16  0xbe v_cmpx_ge_u16
        0xc0 v_cmpx_f_i32  0xc1 v_cmpx_lt_i32  0xc2 v_cmpx_eq_i32  0xc3 v_cmpx_le_i32  0xc4 v_cmpx_gt_i32
        0xc5 v_cmpx_ne_i32  0xc6 v_cmpx_ge_i32  0xc7 v_cmpx_t_i32  0xc8 v_cmpx_f_u32  0xc9 v_cmpx_lt_u32
        0xca v_cmpx_eq_u32  0xcb v_cmpx_le_u32  0xcc v_cmpx_gt_u32  0xcd v_cmpx_ne_u32  0xce v_cmpx_ge_u32
        0xcf v_cmpx_t_u32  0xd0 v_cmpx_f_i64  0xd1 v_cmpx_lt_i64  0xd2 v_cmpx_eq_i64  0xd3 v_cmpx_le_i64
        0xd4 v_cmpx_gt_i64  0xd5 v_cmpx_ne_i64  0xd6 v_cmpx_ge_i64  0xd7 v_cmpx_t_i64  0xd8 v_cmpx_f_u64
        0xd9 v_cmpx_lt_u64  0xda v_cmpx_eq_u64  0xdb v_cmpx_le_u64  0xdc v_cmpx_gt_u64  0xdd v_cmpx_ne_u64
        0xde v_cmpx_ge_u64  0xdf v_cmpx_t_u64  0xfd v_cmpx_class_f16  0xfe v_cmpx_class_f32
        0xff v_cmpx_class_f64
    }
    /// Two or three sources with modifiers: instructions without another form.
    VOP3: Row {
        0x209 v_fma_dx9_zero_f32 = v_fma_legacy_f32  0x20a v_mad_i32_i24  0x20b v_mad_u32_u24
        0x20c v_cubeid_f32  0x20d v_cubesc_f32  0x20e v_cubetc_f32  0x20f v_cubema_f32  0x210 v_bfe_u32
        0x211 v_bfe_i32  0x212 v_bfi_b32  0x213 v_fma_f32  0x214 v_fma_f64  0x215 v_lerp_u8
        0x216 v_alignbit_b32  0x217 v_alignbyte_b32  0x218 v_mullit_f32  0x219 v_min3_f32  0x21a v_min3_i32
        0x21b v_min3_u32  0x21c v_max3_f32  0x21d v_max3_i32  0x21e v_max3_u32  0x21f v_med3_f32
        0x220 v_med3_i32  0x221 v_med3_u32  0x222 v_sad_u8  0x223 v_sad_hi_u8  0x224 v_sad_u16
        0x225 v_sad_u32  0x226 v_cvt_pk_u8_f32  0x227 v_div_fixup_f32  0x228 v_div_fixup_f64
        0x237 v_div_fmas_f32  0x238 v_div_fmas_f64  0x239 v_msad_u8  0x23a v_qsad_pk_u16_u8
        0x23b v_mqsad_pk_u16_u8  0x23d v_mqsad_u32_u8  0x240 v_xor3_b32  0x241 v_mad_u16  0x244 v_perm_b32
        0x245 v_xad_u32  0x246 v_lshl_add_u32  0x247 v_add_lshl_u32  0x248 v_fma_f16  0x249 v_min3_f16
        0x24a v_min3_i16  0x24b v_min3_u16  0x24c v_max3_f16  0x24d v_max3_i16  0x24e v_max3_u16
        0x24f v_med3_f16  0x250 v_med3_i16  0x251 v_med3_u16  0x253 v_mad_i16  0x254 v_div_fixup_f16
        0x255 v_add3_u32  0x256 v_lshl_or_b32  0x257 v_and_or_b32  0x258 v_or3_b32  0x259 v_mad_u32_u16
        0x25a v_mad_i32_i16  0x25b v_permlane16_b32  0x25c v_permlanex16_b32  0x25d v_cndmask_b16
        0x25e v_maxmin_f32  0x25f v_minmax_f32  0x260 v_maxmin_f16  0x261 v_minmax_f16  0x262 v_maxmin_u32
        0x263 v_minmax_u32  0x264 v_maxmin_i32  0x265 v_minmax_i32  0x266 v_dot2_f16_f16
        0x267 v_dot2_bf16_bf16  0x2fc v_div_scale_f32  0x2fd v_div_scale_f64  0x2fe v_mad_u64_u32
        0x2ff v_mad_i64_i32  0x300 v_add_co_u32  0x301 v_sub_co_u32  0x302 v_subrev_co_u32
        0x303 v_add_nc_u16 = v_add_u16  0x304 v_sub_nc_u16 = v_sub_u16  0x305 v_mul_lo_u16
        0x306 v_cvt_pk_i16_f32  0x307 v_cvt_pk_u16_f32  0x309 v_max_u16  0x30a v_max_i16  0x30b v_min_u16
        0x30c v_min_i16  0x30d v_add_nc_i16 = v_add_i16  0x30e v_sub_nc_i16 = v_sub_i16
        0x311 v_pack_b32_f16  0x312 v_cvt_pk_norm_i16_f16 = v_cvt_pknorm_i16_f16
        0x313 v_cvt_pk_norm_u16_f16 = v_cvt_pknorm_u16_f16  0x31c v_ldexp_f32  0x31d v_bfm_b32
        0x31e v_bcnt_u32_b32  0x31f v_mbcnt_lo_u32_b32  0x320 v_mbcnt_hi_u32_b32
        0x321 v_cvt_pk_norm_i16_f32 = v_cvt_pknorm_i16_f32
        0x322 v_cvt_pk_norm_u16_f32 = v_cvt_pknorm_u16_f32  0x323 v_cvt_pk_u16_u32  0x324 v_cvt_pk_i16_i32
        0x325 v_sub_nc_i32 = v_sub_i32  0x326 v_add_nc_i32 = v_add_i32  0x327 v_add_f64  0x328 v_mul_f64
        0x329 v_min_f64  0x32a v_max_f64  0x32b v_ldexp_f64  0x32c v_mul_lo_u32  0x32d v_mul_hi_u32
        0x32e v_mul_hi_i32  0x32f v_trig_preop_f64  0x338 v_lshlrev_b16  0x339 v_lshrrev_b16
        0x33a v_ashrrev_i16  0x33c v_lshlrev_b64  0x33d v_lshrrev_b64  0x33e v_ashrrev_i64
        0x360 v_readlane_b32  0x361 v_writelane_b32  0x362 v_and_b16  0x363 v_or_b16  0x364 v_xor_b16
    }
    /// Two values in a register, dot products, mixed precision.
    VOP3P: Row {
        0x00 v_pk_mad_i16  0x01 v_pk_mul_lo_u16  0x02 v_pk_add_i16  0x03 v_pk_sub_i16  0x04 v_pk_lshlrev_b16
        0x05 v_pk_lshrrev_b16  0x06 v_pk_ashrrev_i16  0x07 v_pk_max_i16  0x08 v_pk_min_i16
        0x09 v_pk_mad_u16  0x0a v_pk_add_u16  0x0b v_pk_sub_u16  0x0c v_pk_max_u16  0x0d v_pk_min_u16
        0x0e v_pk_fma_f16  0x0f v_pk_add_f16  0x10 v_pk_mul_f16  0x11 v_pk_min_f16  0x12 v_pk_max_f16
        0x13 v_dot2_f32_f16  0x16 v_dot4_i32_iu8  0x17 v_dot4_u32_u8  0x18 v_dot8_i32_iu4
        0x19 v_dot8_u32_u4  0x1a v_dot2_f32_bf16  0x20 v_fma_mix_f32  0x21 v_fma_mixlo_f16
        0x22 v_fma_mixhi_f16
    }
    /// Either half of a pair.
    DUAL: Row {
        0x00 v_dual_fmac_f32 = v_fmac_f32  0x01 v_dual_fmaak_f32 = v_fmaak_f32
        0x02 v_dual_fmamk_f32 = v_fmamk_f32  0x03 v_dual_mul_f32 = v_mul_f32
        0x04 v_dual_add_f32 = v_add_f32  0x05 v_dual_sub_f32 = v_sub_f32
        0x06 v_dual_subrev_f32 = v_subrev_f32  0x07 v_dual_mul_dx9_zero_f32 = v_mul_legacy_f32
        0x08 v_dual_mov_b32 = v_mov_b32  0x09 v_dual_cndmask_b32 = v_cndmask_b32
        0x0a v_dual_max_f32 = v_max_f32  0x0b v_dual_min_f32 = v_min_f32
        0x0c v_dual_dot2acc_f32_f16 = v_dot2c_f32_f16
    }
    /// The second half of a pair alone.
    DUAL_Y: Row {
        0x10 v_dual_add_nc_u32 = v_add_u32  0x11 v_dual_lshlrev_b32 = v_lshlrev_b32
        0x12 v_dual_and_b32 = v_and_b32
    }
}
