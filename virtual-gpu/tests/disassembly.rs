//! Every instruction of every embedded code object is decoded as llvm-objdump decodes it: mnemonic, operands and
//! modifiers, letter by letter.

mod support;

use support::objdump::compare;
use virtual_gpu::Target;

#[test]
fn embedded_code_objects_decode_as_llvm_objdump_prints_them() {
    let (mut total, mut wrong) = (0, Vec::new());
    for target in Target::ALL {
        let stems = hip_kernels::stems();
        assert!(hip_kernels::targets().contains(&target.name()), "{} is not embedded", target.name());
        for stem in stems {
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
