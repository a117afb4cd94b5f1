//! Packing of the SPIR-V into the library.
//!
//! Modules differ more in their ID values than in their code. So the encoding separates IDs from
//! instructions. A type, constant or variable that an earlier module declares identically is referred to by
//! the number of that declaration. Another operand that is a result is encoded as the number of IDs since its
//! first appearance. Identical code of two modules then has the same bytes, which LZMA finds. The ID values
//! themselves are stored separately, each as the difference from the previous one.
//!
//! All integers are LEB128. There are two streams, *numbers* and *ids*: the length of the first in four
//! bytes, then both. For each container, *numbers* has the number of words before the first module, these
//! words, and the modules. For each module it has: the number of its words; the number of words between the
//! header and its entry points, names and decorations; the number of words of the latter; the header without
//! the magic; the instructions. Entry points, names and decorations come last, when the declarations they
//! refer to are known.
//!
//! Before the first function, an instruction begins with 0 if it is spelled out, with 1 if it is spelled out
//! and becomes the next declaration, with 2 + n if it is declaration n. A spelled-out instruction is its
//! opcode, the number of operands, and the operands. An operand that is an ID is encoded as
//!
//! - 0 at its first appearance: its value is the next one of *ids*,
//! - 2 n + 1 if it is declaration n,
//! - 2 n if it is no declaration: n = 1 is the ID without a declaration that appeared most recently, n = 2
//!   the one before.
//!
//! The result of a declaration is omitted; its value is the next one of *ids*.
//!
//! A word that [`grammar`] treats as an ID although it is none is still restored exactly, and only costs some
//! bytes.

mod grammar;
mod read;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write;

pub(crate) use grammar::MAGIC;
pub(crate) use read::{Damaged, Summary, unpack};
