//! Allocations inside memory that a runtime divides itself.

use crate::packets::process::DATA;
use crate::packets::{COPY, with_kernels};
use crate::support::{Arguments, AsmKernel, TARGETS};
use virtual_gpu::{Access, FaultKind};

#[test]
fn kernels_stay_inside_windows() {
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("copy", COPY)]);
        process.data.fill(0x100, &[9; 512]);
        let copy = |from: u64, to: u64| {
            process.dispatch("copy", &Arguments::new().add(DATA + from).add(DATA + to)).launch()
        };
        copy(0x100, 0x2000).expect("all of it is one allocation");
        let set = |windows| process.gpu.set_windows(DATA, windows).expect("it is mapped");
        set(Some(vec![(0x100, 256), (0x200, 256), (0x2000, 512)]));
        copy(0x100, 0x2000).expect("inside");
        copy(0x200, 0x2100).expect("inside");
        let fault = copy(0x300, 0x2000).expect_err("behind the second window");
        let is_read = |r: &virtual_gpu::Range| r.access == Access::Read && r.at == DATA + 0x300;
        assert!(matches!(&fault.kind, FaultKind::OutOfBounds(r) if is_read(r)), "{fault}");
        let fault = copy(0x100, 0x2104).expect_err("four bytes beyond the end");
        let is_write = |r: &virtual_gpu::Range| r.access == Access::Write && r.at == DATA + 0x2200;
        assert!(matches!(&fault.kind, FaultKind::OutOfBounds(r) if is_write(r)), "{fault}");
        // From one window into the next: each lane is inside one of them.
        copy(0x180, 0x2000).expect("two allocations without a gap");
        // The host is not bound by windows.
        process.gpu.write(DATA + 0x1000, &[1; 64]).expect("it is mapped");
        set(None);
        copy(0x300, 0x2104).expect("one allocation again");
        process.gpu.set_windows(DATA + 0x1000, None).expect_err("nothing begins there");
    }
}
