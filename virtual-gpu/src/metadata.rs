//! Metadata of a code object: its target and, per kernel, arguments, LDS and registers.
//!
//! An AMD code object is an ELF file with a MessagePack note. It can be parsed without a device, so launches
//! can be checked before they reach a runtime. Source: LLVM's "User Guide for AMDGPU Backend", sections "ELF
//! Code Object" and "Code Object Metadata".

/// A kernel of a code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Symbol name, as passed to the runtime.
    pub name: String,
    /// Explicit arguments: offset and size in bytes.
    pub arguments: Vec<(u32, u32)>,
    /// Arguments that the runtime fills in: kind ("hidden_block_count_x"), offset and size in bytes.
    pub hidden: Vec<(String, u32, u32)>,
    /// Statically declared LDS in bytes.
    pub lds_bytes: u32,
    /// Scratch per thread in bytes.
    pub scratch_bytes: u32,
    /// Maximum threads of a work-group.
    pub max_threads: u32,
    /// Threads per wavefront.
    pub wave: u32,
    /// Number of vector registers.
    pub vgprs: u32,
    /// Number of scalar registers.
    pub sgprs: u32,
    /// Number of spilled vector registers.
    pub vgpr_spills: u32,
    /// Number of spilled scalar registers.
    pub sgpr_spills: u32,
}

/// The metadata of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The target it was compiled for ("gfx906:xnack-").
    pub target: Option<String>,
    /// ABI version byte of the file: 2 for code object version 4, 3 for 5, 4 for 6.
    pub abi_version: u8,
    /// Its kernels.
    pub kernels: Vec<KernelInfo>,
}

/// Returns true if the bytes begin with the ELF magic.
pub fn is_elf(image: &[u8]) -> bool {
    image.starts_with(b"\x7fELF")
}

/// Parses the metadata of a code object. The error describes the defect of the file.
pub fn read(image: &[u8]) -> Result<Metadata, String> {
    let file = Bytes(image);
    if !is_elf(image) || file.u8(4)? != 2 || file.u8(5)? != 1 {
        return Err("is no 64-bit little-endian ELF file".into());
    }
    if file.u16(18)? != 224 {
        return Err(format!("is for ELF machine {}, not AMDGPU (224)", file.u16(18)?));
    }
    check_extent(&file)?;
    let (headers, size, count) = (file.u64(32)?, usize::from(file.u16(54)?), usize::from(file.u16(56)?));
    for i in 0..count {
        let at = headers.checked_add(i * size).ok_or("broken program headers")?;
        // PT_NOTE
        if file.u32(at)? != 4 {
            continue;
        }
        let (offset, bytes) = (file.u64(at + 8)?, file.u64(at + 32)?);
        if let Some(note) = metadata_note(file.part(offset, bytes)?)? {
            return decode(note, file.u8(8)?);
        }
    }
    Err("holds no AMDGPU metadata".into())
}

/// Returns an error if a header points outside the file; runtimes derive the file's length from the headers.
fn check_extent(file: &Bytes<'_>) -> Result<(), String> {
    let (at, size, count) = (file.u64(32)?, usize::from(file.u16(54)?), usize::from(file.u16(56)?));
    file.part(at, size * count)?;
    for i in 0..count {
        file.part(file.u64(at + i * size + 8)?, file.u64(at + i * size + 32)?)?;
    }
    let (at, size, count) = (file.u64(40)?, usize::from(file.u16(58)?), usize::from(file.u16(60)?));
    file.part(at, size * count)?;
    for i in 0..count {
        // SHT_NOBITS has no bytes in the file.
        if file.u32(at + i * size + 4)? != 8 {
            file.part(file.u64(at + i * size + 24)?, file.u64(at + i * size + 32)?)?;
        }
    }
    Ok(())
}

/// Returns the AMDGPU metadata note of a note segment.
fn metadata_note(notes: &[u8]) -> Result<Option<&[u8]>, String> {
    let notes = Bytes(notes);
    let mut at = 0;
    while at + 12 <= notes.0.len() {
        let (name_bytes, bytes) = (notes.u32(at)? as usize, notes.u32(at + 4)? as usize);
        let name = notes.part(at + 12, name_bytes)?;
        let begin = at + 12 + name_bytes.next_multiple_of(4);
        let contents = notes.part(begin, bytes)?;
        if name == b"AMDGPU\0" && notes.u32(at + 8)? == 32 {
            return Ok(Some(contents));
        }
        at = begin + bytes.next_multiple_of(4);
    }
    Ok(None)
}

fn decode(note: &[u8], abi_version: u8) -> Result<Metadata, String> {
    let root = Reader { bytes: Bytes(note), at: 0 }.value(0)?;
    let target = root.get("amdhsa.target").and_then(Value::text);
    let target = target.map(|t| t.rsplit("--").next().unwrap_or(t).to_string());
    let kernels = root.get("amdhsa.kernels").map(Value::items).unwrap_or_default();
    let kernels = kernels.iter().map(kernel).collect::<Result<_, _>>()?;
    Ok(Metadata { target, abi_version, kernels })
}

