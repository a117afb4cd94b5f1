//! Numbers of the vector instructions that gfx90a and gfx942 have beyond gfx906, or lack.

use crate::isa::tables::encodings;

encodings! {
    VOP1: Row {
        0x52 v_accvgpr_mov_b32
    }
    /// Vector instructions of gfx942 alone.
    VOP1_942: Row {
        0x38 v_mov_b64  0x54 v_cvt_f32_fp8  0x55 v_cvt_f32_bf8  0x56 v_cvt_pk_f32_fp8  0x57 v_cvt_pk_f32_bf8
    }
    VOP2: Row {
        0x04 v_fmac_f64  0x38 v_dot2c_i32_i16  0x39 v_dot4c_i32_i8  0x3a v_dot8c_i32_i4  0x3c v_pk_fmac_f16
    }
    /// The dot product of gfx90a replaces denormals.
    VOP2_90A: Row {
        0x37 v_dot2c_f32_f16 = v_dot2c_f32_f16_flushing
    }
    VOP2_942: Row {
        0x16 absent  0x17 v_fmamk_f32  0x18 v_fmaak_f32  0x37 v_dot2c_f32_f16
    }
    VOP3: Row {
        0x2a1 v_mul_legacy_f32
    }
    VOP3_942: Row {
        0x1c0 absent  0x1c1 absent  0x208 v_lshl_add_u64  0x2a2 v_cvt_pk_fp8_f32  0x2a3 v_cvt_pk_bf8_f32
        0x2a4 v_cvt_sr_fp8_f32  0x2a5 v_cvt_sr_bf8_f32
    }
    VOP3P: Row {
        0x30 v_pk_fma_f32  0x31 v_pk_mul_f32  0x32 v_pk_add_f32  0x33 v_pk_mov_b32
        0x58 v_accvgpr_read_b32  0x59 v_accvgpr_write_b32
    }
    VOP3P_90A: Row {
        0x23 v_dot2_f32_f16 = v_dot2_f32_f16_flushing
    }
}
