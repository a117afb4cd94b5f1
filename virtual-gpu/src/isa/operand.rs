//! Operand numbers.

pub(crate) const VCC: u16 = 106;
pub(crate) const M0: u16 = 124;
pub(crate) const EXEC: u16 = 126;
/// 0, then 1 to 64, then -1 to -16.
pub(crate) const ZERO: u16 = 128;
pub(crate) const SDWA: u16 = 249;
pub(crate) const DPP: u16 = 250;
pub(crate) const LITERAL: u16 = 255;
/// The first vector register.
pub(crate) const VGPR: u16 = 256;
/// "off": no scalar base.
pub(crate) const OFF: u16 = 127;