fn kernel(value: &Value<'_>) -> Result<KernelInfo, String> {
    let number = |v: &Value<'_>, key: &str| v.get(key).and_then(Value::number).unwrap_or(0);
    let name = value.get(".name").and_then(Value::text).ok_or("holds a kernel without a name")?;
    let arguments = value.get(".args").map(Value::items).unwrap_or_default();
    fn hidden<'a>(a: &Value<'a>) -> Option<&'a str> {
        a.get(".value_kind").and_then(Value::text).filter(|kind| kind.starts_with("hidden_"))
    }
    let range = |a: &Value<'_>| (number(a, ".offset"), number(a, ".size"));
    Ok(KernelInfo {
        name: name.into(),
        arguments: arguments.iter().filter(|a| hidden(a).is_none()).map(range).collect(),
        hidden: arguments
            .iter()
            .filter_map(|a| Some((hidden(a)?.to_string(), range(a).0, range(a).1)))
            .collect(),
        lds_bytes: number(value, ".group_segment_fixed_size"),
        scratch_bytes: number(value, ".private_segment_fixed_size"),
        max_threads: number(value, ".max_flat_workgroup_size"),
        wave: number(value, ".wavefront_size"),
        vgprs: number(value, ".vgpr_count"),
        sgprs: number(value, ".sgpr_count"),
        vgpr_spills: number(value, ".vgpr_spill_count"),
        sgpr_spills: number(value, ".sgpr_spill_count"),
    })
}

/// Bytes with checked reads.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn part(&self, at: usize, bytes: usize) -> Result<&'a [u8], String> {
        let end = at.checked_add(bytes);
        end.and_then(|end| self.0.get(at..end))
            .ok_or_else(|| format!("points at {bytes} bytes at {at}, outside itself"))
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], String> {
        self.part(at, N)?.try_into().map_err(|_| "is too short".to_string())
    }

    fn u8(&self, at: usize) -> Result<u8, String> {
        Ok(self.array::<1>(at)?[0])
    }

    fn u16(&self, at: usize) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.array(at)?))
    }

    fn u32(&self, at: usize) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    fn u64(&self, at: usize) -> Result<usize, String> {
        usize::try_from(u64::from_le_bytes(self.array(at)?)).map_err(|_| "has an absurd size".into())
    }
}

/// A MessagePack value, restricted to the kinds that the metadata uses.
#[derive(Debug, PartialEq)]
enum Value<'a> {
    Number(u64),
    Text(&'a str),
    Items(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    Other,
}

impl<'a> Value<'a> {
    fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(pairs) => pairs.iter().find(|(k, _)| k.text() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }

    fn text(&self) -> Option<&'a str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    fn number(&self) -> Option<u32> {
        if let Value::Number(n) = self { u32::try_from(*n).ok() } else { None }
    }

    fn items(&self) -> &[Value<'a>] {
        if let Value::Items(items) = self { items } else { &[] }
    }
}

struct Reader<'a> {
    bytes: Bytes<'a>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let part = self.bytes.part(self.at, bytes)?;
        self.at += bytes;
        Ok(part)
    }

    /// Reads a big-endian integer.
    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.take(bytes)?.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn text(&mut self, bytes: usize) -> Result<Value<'a>, String> {
        std::str::from_utf8(self.take(bytes)?)
            .map(Value::Text)
            .map_err(|_| "holds text that is not UTF-8".into())
    }

    fn items(&mut self, count: usize, depth: u32) -> Result<Value<'a>, String> {
        // Not preallocated: the count is untrusted.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Items(items))
    }

    fn map(&mut self, count: usize, depth: u32) -> Result<Value<'a>, String> {
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
        }
        Ok(Value::Map(pairs))
    }

    fn skip(&mut self, bytes: usize) -> Result<Value<'a>, String> {
        self.take(bytes).map(|_| Value::Other)
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>, String> {
        if depth > 16 {
            return Err("nests its metadata too deep".into());
        }
        let tag = self.take(1)?[0];
        match tag {
            0x00..=0x7f => Ok(Value::Number(u64::from(tag))),
            0x80..=0x8f => self.map(usize::from(tag & 15), depth),
            0x90..=0x9f => self.items(usize::from(tag & 15), depth),
            0xa0..=0xbf => self.text(usize::from(tag & 31)),
            0xcc..=0xcf => self.number(1 << (tag - 0xcc)).map(Value::Number),
            0xd9..=0xdb => {
                let bytes = self.number(1 << (tag - 0xd9))? as usize;
                self.text(bytes)
            }
            0xdc | 0xdd => {
                let count = self.number(2 << (tag - 0xdc))? as usize;
                self.items(count, depth)
            }
            0xde | 0xdf => {
                let count = self.number(2 << (tag - 0xde))? as usize;
                self.map(count, depth)
            }
            // Binary data, floats and signed integers: not used by the fields parsed here.
            0xc4..=0xc6 => {
                let bytes = self.number(1 << (tag - 0xc4))? as usize;
                self.skip(bytes)
            }
            0xca => self.skip(4),
            0xcb => self.skip(8),
            0xd0..=0xd3 => self.skip(1 << (tag - 0xd0)),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => Ok(Value::Other),
            _ => Err(format!("holds MessagePack of kind {tag:#x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_has_a_limit() {
        let nested = [0x91u8; 64];
        let result = Reader { bytes: Bytes(&nested), at: 0 }.value(0);
        assert!(result.unwrap_err().contains("too deep"));
    }
}
