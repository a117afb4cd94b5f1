//! Code objects: reads the ELF file into an image, kernels and relocations.
//!
//! Source: LLVM, "User Guide for AMDGPU Backend", "Code Object" and "Kernel Descriptor" (code object versions
//! 3 to 5).

use crate::fault::FaultKind;
use crate::isa::Target;
use crate::isa::decode::decode;
use crate::isa::inst::Inst;
use crate::metadata::{self, KernelInfo};
use object::elf::{EM_AMDGPU, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use std::sync::OnceLock;

/// Base address of scratch buffers; only offsets from it matter.
pub(crate) const SCRATCH_BASE: u64 = 0x3000_0000_0000;

/// A kernel's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) lds_bytes: u32,
    pub(crate) scratch_bytes: u32,
    pub(crate) argument_bytes: u32,
    /// Address of the first instruction, relative to the loaded object.
    pub(crate) entry: u64,
    pub(crate) vgprs: usize,
    pub(crate) mode: u32,
    pub(crate) user_sgprs: u32,
    /// `COMPUTE_PGM_RSRC2`: enables scratch, work-group ids, work-item ids.
    pub(crate) rsrc2: u32,
    /// Kernel code properties: which values the first scalar registers hold.
    pub(crate) properties: u32,
}

/// Words of the executable segment, decoded on first use.
pub(crate) struct Text {
    /// Address of the first word, relative to the loaded object.
    pub(crate) base: u64,
    pub(crate) words: Vec<u32>,
    /// On the heap: most words of a large code object are never executed.
    decoded: Vec<OnceLock<Option<Box<Inst>>>>,
    target: Target,
}

impl Text {
    pub(crate) fn new(base: u64, words: Vec<u32>, target: Target) -> Text {
        let decoded = words.iter().map(|_| OnceLock::new()).collect();
        Text { base, words, decoded, target }
    }

    #[inline(never)]
    fn decode(&self, word: usize) -> Option<Box<Inst>> {
        decode(&self.words[word..self.words.len().min(word + 3)], self.target).map(Box::new)
    }

    /// Returns the instruction that starts at a word.
    #[inline(always)]
    pub(crate) fn at(&self, word: usize) -> Option<&Inst> {
        let slot = self.decoded.get(word)?;
        slot.get_or_init(|| self.decode(word)).as_deref()
    }
}

/// A parsed code object.
pub(crate) struct CodeObject {
    /// The image as loaded: bytes from address 0 on.
    pub(crate) image: Vec<u8>,
    pub(crate) text: Text,
    /// 64-bit words that hold addresses inside the object: offset of the word, and the address if the object
    /// were loaded at 0.
    pub(crate) relocations: Vec<(u64, u64)>,
    /// Name, descriptor and metadata, sorted by name.
    pub(crate) kernels: Vec<(String, Descriptor, Option<KernelInfo>)>,
}

fn invalid(why: impl Into<String>) -> FaultKind {
    FaultKind::InvalidCodeObject(why.into())
}

/// Maximum bytes of a kernel's arguments, and of scratch per lane.
const MOST_ARGUMENTS: u32 = 1 << 20;
const MOST_SCRATCH: u32 = 1 << 20;

/// Maximum bytes by which an image may exceed its file (zero-initialised data).
const LARGEST_BSS: u64 = 64 << 20;

impl CodeObject {
    /// Parses a code object for a target.
    pub(crate) fn read(bytes: &[u8], target: Target) -> Result<CodeObject, FaultKind> {
        let broken = |e: object::Error| invalid(format!("is no ELF file that can be read: {e}"));
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(broken)?;
        let (endian, header) = (file.endian(), file.elf_header());
        if header.e_machine(endian) != EM_AMDGPU {
            return Err(invalid(format!("is for ELF machine {}, not AMDGPU", header.e_machine(endian))));
        }
        let machine = header.e_flags(endian) & 0xff;
        if machine != target.machine() {
            return Err(invalid(format!("is for processor {machine:#x}, not {}", target.name())));
        }
        let (mut image, mut text) = (Vec::new(), None);
        for segment in file.elf_program_headers().iter().filter(|s| s.p_type(endian) == PT_LOAD) {
            let (at, size) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            let end = at
                .checked_add(size)
                .filter(|&end| end <= bytes.len() as u64 + LARGEST_BSS)
                .ok_or_else(|| invalid("is too large"))?;
            let data = segment.data(endian, bytes).map_err(|()| invalid("ends too early"))?;
            if image.len() < end as usize {
                image.resize(end as usize, 0);
            }
            let data = &data[..data.len().min(size as usize)];
            image[at as usize..at as usize + data.len()].copy_from_slice(data);
            if segment.p_flags(endian) & PF_X != 0 {
                text = Some((at, data));
            }
        }
        let (base, data) = text.ok_or_else(|| invalid("has no executable segment"))?;
        let words: Vec<u32> =
            data.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        // Assembly may omit the metadata; the layout of the arguments is then unknown.
        let mut declared = metadata::read(bytes).map(|m| m.kernels).unwrap_or_default();
        let mut kernels = Vec::new();
        for symbol in file.dynamic_symbols() {
            let name = symbol.name().map_err(broken)?;
            if let Some(name) = name.strip_suffix(".kd") {
                let info = declared.iter().position(|k| k.name == name).map(|i| declared.swap_remove(i));
                kernels.push((name.to_string(), Descriptor::read(&image, symbol.address(), name)?, info));
            }
        }
        kernels.sort_by(|a, b| a.0.cmp(&b.0));
        let relocations = relocations(&file, &image)?;
        Ok(CodeObject { image, text: Text::new(base, words, target), relocations, kernels })
    }

