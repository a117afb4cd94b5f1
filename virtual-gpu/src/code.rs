//! Code objects: reads the ELF file into an image, kernels and relocations.
//!
//! Source: LLVM, "User Guide for AMDGPU Backend", "Code Object" and "Kernel Descriptor" (code object versions
//! 3 to 5).

use crate::fault::FaultKind;
use crate::instructions::Text;
use crate::isa::{Isa, Target};
use crate::lines::Lines;
use crate::metadata::{self, KernelInfo};
use object::elf::{EM_AMDGPU, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};

/// Property of a kernel: its wavefronts have 32 lanes.
const WAVE32: u32 = 1 << 10;

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
    /// Ordinary vector registers, and accumulation registers.
    pub(crate) vgprs: usize,
    pub(crate) accumulators: usize,
    pub(crate) mode: u32,
    pub(crate) user_sgprs: u32,
    /// `COMPUTE_PGM_RSRC2`: enables scratch, work-group ids, work-item ids.
    pub(crate) rsrc2: u32,
    /// Kernel code properties: which values the first scalar registers hold.
    pub(crate) properties: u32,
    pub(crate) preload: Preload,
}

/// Words of a kernel's arguments that are in scalar registers when it begins, behind the other user SGPRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preload {
    /// Index of the first word.
    pub(crate) first: u32,
    /// Number of words.
    pub(crate) words: u32,
}

/// Bytes of the code before a kernel with preloaded arguments, which hardware that does not preload executes.
const PRELOAD_PROLOGUE: u64 = 256;

/// A parsed code object.
pub(crate) struct CodeObject {
    /// The image as loaded: bytes from address 0 on.
    pub(crate) image: Vec<u8>,
    pub(crate) text: Text,
    /// Source lines, if the file has them.
    pub(crate) lines: Option<Lines>,
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
pub(crate) const MOST_SCRATCH: u32 = 1 << 20;

/// Scratch bytes per lane for a kernel that does not declare its need (recursion).
const DYNAMIC_STACK: u32 = 16 << 10;

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
                kernels.push((
                    name.to_string(),
                    Descriptor::read(&image, symbol.address(), name, target)?,
                    info,
                ));
            }
        }
        kernels.sort_by(|a, b| a.0.cmp(&b.0));
        let relocations = relocations(&file, &image)?;
        let (isa, lines) = (common_isa(&kernels, target)?, Lines::read(&file));
        Ok(CodeObject { image, text: Text::new(base, words, isa), lines, relocations, kernels })
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

/// Returns the instructions that all kernels have: the size of a wavefront decides how some are read.
fn common_isa(
    kernels: &[(String, Descriptor, Option<KernelInfo>)],
    target: Target,
) -> Result<Isa, FaultKind> {
    let mut all = kernels.iter().map(|(_, descriptor, _)| descriptor.isa(target));
    let isa = all.next().unwrap_or(Isa::wave64(target));
    if all.any(|other| other != isa) {
        return Err(invalid("has kernels for wavefronts of 32 and of 64"));
    }
    Ok(isa)
}

impl Descriptor {
    /// Returns the instructions of the kernel on a processor.
    pub(crate) fn isa(&self, target: Target) -> Isa {
        if self.properties & WAVE32 != 0 { Isa::wave32(target) } else { Isa::wave64(target) }
    }

    fn read(image: &[u8], at: u64, name: &str, target: Target) -> Result<Descriptor, FaultKind> {
        let bytes = usize::try_from(at).ok().and_then(|at| image.get(at..at.checked_add(64)?));
        let bytes = bytes.ok_or_else(|| invalid(format!("has no descriptor of {name}")))?;
        let descriptor = Descriptor::parse(bytes, at, target)
            .map_err(|what| invalid(format!("has a kernel {what}, {name}")))?;
        if descriptor.argument_bytes > MOST_ARGUMENTS || descriptor.scratch_bytes > MOST_SCRATCH {
            return Err(invalid(format!("has a kernel of absurd size, {name}")));
        }
        Ok(descriptor)
    }

