use super::Listing;
use super::cost::{Class, Cost, cost};
use super::listing::{Instruction, blocks, holds, loops};
use super::loops::row;
use crate::arch::ArchClass;
use crate::pipeline::PipelineSpec;

/// A loop over k for tiles of 8 x 8 by a wavefront of 64 in steps of 8: eight products per lane, in an inner
/// loop of four iterations. Rows that end within a step are read in two parts; only some invocations write to
/// shared memory; a step may be written a second time.
const ASSEMBLY: &str = "
BB0:
	s_load_dwordx8 s[16:23], s[0:1], 0x2c                       ; c00e0400 0000002c
BB1:
	s_cmp_ge_u32 s9, s6                                         ; bf090609
	s_cbranch_scc1 BB9                                          ; bf850042
	s_cbranch_scc0 BB3                                          ; bf840003
BB2:
	buffer_load_dword v1, v2, s[16:19], 0 offen                 ; e0501000 80040102
	v_cvt_f32_i32_sdwa v3, sext(v1) dst_sel:DWORD               ; 7e060af9
	s_branch BB4                                                ; bf820004
BB3:
	buffer_load_ubyte v1, v2, s[16:19], 0 offen
	buffer_load_ubyte v4, v2, s[16:19], 0 offen offset:1
	v_mul_lo_u32 v1, v1, s55
BB4:
	v_cmpx_eq_i32_e64 s[10:11], 0, v64
	s_cbranch_execz BB5
	ds_write_b32 v1, v3
BB5:
	s_cbranch_vccz BB7
BB6:
	ds_write_b32 v1, v3
	v_mov_b32_e32 v2, v3
BB7:
	ds_read_b64 v[4:5], v2
	s_waitcnt lgkmcnt(0)
	v_mac_f32_e32 v8, v4, v5
	v_mac_f32_e32 v9, v4, v5
	s_cbranch_scc0 BB7
BB8:
	s_branch BB1
BB9:
	buffer_store_dword v8, v2, s[16:19], 0 offen
	s_endpgm
";

/// Mesa's output where LLVM does not support the processor: matrices in a loop of one block, by wavefronts of
/// 32.
const INTERNAL: &str = "
After lowering to hw instructions:
BB0
/* logical preds: / linear preds: / kind: uniform, top-level, loop-preheader, */
	 s1: %0:s[0] = s_mov_b32 %854:s[3]
BB1
/* logical preds: BB0, BB1, / linear preds: BB0, BB1, / kind: uniform, loop-header, */
	 v4: %1:v[0-3] = buffer_load_dwordx4 %2:s[0-3], %3:v[4], 0 offen
	 v1: %0:v[81] = v_dual_mov_b32 %0:v[73] :: v1: %0:v[80] = v_dual_mov_b32 %0:v[72]
	 v1: %4:v[9] = v_fma_mix_f32 lo(%5:v[19][0:16]), 1.0, neg(0)
	 v8: %6:v[88-95] = v_wmma_f32_16x16x16_f16 %7:v[12-19], %8:v[20-27], %6:v[88-95]
	s_cbranch_scc0 block:BB1
BB2
	s_endpgm
";

fn listing(text: &str, lanes: u32, specialization: &[u32]) -> Listing {
    let (shader, variant, specialization) = ("mul_mat_tile", "q8_0_tile32", specialization.to_vec());
    Listing {
        pipeline: PipelineSpec { shader, variant, specialization, subgroup: None },
        lanes,
        text: text.into(),
    }
}

#[test]
fn loops_are_found() {
    let blocks = blocks(ASSEMBLY);
    let all = loops(&blocks);
    assert!(all.len() == 2 && holds(&all[0], &all[1]) && !holds(&all[1], &all[0]), "{all:?}");
    assert_eq!(loops(&super::listing::blocks(INTERNAL)).len(), 1);
    assert!(loops(&super::listing::blocks("")).is_empty());
}

