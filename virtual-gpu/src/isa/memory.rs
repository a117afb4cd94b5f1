//! Memory instructions: scalar loads, FLAT, GLOBAL, SCRATCH, buffers and LDS.
//!
//! FLAT, GLOBAL, SCRATCH and MUBUF use the same numbers for the same operations. They share one table; a
//! prefix completes the name ("global_" + "load_dword").

/// Bits of a register that a load fills or a store reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterBits {
    /// The whole register; a shorter value is extended.
    All,
    /// The lower half; a load preserves the upper half.
    Low,
    /// The upper half; a load preserves the lower half.
    High,
}

/// Function of an atomic operation on memory and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Swap,
    CompareSwap,
    Add,
    Sub,
    /// Operand minus memory.
    ReverseSub,
    SignedMin,
    UnsignedMin,
    SignedMax,
    UnsignedMax,
    And,
    Or,
    Xor,
    /// Adds 1; becomes 0 if memory is at or above the operand.
    Inc,
    /// Subtracts 1; becomes the operand if memory is 0 or above the operand.
    Dec,
    /// Clears the bits of the first operand, then sets those of the second.
    MaskedOr,
    FloatAdd,
    FloatMin,
    FloatMax,
    FloatCompareSwap,
    /// LDS only: subtracts the operand, or adds the second operand if memory is below the first.
    Wrap,
}

/// Operation of a memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load {
        bytes: u8,
        signed: bool,
        bits: RegisterBits,
    },
    Store {
        bytes: u8,
        bits: RegisterBits,
    },
    /// 4 or 8 bytes. `returns`: the old value is returned (LDS only; elsewhere a bit of the instruction
    /// decides).
    Atomic {
        op: Atomic,
        bytes: u8,
        returns: bool,
    },
    /// LDS: two values of 4 or 8 bytes at two offsets, in units of one value or of 64 values.
    Load2 {
        bytes: u8,
        stride: u16,
    },
    Store2 {
        bytes: u8,
        stride: u16,
    },
    Exchange2 {
        bytes: u8,
        stride: u16,
    },
    /// Exchange between lanes, through the LDS hardware but not its memory.
    Swizzle,
    Permute,
    BackwardPermute,
    /// Adds (`Append`) or subtracts (`Consume`) the number of active lanes to a counter in LDS.
    Append,
    Consume,
    /// At an address that depends on the lane index.
    LoadByLane,
    StoreByLane,
    Nothing,
    /// Not supported: a fault names it.
    Other,
}

/// A memory instruction: number, name without prefix, operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) op: Op,
}

const fn row(code: u16, name: &'static str, op: Op) -> MemoryRow {
    MemoryRow { code, name, op }
}

const fn load(code: u16, name: &'static str, bytes: u8, signed: bool, bits: RegisterBits) -> MemoryRow {
    row(code, name, Op::Load { bytes, signed, bits })
}

const fn store(code: u16, name: &'static str, bytes: u8, bits: RegisterBits) -> MemoryRow {
    row(code, name, Op::Store { bytes, bits })
}

const fn atomic(code: u16, name: &'static str, op: Atomic, bytes: u8, returns: bool) -> MemoryRow {
    row(code, name, Op::Atomic { op, bytes, returns })
}

