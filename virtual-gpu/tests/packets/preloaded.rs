//! Kernels of CDNA whose arguments are in registers when they begin, as newer compilers of ROCm build them.

use crate::packets::process::{CODE, DATA, Process};
use crate::support::{Arguments, CDNA, compile};
use virtual_gpu::{FaultKind, Options};

const SOURCE: &str = "
    GLOBAL void scale(u32* out, const u32* in, u32 by, u32 n) {
        u32 i = group_x() * 64 + local_x();
        if (i < n) out[i] = in[i] * by;
    }";

/// A kernel of 64 work-items times 3, of which the last three are left out.
fn process(target: virtual_gpu::Target, words: u32) -> (Process, Arguments) {
    let source = format!("{}\n{SOURCE}", include_str!("../programs/prelude.h"));
    let options = format!("-O2 -mllvm -amdgpu-kernarg-preload-count={words}");
    let mut process = Process::new(target, Options::default());
    process.load(&compile::hip(target, &options, &source));
    let numbers: Vec<u32> = (0..192).map(|i| i * i + 5).collect();
    process.data.fill(0, bytemuck::cast_slice(&numbers));
    (process, Arguments::new().add(DATA + 0x1000).add(DATA).add(3u32).add(189u32))
}

#[test]
fn arguments_are_in_registers() {
    // None, the first, and as many as the compiler can.
    for (target, count) in CDNA.into_iter().flat_map(|target| [0, 1, 4].map(|count| (target, count))) {
        let (process, arguments) = process(target, count);
        let spec = process.descriptor("scale")[14] >> 16;
        assert_eq!(spec & 0x7f, [0, 2, 0, 0, 6][count as usize], "{}: {spec:#x}", target.name());
        let dispatch = process.dispatch("scale", &arguments).grid([192, 1, 1], [64, 1, 1]);
        let counters = dispatch.launch().unwrap_or_else(|fault| panic!("{}: {fault}", target.name()));
        let want: Vec<u32> = (0..192).map(|i| if i < 189 { 3 * (i * i + 5) } else { 0 }).collect();
        assert_eq!(process.data.words(0x1000, 192), want, "{}, {count}", target.name());
        // The code before it, which ends the program on other hardware, is not executed.
        assert_eq!(counters.waves, 3);
    }
}

#[test]
fn preloaded_arguments_that_cannot_be() {
    let (process, arguments) = process(CDNA[0], 4);
    let words = process.descriptor("scale");
    let at = (process.object("scale") - CODE) as usize + 56;
    let nowhere = process.dispatch("scale", &arguments).byte(46, 0x12);
    let fault = nowhere.launch().expect_err("arguments that are nowhere");
    let is_missing = |why: &str| why.contains("which some that are preloaded are not in memory");
    assert!(matches!(&fault.kind, FaultKind::InvalidLaunch(why) if is_missing(why)), "{fault}");
    process.code.fill(at, &(words[14] & 0xffff | 100 << 16).to_le_bytes());
    let fault = process.dispatch("scale", &arguments).launch().expect_err("too many");
    let are_many = |why: &str| why.contains("more preloaded arguments than registers");
    assert!(matches!(&fault.kind, FaultKind::Unimplemented(why) if are_many(why)), "{fault}");
}