    /// Parses the 64 bytes of a descriptor at an address, to which its entry is relative.
    ///
    /// # Errors A property of the kernel that no processor of this kind has.
    pub(crate) fn parse(bytes: &[u8], at: u64, target: Target) -> Result<Descriptor, &'static str> {
        let u32_at = |i: usize| bytes[i..i + 4].iter().rev().fold(0, |word, &b| word << 8 | u32::from(b));
        let (rsrc1, rsrc2) = (u32_at(48), u32_at(52));
        let offset = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
        let properties = u32_at(56) & 0xffff;
        if properties & WAVE32 != 0 && !target.traits().wave32 {
            return Err("for wavefronts of 32");
        }
        let isa = if properties & WAVE32 != 0 { Isa::wave32(target) } else { Isa::wave64(target) };
        let preload = Preload { words: u32_at(56) >> 16 & 0x7f, first: u32_at(56) >> 23 };
        if preload != Preload::default() && !target.traits().accumulators {
            return Err("with preloaded arguments");
        }
        let prologue = if preload.words > 0 { PRELOAD_PROLOGUE } else { 0 };
        let mut descriptor = Descriptor {
            scratch_bytes: u32_at(4),
            argument_bytes: u32_at(8),
            entry: at.wrapping_add(offset).wrapping_add(prologue),
            properties,
            preload,
            ..Descriptor::bare(isa, rsrc1, rsrc2, u32_at(0))
        };
        if target.traits().accumulators {
            // COMPUTE_PGM_RSRC3: the accumulation registers begin behind this many ordinary ones.
            let ordinary = 4 * ((u32_at(44) & 63) as usize + 1);
            descriptor.accumulators = descriptor.vgprs.saturating_sub(ordinary);
            descriptor.vgprs = descriptor.vgprs.min(ordinary);
        }
        let own = descriptor.user_sgprs(0, 0, 0, 0).len() as u32;
        if preload.words > 0 && own + preload.words > descriptor.user_sgprs {
            return Err("with more preloaded arguments than registers for them");
        }
        Ok(descriptor)
    }

    /// Returns the descriptor given by the two registers that a command processor sets before it starts a
    /// program. The program starts at its first word.
    pub(crate) fn bare(isa: Isa, rsrc1: u32, rsrc2: u32, lds_bytes: u32) -> Descriptor {
        let most = if isa.target.traits().accumulators { 512 } else { 256 };
        Descriptor {
            lds_bytes,
            scratch_bytes: 0,
            argument_bytes: 0,
            entry: 0,
            vgprs: (((rsrc1 & 63) as usize + 1) * isa.simd_registers().1).min(most),
            accumulators: 0,
            // Rounding and denormals, DX10_CLAMP, IEEE_MODE: laid out as in the MODE register.
            mode: rsrc1 >> 12 & 0xff | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9,
            user_sgprs: rsrc2 >> 1 & 31,
            rsrc2,
            properties: if isa.lanes == 32 { WAVE32 } else { 0 },
            preload: Preload::default(),
        }
    }

    /// Returns the bytes of scratch of a work-item that declares `declared`: those of a kernel with calls that the
    /// compiler does not know are at least [`DYNAMIC_STACK`].
    pub(crate) fn scratch(&self, declared: u32) -> u32 {
        let dynamic = self.properties & 1 << 11 != 0;
        declared.max(if dynamic { DYNAMIC_STACK } else { 0 })
    }

    /// Returns the user SGPRs that the properties request. `packet`, `queue` and `arguments` are addresses.
    pub(crate) fn user_sgprs(&self, packet: u64, queue: u64, arguments: u64, scratch_bytes: u32) -> Vec<u32> {
        let words = |address: u64| [address as u32, (address >> 32) as u32];
        let [low, high] = words(SCRATCH_BASE);
        let resource = [low, high | 1 << 31, u32::MAX, 0x00e0_0000 | 1 << 23];
        // The two zeros: the number of the dispatch, and the wavefront's base of scratch for FLAT.
        let values: [&[u32]; 7] = [
            &resource,
            &words(packet),
            &words(queue),
            &words(arguments),
            &words(0),
            &words(0),
            &[scratch_bytes],
        ];
        let wanted = values.iter().enumerate().filter(|(bit, _)| self.properties >> bit & 1 != 0);
        wanted.flat_map(|(_, words)| words.iter().copied()).collect()
    }
}