/// Returns the row of a number in a sorted table.
pub(crate) fn find(rows: &'static [MemoryRow], code: u16) -> Option<&'static MemoryRow> {
    rows.binary_search_by_key(&code, |row| row.code).ok().map(|i| &rows[i])
}

impl Op {
    /// Returns the number of data registers written to memory.
    pub(crate) fn stored_registers(self) -> usize {
        match self {
            Op::Store { bytes, .. } => usize::from(bytes).div_ceil(4),
            Op::Atomic { op: Atomic::CompareSwap, bytes, .. } => usize::from(bytes) / 2,
            Op::Atomic { bytes, .. } => usize::from(bytes) / 4,
            _ => 0,
        }
    }

    /// Returns the number of data registers read from memory.
    pub(crate) fn loaded_registers(self) -> usize {
        match self {
            Op::Load { bytes, .. } => usize::from(bytes).div_ceil(4),
            Op::Atomic { bytes, .. } => usize::from(bytes) / 4,
            Op::Load2 { bytes, .. } | Op::Exchange2 { bytes, .. } => usize::from(bytes) / 2,
            _ => 1,
        }
    }
}

impl Op {
    /// Returns the number of registers of the result and of the two data operands of a DS instruction.
    pub(crate) fn lds_registers(self) -> (usize, [usize; 2]) {
        match self {
            Op::Load { .. } | Op::Load2 { .. } => (self.loaded_registers(), [0, 0]),
            Op::Store { bytes, .. } => (0, [usize::from(bytes).div_ceil(4), 0]),
            Op::Store2 { bytes, .. } => (0, [usize::from(bytes) / 4; 2]),
            Op::Exchange2 { bytes, .. } => (self.loaded_registers(), [usize::from(bytes) / 4; 2]),
            Op::Atomic { op, bytes, returns } => {
                let n = usize::from(bytes) / 4;
                let two = matches!(
                    op,
                    Atomic::CompareSwap | Atomic::FloatCompareSwap | Atomic::MaskedOr | Atomic::Wrap
                );
                (if returns { n } else { 0 }, [n, if two { n } else { 0 }])
            }
            Op::Swizzle | Op::Append | Op::Consume | Op::LoadByLane => (1, [0, 0]),
            Op::Permute | Op::BackwardPermute => (1, [1, 0]),
            Op::StoreByLane => (0, [1, 0]),
            Op::Other => (2, [2, 0]),
            Op::Nothing => (0, [0, 0]),
        }
    }
}

/// FLAT, GLOBAL, SCRATCH and MUBUF. Scratch has no atomics; only MUBUF has the two cache invalidations.
pub(crate) const VECTOR: &[MemoryRow] = &[
    load(0x10, "load_ubyte", 1, false, RegisterBits::All),
    load(0x11, "load_sbyte", 1, true, RegisterBits::All),
    load(0x12, "load_ushort", 2, false, RegisterBits::All),
    load(0x13, "load_sshort", 2, true, RegisterBits::All),
    load(0x14, "load_dword", 4, false, RegisterBits::All),
    load(0x15, "load_dwordx2", 8, false, RegisterBits::All),
    load(0x16, "load_dwordx3", 12, false, RegisterBits::All),
    load(0x17, "load_dwordx4", 16, false, RegisterBits::All),
    store(0x18, "store_byte", 1, RegisterBits::All),
    store(0x19, "store_byte_d16_hi", 1, RegisterBits::High),
    store(0x1a, "store_short", 2, RegisterBits::All),
    store(0x1b, "store_short_d16_hi", 2, RegisterBits::High),
    store(0x1c, "store_dword", 4, RegisterBits::All),
    store(0x1d, "store_dwordx2", 8, RegisterBits::All),
    store(0x1e, "store_dwordx3", 12, RegisterBits::All),
    store(0x1f, "store_dwordx4", 16, RegisterBits::All),
    load(0x20, "load_ubyte_d16", 1, false, RegisterBits::Low),
    load(0x21, "load_ubyte_d16_hi", 1, false, RegisterBits::High),
    load(0x22, "load_sbyte_d16", 1, true, RegisterBits::Low),
    load(0x23, "load_sbyte_d16_hi", 1, true, RegisterBits::High),
    load(0x24, "load_short_d16", 2, false, RegisterBits::Low),
    load(0x25, "load_short_d16_hi", 2, false, RegisterBits::High),
    row(0x3e, "wbinvl1", Op::Nothing),
    row(0x3f, "wbinvl1_vol", Op::Nothing),
    atomic(0x40, "atomic_swap", Atomic::Swap, 4, false),
    atomic(0x41, "atomic_cmpswap", Atomic::CompareSwap, 4, false),
    atomic(0x42, "atomic_add", Atomic::Add, 4, false),
    atomic(0x43, "atomic_sub", Atomic::Sub, 4, false),
    atomic(0x44, "atomic_smin", Atomic::SignedMin, 4, false),
    atomic(0x45, "atomic_umin", Atomic::UnsignedMin, 4, false),
    atomic(0x46, "atomic_smax", Atomic::SignedMax, 4, false),
    atomic(0x47, "atomic_umax", Atomic::UnsignedMax, 4, false),
    atomic(0x48, "atomic_and", Atomic::And, 4, false),
    atomic(0x49, "atomic_or", Atomic::Or, 4, false),
    atomic(0x4a, "atomic_xor", Atomic::Xor, 4, false),
    atomic(0x4b, "atomic_inc", Atomic::Inc, 4, false),
    atomic(0x4c, "atomic_dec", Atomic::Dec, 4, false),
    atomic(0x60, "atomic_swap_x2", Atomic::Swap, 8, false),
    atomic(0x61, "atomic_cmpswap_x2", Atomic::CompareSwap, 8, false),
    atomic(0x62, "atomic_add_x2", Atomic::Add, 8, false),
    atomic(0x63, "atomic_sub_x2", Atomic::Sub, 8, false),
    atomic(0x64, "atomic_smin_x2", Atomic::SignedMin, 8, false),
    atomic(0x65, "atomic_umin_x2", Atomic::UnsignedMin, 8, false),
    atomic(0x66, "atomic_smax_x2", Atomic::SignedMax, 8, false),
    atomic(0x67, "atomic_umax_x2", Atomic::UnsignedMax, 8, false),
    atomic(0x68, "atomic_and_x2", Atomic::And, 8, false),
    atomic(0x69, "atomic_or_x2", Atomic::Or, 8, false),
    atomic(0x6a, "atomic_xor_x2", Atomic::Xor, 8, false),
    atomic(0x6b, "atomic_inc_x2", Atomic::Inc, 8, false),
    atomic(0x6c, "atomic_dec_x2", Atomic::Dec, 8, false),
];

/// LDS instructions, with full names.
pub(crate) const DS: &[MemoryRow] = &[
    atomic(0x00, "ds_add_u32", Atomic::Add, 4, false),
    atomic(0x01, "ds_sub_u32", Atomic::Sub, 4, false),
    atomic(0x02, "ds_rsub_u32", Atomic::ReverseSub, 4, false),
    atomic(0x03, "ds_inc_u32", Atomic::Inc, 4, false),
    atomic(0x04, "ds_dec_u32", Atomic::Dec, 4, false),
    atomic(0x05, "ds_min_i32", Atomic::SignedMin, 4, false),
    atomic(0x06, "ds_max_i32", Atomic::SignedMax, 4, false),
    atomic(0x07, "ds_min_u32", Atomic::UnsignedMin, 4, false),
    atomic(0x08, "ds_max_u32", Atomic::UnsignedMax, 4, false),
    atomic(0x09, "ds_and_b32", Atomic::And, 4, false),
    atomic(0x0a, "ds_or_b32", Atomic::Or, 4, false),
    atomic(0x0b, "ds_xor_b32", Atomic::Xor, 4, false),
    atomic(0x0c, "ds_mskor_b32", Atomic::MaskedOr, 4, false),
    store(0x0d, "ds_write_b32", 4, RegisterBits::All),
    row(0x0e, "ds_write2_b32", Op::Store2 { bytes: 4, stride: 4 }),
    row(0x0f, "ds_write2st64_b32", Op::Store2 { bytes: 4, stride: 256 }),
    atomic(0x10, "ds_cmpst_b32", Atomic::CompareSwap, 4, false),
    atomic(0x11, "ds_cmpst_f32", Atomic::FloatCompareSwap, 4, false),
    atomic(0x12, "ds_min_f32", Atomic::FloatMin, 4, false),
    atomic(0x13, "ds_max_f32", Atomic::FloatMax, 4, false),
    row(0x14, "ds_nop", Op::Nothing),
    atomic(0x15, "ds_add_f32", Atomic::FloatAdd, 4, false),
    row(0x1d, "ds_write_addtid_b32", Op::StoreByLane),
    store(0x1e, "ds_write_b8", 1, RegisterBits::All),
    store(0x1f, "ds_write_b16", 2, RegisterBits::All),
    atomic(0x20, "ds_add_rtn_u32", Atomic::Add, 4, true),
    atomic(0x21, "ds_sub_rtn_u32", Atomic::Sub, 4, true),
    atomic(0x22, "ds_rsub_rtn_u32", Atomic::ReverseSub, 4, true),
    atomic(0x23, "ds_inc_rtn_u32", Atomic::Inc, 4, true),
    atomic(0x24, "ds_dec_rtn_u32", Atomic::Dec, 4, true),
    atomic(0x25, "ds_min_rtn_i32", Atomic::SignedMin, 4, true),
    atomic(0x26, "ds_max_rtn_i32", Atomic::SignedMax, 4, true),
    atomic(0x27, "ds_min_rtn_u32", Atomic::UnsignedMin, 4, true),
    atomic(0x28, "ds_max_rtn_u32", Atomic::UnsignedMax, 4, true),
    atomic(0x29, "ds_and_rtn_b32", Atomic::And, 4, true),
    atomic(0x2a, "ds_or_rtn_b32", Atomic::Or, 4, true),
    atomic(0x2b, "ds_xor_rtn_b32", Atomic::Xor, 4, true),
    atomic(0x2c, "ds_mskor_rtn_b32", Atomic::MaskedOr, 4, true),
    atomic(0x2d, "ds_wrxchg_rtn_b32", Atomic::Swap, 4, true),
    row(0x2e, "ds_wrxchg2_rtn_b32", Op::Exchange2 { bytes: 4, stride: 4 }),
    row(0x2f, "ds_wrxchg2st64_rtn_b32", Op::Exchange2 { bytes: 4, stride: 256 }),
    atomic(0x30, "ds_cmpst_rtn_b32", Atomic::CompareSwap, 4, true),
    atomic(0x31, "ds_cmpst_rtn_f32", Atomic::FloatCompareSwap, 4, true),
    atomic(0x32, "ds_min_rtn_f32", Atomic::FloatMin, 4, true),
    atomic(0x33, "ds_max_rtn_f32", Atomic::FloatMax, 4, true),
    atomic(0x34, "ds_wrap_rtn_b32", Atomic::Wrap, 4, true),
    atomic(0x35, "ds_add_rtn_f32", Atomic::FloatAdd, 4, true),
    load(0x36, "ds_read_b32", 4, false, RegisterBits::All),
    row(0x37, "ds_read2_b32", Op::Load2 { bytes: 4, stride: 4 }),
    row(0x38, "ds_read2st64_b32", Op::Load2 { bytes: 4, stride: 256 }),
    load(0x39, "ds_read_i8", 1, true, RegisterBits::All),
    load(0x3a, "ds_read_u8", 1, false, RegisterBits::All),
    load(0x3b, "ds_read_i16", 2, true, RegisterBits::All),
    load(0x3c, "ds_read_u16", 2, false, RegisterBits::All),
    row(0x3d, "ds_swizzle_b32", Op::Swizzle),
    row(0x3e, "ds_permute_b32", Op::Permute),
    row(0x3f, "ds_bpermute_b32", Op::BackwardPermute),
    atomic(0x40, "ds_add_u64", Atomic::Add, 8, false),
    atomic(0x41, "ds_sub_u64", Atomic::Sub, 8, false),
    atomic(0x42, "ds_rsub_u64", Atomic::ReverseSub, 8, false),
    atomic(0x43, "ds_inc_u64", Atomic::Inc, 8, false),
    atomic(0x44, "ds_dec_u64", Atomic::Dec, 8, false),
    atomic(0x45, "ds_min_i64", Atomic::SignedMin, 8, false),
    atomic(0x46, "ds_max_i64", Atomic::SignedMax, 8, false),
    atomic(0x47, "ds_min_u64", Atomic::UnsignedMin, 8, false),
    atomic(0x48, "ds_max_u64", Atomic::UnsignedMax, 8, false),
    atomic(0x49, "ds_and_b64", Atomic::And, 8, false),
    atomic(0x4a, "ds_or_b64", Atomic::Or, 8, false),
    atomic(0x4b, "ds_xor_b64", Atomic::Xor, 8, false),
    atomic(0x4c, "ds_mskor_b64", Atomic::MaskedOr, 8, false),
    store(0x4d, "ds_write_b64", 8, RegisterBits::All),
    row(0x4e, "ds_write2_b64", Op::Store2 { bytes: 8, stride: 8 }),
    row(0x4f, "ds_write2st64_b64", Op::Store2 { bytes: 8, stride: 512 }),
    atomic(0x50, "ds_cmpst_b64", Atomic::CompareSwap, 8, false),
    atomic(0x51, "ds_cmpst_f64", Atomic::FloatCompareSwap, 8, false),
    atomic(0x52, "ds_min_f64", Atomic::FloatMin, 8, false),
    atomic(0x53, "ds_max_f64", Atomic::FloatMax, 8, false),
    store(0x54, "ds_write_b8_d16_hi", 1, RegisterBits::High),
    store(0x55, "ds_write_b16_d16_hi", 2, RegisterBits::High),
    load(0x56, "ds_read_u8_d16", 1, false, RegisterBits::Low),
    load(0x57, "ds_read_u8_d16_hi", 1, false, RegisterBits::High),
    load(0x58, "ds_read_i8_d16", 1, true, RegisterBits::Low),
    load(0x59, "ds_read_i8_d16_hi", 1, true, RegisterBits::High),
    load(0x5a, "ds_read_u16_d16", 2, false, RegisterBits::Low),
    load(0x5b, "ds_read_u16_d16_hi", 2, false, RegisterBits::High),
    atomic(0x60, "ds_add_rtn_u64", Atomic::Add, 8, true),
    atomic(0x61, "ds_sub_rtn_u64", Atomic::Sub, 8, true),
    atomic(0x62, "ds_rsub_rtn_u64", Atomic::ReverseSub, 8, true),
    atomic(0x63, "ds_inc_rtn_u64", Atomic::Inc, 8, true),
    atomic(0x64, "ds_dec_rtn_u64", Atomic::Dec, 8, true),
    atomic(0x65, "ds_min_rtn_i64", Atomic::SignedMin, 8, true),
    atomic(0x66, "ds_max_rtn_i64", Atomic::SignedMax, 8, true),
    atomic(0x67, "ds_min_rtn_u64", Atomic::UnsignedMin, 8, true),
    atomic(0x68, "ds_max_rtn_u64", Atomic::UnsignedMax, 8, true),
    atomic(0x69, "ds_and_rtn_b64", Atomic::And, 8, true),
    atomic(0x6a, "ds_or_rtn_b64", Atomic::Or, 8, true),
    atomic(0x6b, "ds_xor_rtn_b64", Atomic::Xor, 8, true),
    atomic(0x6c, "ds_mskor_rtn_b64", Atomic::MaskedOr, 8, true),
    atomic(0x6d, "ds_wrxchg_rtn_b64", Atomic::Swap, 8, true),
    row(0x6e, "ds_wrxchg2_rtn_b64", Op::Exchange2 { bytes: 8, stride: 8 }),
    row(0x6f, "ds_wrxchg2st64_rtn_b64", Op::Exchange2 { bytes: 8, stride: 512 }),
    atomic(0x70, "ds_cmpst_rtn_b64", Atomic::CompareSwap, 8, true),
    atomic(0x71, "ds_cmpst_rtn_f64", Atomic::FloatCompareSwap, 8, true),
    atomic(0x72, "ds_min_rtn_f64", Atomic::FloatMin, 8, true),
    atomic(0x73, "ds_max_rtn_f64", Atomic::FloatMax, 8, true),
    load(0x76, "ds_read_b64", 8, false, RegisterBits::All),
    row(0x77, "ds_read2_b64", Op::Load2 { bytes: 8, stride: 8 }),
    row(0x78, "ds_read2st64_b64", Op::Load2 { bytes: 8, stride: 512 }),
    row(0x7e, "ds_condxchg32_rtn_b64", Op::Other),
    row(0xb6, "ds_read_addtid_b32", Op::LoadByLane),
    row(0xbd, "ds_consume", Op::Consume),
    row(0xbe, "ds_append", Op::Append),
    store(0xde, "ds_write_b96", 12, RegisterBits::All),
    store(0xdf, "ds_write_b128", 16, RegisterBits::All),
    load(0xfe, "ds_read_b96", 12, false, RegisterBits::All),
    load(0xff, "ds_read_b128", 16, false, RegisterBits::All),
];

/// Scalar memory: number, name, operation, registers, buffer. A buffer's address is four registers.
pub(crate) const SCALAR: &[ScalarRow] = &[
    scalar(0x00, "s_load_dword", ScalarOp::Load, 1, false),
    scalar(0x01, "s_load_dwordx2", ScalarOp::Load, 2, false),
    scalar(0x02, "s_load_dwordx4", ScalarOp::Load, 4, false),
    scalar(0x03, "s_load_dwordx8", ScalarOp::Load, 8, false),
    scalar(0x04, "s_load_dwordx16", ScalarOp::Load, 16, false),
    scalar(0x05, "s_scratch_load_dword", ScalarOp::Other, 1, false),
    scalar(0x06, "s_scratch_load_dwordx2", ScalarOp::Other, 2, false),
    scalar(0x07, "s_scratch_load_dwordx4", ScalarOp::Other, 4, false),
    scalar(0x08, "s_buffer_load_dword", ScalarOp::Load, 1, true),
    scalar(0x09, "s_buffer_load_dwordx2", ScalarOp::Load, 2, true),
    scalar(0x0a, "s_buffer_load_dwordx4", ScalarOp::Load, 4, true),
    scalar(0x0b, "s_buffer_load_dwordx8", ScalarOp::Load, 8, true),
    scalar(0x0c, "s_buffer_load_dwordx16", ScalarOp::Load, 16, true),
    scalar(0x10, "s_store_dword", ScalarOp::Store, 1, false),
    scalar(0x11, "s_store_dwordx2", ScalarOp::Store, 2, false),
    scalar(0x12, "s_store_dwordx4", ScalarOp::Store, 4, false),
    scalar(0x15, "s_scratch_store_dword", ScalarOp::Other, 1, false),
    scalar(0x16, "s_scratch_store_dwordx2", ScalarOp::Other, 2, false),
    scalar(0x17, "s_scratch_store_dwordx4", ScalarOp::Other, 4, false),
    scalar(0x18, "s_buffer_store_dword", ScalarOp::Store, 1, true),
    scalar(0x19, "s_buffer_store_dwordx2", ScalarOp::Store, 2, true),
    scalar(0x1a, "s_buffer_store_dwordx4", ScalarOp::Store, 4, true),
    scalar(0x20, "s_dcache_inv", ScalarOp::Nothing, 0, false),
    scalar(0x21, "s_dcache_wb", ScalarOp::Nothing, 0, false),
    scalar(0x22, "s_dcache_inv_vol", ScalarOp::Nothing, 0, false),
    scalar(0x23, "s_dcache_wb_vol", ScalarOp::Nothing, 0, false),
    scalar(0x24, "s_memtime", ScalarOp::Clock, 2, false),
    scalar(0x25, "s_memrealtime", ScalarOp::Clock, 2, false),
];

/// Operation of a scalar memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarOp {
    Load,
    Store,
    /// Cache operations; caches are not modelled.
    Nothing,
    /// An increasing counter.
    Clock,
    Other,
}

/// A scalar memory instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) op: ScalarOp,
    pub(crate) registers: u8,
    pub(crate) buffer: bool,
}

const fn scalar(code: u16, name: &'static str, op: ScalarOp, registers: u8, buffer: bool) -> ScalarRow {
    ScalarRow { code, name, op, registers, buffer }
}

/// Returns the row of a number.
pub(crate) fn find_scalar(code: u16) -> Option<&'static ScalarRow> {
    SCALAR.binary_search_by_key(&code, |row| row.code).ok().map(|i| &SCALAR[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        for table in [VECTOR, DS] {
            assert!(table.windows(2).all(|w| w[0].code < w[1].code));
        }
        assert!(SCALAR.windows(2).all(|w| w[0].code < w[1].code));
    }
}