#[test]
fn a_step_is_the_usual_way_through_the_loop() {
    let row = row(ArchClass::AmdGcn, &listing(ASSEMBLY, 64, &[64, 8, 8, 8, 1, 1, 1, 1, 1, 1])).unwrap();
    let counted = Class::ALL.map(|class| (class, row.instructions(class)));
    let expected = [
        (Class::Fma, 8),
        (Class::Dot, 0),
        (Class::Matrix, 0),
        (Class::Conversion, 1),
        (Class::Vector, 1),
        (Class::Lds, 5),
        (Class::Memory, 1),
        (Class::Wait, 4),
        // A comparison and branches.
        (Class::Scalar, 11),
    ];
    assert_eq!(counted, expected);
    // Ten instructions of four cycles; with slow conversions one of them has 16.
    assert_eq!(row.products_per_cycle(), [512.0 / 40.0, 512.0 / 52.0]);
    assert_eq!(row.vector_per_weight(), 10.0);
}

#[test]
fn matrices_are_counted_in_mesas_own_form() {
    let specialization = [32, 16, 16, 16, 16, 16, 1, 1, 1, 1, 16, 16, 16];
    let row = row(ArchClass::AmdRdna3, &listing(INTERNAL, 32, &specialization)).unwrap();
    assert_eq!(
        [Class::Matrix, Class::Vector, Class::Conversion].map(|class| row.instructions(class)),
        [1, 2, 1]
    );
    // The two moves are issued together.
    assert_eq!(row.products_per_cycle()[0], 4096.0 / 34.0);
}

#[test]
fn loops_that_do_not_multiply_enough_are_not_understood() {
    assert_eq!(row(ArchClass::AmdRdna3, &listing(INTERNAL, 32, &[32, 16, 16, 32, 16, 16, 1, 1, 1, 1])), None);
    assert_eq!(
        row(ArchClass::AmdGcn, &listing("BB0:\n\ts_endpgm", 64, &[64, 8, 8, 8, 1, 1, 1, 1, 1, 1])),
        None
    );
    assert_eq!(row(ArchClass::AmdGcn, &listing(ASSEMBLY, 64, &[])), None);
    assert_eq!(row(ArchClass::AmdGcn, &listing(ASSEMBLY, 0, &[64, 8, 8, 8, 1, 1, 1, 1, 1, 1])), None);
}

#[test]
fn costs_are_those_of_the_documentation() {
    use ArchClass::{AmdGcn, AmdRdna2, AmdRdna3, AmdRdna4};
    let of = |arch, lanes, name| {
        let Cost { cycles, slow, products, .. } =
            cost(arch, lanes, Instruction { name, operands: "", joined: false });
        (cycles, slow, products)
    };
    assert_eq!(of(AmdGcn, 64, "v_mac_f32_e32"), (4, 0, 64));
    assert_eq!(of(AmdGcn, 64, "v_dot4_i32_i8"), (4, 0, 256));
    assert_eq!(of(AmdGcn, 64, "v_mul_lo_u32"), (16, 0, 0));
    assert_eq!(of(AmdGcn, 64, "v_cvt_f32_f16_e32"), (4, 12, 0));
    assert_eq!(of(AmdGcn, 64, "v_cvt_f32_ubyte1_e32"), (4, 0, 0));
    assert_eq!(of(AmdGcn, 64, "ds_read_b128"), (0, 0, 0));
    assert_eq!(of(AmdRdna2, 64, "v_fmac_f32_e32"), (2, 0, 64));
    assert_eq!(of(AmdRdna3, 64, "v_fmac_f32_e32"), (1, 0, 64));
    assert_eq!(of(AmdRdna3, 64, "v_pk_fma_f16"), (2, 0, 128));
    assert_eq!(of(AmdRdna3, 32, "v_dual_fmac_f32"), (1, 0, 32));
    assert_eq!(of(AmdRdna3, 32, "v_wmma_f32_16x16x16_f16"), (32, 0, 4096));
    assert_eq!(of(AmdRdna4, 32, "v_wmma_f32_16x16x16_f16"), (16, 0, 4096));
}
