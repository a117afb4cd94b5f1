//! Counters of a launch: exactly those of the executed instructions.

use crate::support;

use support::{Arguments, AsmKernel, Session, TARGETS, asm, compile};
use virtual_gpu::{Checks, Options};

/// Ten iterations of a loop with two vector and two scalar instructions, then LDS and memory.
const BODY: &str = "
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_movk_i32 s8, 10
  s_waitcnt lgkmcnt(0)
1:
  v_add_u32_e32 v2, 1, v2
  v_mul_f32_e32 v3, v3, v3
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 1b
  ds_write_b32 v1, v2 offset:512
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_rcp_f32_e32 v4, v3
  global_load_dwordx2 v[5:6], v1, s[4:5]
  s_waitcnt vmcnt(0)
  s_mov_b64 exec, 0xff
  global_store_dword v1, v5, s[6:7]
  global_atomic_add v7, v1, v5, s[6:7] glc
  s_waitcnt vmcnt(0)
";

#[test]
fn counts_are_exact() {
    let kernel = AsmKernel { lds: 4096, ..AsmKernel::new("counted", BODY) };
    for target in TARGETS {
        let object = compile::assemble(target, &asm::file("", std::slice::from_ref(&kernel)));
        // The work-groups store to the same addresses.
        let checks = Checks { order: false, ..Checks::ALL };
        let options = Options { checks, ..Options::default() };
        let session = Session::with_options(target, "counters", &object, options);
        let (from, to) = (session.upload(&[0u8; 4096]), session.upload(&[0u8; 4096]));
        // Three work-groups of two wavefronts; the second wavefront has 36 lanes.
        let counts = session.run("counted", [3, 1, 1], [100, 1, 1], &Arguments::new().add(from).add(to));
        let waves = 6;
        assert_eq!((counts.waves, counts.lanes), (waves, 64 * waves));
        assert_eq!(counts.salu, waves * (1 + 10 * 2 + 1));
        assert_eq!(counts.valu, waves * (1 + 10 * 2 + 1));
        assert_eq!(counts.valu_quarter, waves);
        assert_eq!(counts.smem, waves);
        assert_eq!(counts.branch, waves * 10);
        assert_eq!(counts.barrier, waves);
        assert_eq!(counts.lds, waves);
        assert_eq!(counts.vmem_load, waves * 2);
        assert_eq!(counts.vmem_store, waves);
        assert_eq!(counts.wait, waves * 4);
        assert_eq!(counts.other, waves, "the end");
        let classes = counts.salu + counts.valu + counts.smem + counts.branch + counts.barrier + counts.lds;
        assert_eq!(
            counts.instructions,
            classes + counts.vmem_load + counts.vmem_store + counts.wait + counts.other
        );
        assert_eq!(counts.scalar_read, waves * 16);
        assert_eq!(counts.lds_written, 300 * 4);
        assert_eq!(counts.lds_read, 0);
        // Every lane loads eight bytes; eight lanes of each wavefront store four bytes and add to four.
        assert_eq!(counts.global_read, 300 * 8);
        assert_eq!(counts.global_written, waves * 8 * 4 * 2);
        assert_eq!(counts.scratch, 0);
    }
}
