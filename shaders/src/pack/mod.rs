//! How the SPIR-V is packed into the library.
//!
//! Modules differ in the numbers of their ids more than in what they compute. So ids are told apart from what is said with
//! them: a type, constant or variable that an earlier module declares alike is named by the number of that declaration, and
//! an operand that is a result by how many ids ago it first appeared. Alike code of two modules is then the same bytes,
//! which LZMA finds. The ids themselves stand beside, each by its difference from the one before.
//!
//! All numbers are LEB128. There are two streams, *numbers* and *ids*: the length of the first in four bytes, then both.
//! Of each container *numbers* has how many words precede the first module, these words, and the modules. Of a module: how
//! many words it has; after how many words behind the header its entry points, names and decorations begin, and how many
//! words these are; the header but for the magic; the instructions. Entry points, names and decorations come last, when
//! what they speak of is known.
//!
//! Before the first function an instruction begins with 0 if it is spelled out, with 1 if it is spelled out and is from now
//! on the next declaration, with 2 + n if it is declaration n. Spelled out it is opcode, number of operands, operands. An
//! operand that is an id is
//!
//! - 0 if it appears for the first time: the next of *ids* says which it is,
//! - 2 n + 1 if it is declaration n,
//! - 2 n if it is no declaration and the nth last of these to have appeared for the first time.
//!
//! The result of a declaration is left out; the next of *ids* says which it is.
//!
//! What [`grammar`] takes for an id and is none comes back all the same, and costs some bytes.

mod grammar;
mod read;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write;

pub(crate) use grammar::MAGIC;
pub(crate) use read::{Damaged, Summary, unpack};
