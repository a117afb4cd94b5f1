//! Numbers and names of the memory instructions that gfx90a and gfx942 have beyond gfx906.

use crate::isa::op::memory::{Atomic, MemoryRow, Op, atomic, row, to_lds};

/// FLAT, GLOBAL and MUBUF.
pub(in crate::isa) const VECTOR: &[MemoryRow] = &[
    row(0x28, "wbl2", Op::Nothing),
    row(0x29, "invl2", Op::Nothing),
    atomic(0x4d, "atomic_add_f32", Atomic::FloatAdd, 4, false),
    atomic(0x4e, "atomic_pk_add_f16", Atomic::PackedAddF16, 4, false),
    atomic(0x4f, "atomic_add_f64", Atomic::FloatAdd, 8, false),
    atomic(0x50, "atomic_min_f64", Atomic::FloatMin, 8, false),
    atomic(0x51, "atomic_max_f64", Atomic::FloatMax, 8, false),
];

/// FLAT and GLOBAL of gfx942.
pub(in crate::isa) const FLAT_942: &[MemoryRow] = &[
    to_lds(0x26, "load_lds_ubyte", 1, false),
    to_lds(0x27, "load_lds_sbyte", 1, true),
    to_lds(0x28, "load_lds_ushort", 2, false),
    to_lds(0x29, "load_lds_sshort", 2, true),
    to_lds(0x2a, "load_lds_dword", 4, false),
    atomic(0x52, "atomic_pk_add_bf16", Atomic::PackedAddBf16, 4, false),
];

/// MUBUF of gfx942.
pub(in crate::isa) const BUFFER_942: &[MemoryRow] = &[row(0x29, "inv", Op::Nothing)];

/// LDS.
pub(in crate::isa) const DS: &[MemoryRow] = &[
    atomic(0x5c, "ds_add_f64", Atomic::FloatAdd, 8, false),
    atomic(0x7c, "ds_add_rtn_f64", Atomic::FloatAdd, 8, true),
];

/// LDS of gfx942.
pub(in crate::isa) const DS_942: &[MemoryRow] = &[
    atomic(0x17, "ds_pk_add_f16", Atomic::PackedAddF16, 4, false),
    atomic(0x18, "ds_pk_add_bf16", Atomic::PackedAddBf16, 4, false),
    atomic(0xb7, "ds_pk_add_rtn_f16", Atomic::PackedAddF16, 4, true),
    atomic(0xb8, "ds_pk_add_rtn_bf16", Atomic::PackedAddBf16, 4, true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        for table in [VECTOR, FLAT_942, BUFFER_942, DS, DS_942] {
            assert!(table.windows(2).all(|w| w[0].code < w[1].code));
        }
    }
}
