//! Instructions of embedded code objects are disassembled exactly as llvm-objdump prints them: mnemonic, operands and
//! modifiers, character by character. All families of gfx906 are, and of the other processors one of three, or all with
//! `DIPTYCH_TEST_DISASSEMBLY=all`.

use crate::support;

use support::objdump::compare;
use support::{AsmKernel, CDNA, TARGETS, asm, compile};
use virtual_gpu::Target;

#[test]
fn embedded_code_objects_decode_as_llvm_objdump_prints_them() {
    let (mut total, mut wrong) = (0, Vec::new());
    let all = std::env::var("DIPTYCH_TEST_DISASSEMBLY").is_ok_and(|value| value == "all");
    for (number, target) in Target::ALL.into_iter().enumerate() {
        // mul_mat_int8_* needs dot4, which gfx900 does not have. mul_mat_half_* is for such targets, and for those with
        // matrix units, which CDNA has.
        let packed = target == Target::Gfx900;
        let is_empty = |stem: &str| match stem {
            stem if stem.starts_with("mul_mat_int8_") => packed,
            stem => stem.starts_with("mul_mat_half_") && !packed && !CDNA.contains(&target),
        };
        let stems = hip_kernels::stems().iter().filter(|stem| !is_empty(stem));
        if !hip_kernels::targets().contains(&target.name()) {
            assert!(!TARGETS.contains(&target), "{} is not embedded", target.name());
            println!("{} is not embedded in this build", target.name());
            continue;
        }
        let chosen = |n: usize| all || target == Target::Gfx906 || n % 3 == number % 3;
        for stem in stems.enumerate().filter(|(n, _)| chosen(*n)).map(|(_, stem)| stem) {
            let image = hip_kernels::code_object(target.name(), stem).expect("every family is compiled");
            let (count, differences) = compare(image, target, stem);
            total += count;
            wrong.extend(differences);
        }
    }
    println!("{total} instructions compared");
    let shown = &wrong[..wrong.len().min(40)];
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), shown.join("\n"));
}

/// Instructions that compilers of graphics drivers emit and HIP's does not: all buffer addressing modes, all
/// bits, scalar loads through resources.
#[test]
fn buffers_decode_as_llvm_objdump_prints_them() {
    let mut body = String::new();
    for (name, register) in [
        ("load_ubyte", "v5"),
        ("load_sbyte_d16", "v5"),
        ("load_short_d16_hi", "v5"),
        ("load_dword", "v5"),
        ("load_dwordx2", "v[5:6]"),
        ("load_dwordx3", "v[5:7]"),
        ("load_dwordx4", "v[5:8]"),
        ("store_byte_d16_hi", "v5"),
        ("store_short", "v5"),
        ("store_dwordx3", "v[5:7]"),
        ("atomic_add", "v5"),
        ("atomic_cmpswap_x2", "v[5:8]"),
    ] {
        for address in [
            "off, s[8:11], s3",
            "v1, s[8:11], 0 offen",
            "v1, s[96:99], m0 idxen",
            "v[1:2], s[8:11], -16 idxen offen",
        ] {
            for bits in ["", " offset:4095", " offset:8 glc", " slc", " glc slc"] {
                body += &format!("buffer_{name} {register}, {address}{bits}\n");
            }
        }
    }
    for line in
        ["off, s[8:11], s3 lds", "v1, s[8:11], s3 offen offset:4 glc lds", "v1, s[8:11], 1.0 idxen slc lds"]
    {
        body += &format!("buffer_load_dword {line}\nbuffer_load_ushort {line}\n");
    }
    for line in ["off, s[8:11], s3", "v1, s[8:11], 0 offen glc slc"] {
        body += &format!("buffer_load_dword v[5:6], {line} tfe\n");
    }
    for (name, registers) in [
        ("dword", "s5"),
        ("dwordx2", "s[6:7]"),
        ("dwordx4", "s[4:7]"),
        ("dwordx8", "s[16:23]"),
        ("dwordx16", "s[16:31]"),
    ] {
        for offset in ["0x0", "0xffffc", "s3", "m0", "0x10 glc"] {
            body += &format!("s_buffer_load_{name} {registers}, s[8:11], {offset}\n");
        }
    }
    for target in TARGETS {
        let image = compile::assemble(target, &asm::file("", &[AsmKernel::new("buffers", &body)]));
        let (count, wrong) = compare(&image, target, "buffers");
        assert!(count > 270, "{count}");
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}