    /// Returns the image relocated to a base address.
    pub(crate) fn at(&self, base: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        for &(at, value) in &self.relocations {
            let at = at as usize;
            image[at..at + 8].copy_from_slice(&base.wrapping_add(value).to_le_bytes());
        }
        image
    }
}

/// Returns the dynamic relocations: `R_AMDGPU_RELATIVE64`, and `R_AMDGPU_ABS64` of symbols defined in the
/// object.
fn relocations(file: &ElfFile64<'_>, image: &[u8]) -> Result<Vec<(u64, u64)>, FaultKind> {
    const ABS64: u32 = 3;
    const RELATIVE64: u32 = 13;
    let mut found = Vec::new();
    for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(invalid("has relocations that are none of an ELF file"));
        };
        let symbol = match (r_type, relocation.target()) {
            (RELATIVE64, _) => 0,
            (ABS64, RelocationTarget::Symbol(index)) => {
                let table = file.dynamic_symbol_table().ok_or_else(|| invalid("has no dynamic symbols"))?;
                let symbol = table.symbol_by_index(index).map_err(|e| invalid(format!("is broken: {e}")))?;
                if symbol.is_undefined() {
                    let name = symbol.name().unwrap_or_default();
                    return Err(invalid(format!("needs a symbol that is nowhere: {name}")));
                }
                symbol.address()
            }
            (other, _) => return Err(invalid(format!("has a relocation of type {other}"))),
        };
        if at.checked_add(8).is_none_or(|end| end > image.len() as u64) {
            return Err(invalid(format!("has a relocation at {at:#x}, outside itself")));
        }
        found.push((at, symbol.wrapping_add(relocation.addend() as u64)));
    }
    Ok(found)
}

impl Descriptor {
    fn read(image: &[u8], at: u64, name: &str) -> Result<Descriptor, FaultKind> {
        let bytes = usize::try_from(at).ok().and_then(|at| image.get(at..at.checked_add(64)?));
        let bytes = bytes.ok_or_else(|| invalid(format!("has no descriptor of {name}")))?;
        let u32_at = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (rsrc1, rsrc2) = (u32_at(48), u32_at(52));
        let offset = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
        let properties = u32_at(56) & 0xffff;
        if properties & 1 << 10 != 0 {
            return Err(invalid(format!("has a kernel for wavefronts of 32, {name}")));
        }
        if u32_at(56) >> 16 != 0 {
            return Err(invalid(format!("has a kernel with preloaded arguments, {name}")));
        }
        if u32_at(8) > MOST_ARGUMENTS || u32_at(4) > MOST_SCRATCH {
            return Err(invalid(format!("has a kernel of absurd size, {name}")));
        }
        Ok(Descriptor {
            scratch_bytes: u32_at(4),
            argument_bytes: u32_at(8),
            entry: at.wrapping_add(offset),
            properties,
            ..Descriptor::bare(rsrc1, rsrc2, u32_at(0))
        })
    }

    /// Returns the descriptor given by the two registers that a command processor sets before it starts a
    /// program. The program starts at its first word.
    pub(crate) fn bare(rsrc1: u32, rsrc2: u32, lds_bytes: u32) -> Descriptor {
        Descriptor {
            lds_bytes,
            scratch_bytes: 0,
            argument_bytes: 0,
            entry: 0,
            vgprs: ((rsrc1 & 63) as usize + 1) * 4,
            // Rounding and denormals, DX10_CLAMP, IEEE_MODE: laid out as in the MODE register.
            mode: rsrc1 >> 12 & 0xff | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9,
            user_sgprs: rsrc2 >> 1 & 31,
            rsrc2,
            properties: 0,
        }
    }

    /// Returns the user SGPRs that the properties request.
    pub(crate) fn user_sgprs(&self, packet: u64, arguments: u64, scratch_bytes: u32) -> Vec<u32> {
        let words = |address: u64| [address as u32, (address >> 32) as u32];
        let [low, high] = words(SCRATCH_BASE);
        let resource = [low, high | 1 << 31, u32::MAX, 0x00e0_0000 | 1 << 23];
        let values: [&[u32]; 7] =
            [&resource, &words(packet), &words(0), &words(arguments), &words(0), &words(0), &[scratch_bytes]];
        let wanted = values.iter().enumerate().filter(|(bit, _)| self.properties >> bit & 1 != 0);
        wanted.flat_map(|(_, words)| words.iter().copied()).collect()
    }
}
