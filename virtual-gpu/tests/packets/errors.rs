//! Packets that no hardware accepts, and kernels of another kind.

use crate::packets::process::{CODE, DATA, Dispatch, PACKET};
use crate::packets::{COPY, with_kernels};
use crate::support::{Arguments, AsmKernel, TARGETS};
use virtual_gpu::{FaultKind, MAX_LDS, Target};

#[test]
fn packets_that_no_hardware_accepts() {
    let process = with_kernels(Target::Gfx906, &[AsmKernel::new("copy", COPY)]);
    let arguments = Arguments::new().add(DATA).add(DATA + 0x1000);
    let good = process.dispatch("copy", &arguments);
    good.launch().expect("it is good");
    let nowhere = 0x1234_0000_0000u64;
    let end = CODE + process.code.bytes() as u64;
    let cases: [(&str, Dispatch<'_>, &str); 14] = [
        ("a barrier", good.byte(0, 3), "is a packet of type 3"),
        ("an invalid packet", good.byte(0, 1), "is a packet of type 1"),
        ("an empty grid", good.grid([64, 0, 1], [64, 1, 1]), "has [64, 0, 1] work-items"),
        ("an empty work-group", good.grid([64, 1, 1], [64, 1, 0]), "in work-groups of [64, 1, 0]"),
        ("1025 work-items", good.grid([64, 1, 1], [1025, 1, 1]), "has work-groups of [1025, 1, 1]"),
        ("many work-items", good.grid([1; 3], [u16::MAX; 3]), "has work-groups of [65535, 65535, 65535]"),
        ("1024 of 96 registers", good.grid([1; 3], [1024, 1, 1]), "vector registers, more than fit"),
        ("too much LDS", good.sizes(MAX_LDS + 1, 0), "wants 65537 bytes of LDS"),
        ("too much scratch", good.sizes(0, u32::MAX), "bytes of scratch for a work-item"),
        ("a packet that is nowhere", good.at(nowhere), "has its packet at 0x123400000000"),
        ("half a packet", good.at(CODE + process.code.bytes() as u64 - 32), "which is not in memory"),
        (
            "an object that is nowhere",
            process.dispatch_at(nowhere, &arguments),
            "has its kernel object at 0x1234",
        ),
        ("half an object", process.dispatch_at(end - 32, &arguments), "has its kernel object at 0x5000"),
        (
            "an object at the last address",
            process.dispatch_at(u64::MAX - 31, &arguments),
            "which is not in memory",
        ),
    ];
    for (what, dispatch, words) in cases {
        let fault = dispatch.launch().expect_err(what);
        assert!(
            matches!(&fault.kind, FaultKind::InvalidLaunch(why) if why.contains(words)),
            "{what}: {fault}"
        );
        let named = fault.kernel == "copy" || what.contains("object");
        assert!(named && !fault.kernel.is_empty(), "{what}: {fault}");
    }
    good.at(PACKET).launch().expect("it is still good");
}

#[test]
fn code_that_is_nowhere() {
    let process = with_kernels(Target::Gfx906, &[AsmKernel::new("copy", COPY)]);
    let object = process.object("copy");
    let arguments = Arguments::new().add(DATA).add(DATA + 0x1000);
    let words = process.descriptor("copy");
    let offset = u64::from(words[4]) | u64::from(words[5]) << 32;
    for (what, entry, want) in [
        ("outside", 0x1234_0000_0000, "has its code at 0x123400000000, which is not in memory"),
        ("in the middle", object.wrapping_add(offset) + 4, "which is no multiple of 256"),
    ] {
        let changed = u64::wrapping_sub(entry, object);
        process.code.fill((object - CODE) as usize + 16, &changed.to_le_bytes());
        let fault = process.dispatch_at(object, &arguments).launch().expect_err(what);
        assert!(
            matches!(&fault.kind, FaultKind::InvalidLaunch(why) if why.contains(want)),
            "{what}: {fault}"
        );
    }
}

#[test]
fn kernels_of_another_kind() {
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("copy", COPY)]);
        let arguments = Arguments::new().add(DATA).add(DATA + 0x1000);
        let words = process.descriptor("copy");
        let at = (process.object("copy") - CODE) as usize;
        for (what, first, properties) in [
            ("wavefronts of 32", [0; 3], words[14] | 1 << 10),
            ("preloaded arguments", [0; 3], words[14] | 1 << 16),
            ("numbers of work-groups", [0; 3], words[14] | 1 << 7),
            ("amd_kernel_code_t", [1, 1, 0x9_0001], words[14]),
        ] {
            process.code.fill(at, bytemuck::cast_slice(&first));
            process.code.fill(at + 56, &properties.to_le_bytes());
            let fault = process.dispatch("copy", &arguments).launch().expect_err(what);
            assert!(
                matches!(&fault.kind, FaultKind::Unimplemented(why) if why.contains(what)),
                "{what}: {fault}"
            );
        }
    }
}

/// A runtime builds an `amd_kernel_code_t` without versions for a kernel of its own: no ELF file, 256 bytes, then code.
#[test]
fn kernels_that_a_runtime_builds() {
    for target in TARGETS {
        let process = with_kernels(target, &[AsmKernel::new("copy", COPY)]);
        let words = process.descriptor("copy");
        let entry = (process.object("copy") - CODE) as usize + words[4] as usize;
        let code = process.code.words(entry, 64);
        process.code.fill(0, &vec![0; process.code.bytes()]);
        for (at, word) in [(16, 256), (48, words[12]), (52, words[13]), (56, words[14] & 0x7f)] {
            process.code.fill(0x3000 + at, &u32::to_le_bytes(word));
        }
        process.code.fill(0x3100, bytemuck::cast_slice(&code));
        process.data.fill(0, &[7; 256]);
        let arguments = Arguments::new().add(DATA).add(DATA + 0x1000);
        let dispatch = process.dispatch_at(CODE + 0x3000, &arguments);
        dispatch.launch().unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(process.data.words(0x1000, 64), [0x0707_0707; 64]);
        let fault = process.dispatch_at(CODE + 0x3000, &Arguments::new().add(0u64).add(DATA)).launch();
        assert_eq!(fault.expect_err("a null pointer").kernel, format!("{:#x}", CODE + 0x3000));
    }
}
