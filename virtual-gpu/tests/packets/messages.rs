//! Kernels that raise interrupts of the host.

use crate::packets::process::DATA;
use crate::packets::with_kernels;
use crate::support::{Arguments, AsmKernel, TARGETS};
use std::sync::Mutex;
use virtual_gpu::{FaultKind, Target};

/// Stores a number, raises an interrupt with more than 24 bits of data, and ends when the host has answered beside the
/// number.
const CALL: &str = "
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v1, 0x5a
  v_mov_b32 v2, 0
  s_waitcnt lgkmcnt(0)
  global_store_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  s_mov_b32 m0, 0xab123456
  s_nop 0
  s_sendmsg sendmsg(MSG_INTERRUPT)
again:
  s_sleep 1
  global_load_dword v3, v2, s[4:5] offset:4 glc
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s6, v3
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc1 again
";
const OTHER: &str = "s_sendmsg sendmsg(MSG_GET_DOORBELL)";

fn message(target: Target, kernel: &str) -> FaultKind {
    let process = with_kernels(target, &[AsmKernel::new("kernel", kernel)]);
    let dispatch = process.dispatch("kernel", &Arguments::new().add(DATA + 0x40).add(0u64));
    dispatch.grid([1; 3], [1; 3]).launch_with(None).expect_err("nobody takes it").kind
}

#[test]
fn a_message_to_the_host_is_an_interrupt() {
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("call", CALL)]);
        let dispatch = process.dispatch("call", &Arguments::new().add(DATA + 0x40).add(0u64));
        let seen = Mutex::new(Vec::new());
        let answer = |data: u32| {
            let mut word = [0; 4];
            process.gpu.read(DATA + 0x40, &mut word).expect("it is mapped");
            seen.lock().unwrap().push((data, word));
            process.gpu.write(DATA + 0x44, &[1, 0, 0, 0]).expect("it is mapped");
        };
        dispatch.grid([1; 3], [1; 3]).launch_with(Some(&answer)).expect("the host answers");
        assert_eq!(*seen.lock().unwrap(), [(0x12_3456, [0x5a, 0, 0, 0])]);
    }
}

#[test]
fn messages_that_nobody_takes() {
    for target in TARGETS {
        for kernel in [CALL, OTHER] {
            let kind = message(target, kernel);
            assert!(matches!(&kind, FaultKind::Unimplemented(what) if what == "s_sendmsg"), "{kind}");
        }
    }
}
