//! From instructions to text, as LLVM's disassembler prints them.
use super::decode::Inst;

/// The instruction at an address.
pub(crate) fn print(inst: &Inst, _address: u64) -> String {
    inst.name().to_string()
}
