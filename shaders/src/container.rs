//! File format for the SPIR-V modules of all variants of one shader.
//!
//! Everything is a little-endian 32-bit word:
//!
//! | words | meaning |
//! | --- | --- |
//! | 1 | magic `DSPV` |
//! | 1 | format version |
//! | 1 | number of variants `V` |
//! | 1 | number of modules `M` (identical modules are stored once) |
//! | 1 | words of the name table `N` |
//! | 3 `V` | for each variant: byte offset and length of its name in the name table, index of its module |
//! | 2 `M` | for each module: offset from the start of the file and length, in words |
//! | `N` | the names, UTF-8, padded with zeros |
//! | rest | the modules |

use std::collections::HashMap;

const MAGIC: u32 = u32::from_le_bytes(*b"DSPV");
const VERSION: u32 = 1;
const HEADER: usize = 5;

/// The error for a container that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// The first word is not the magic.
    #[error("not a SPIR-V container")]
    Magic,
    /// Another version of the format.
    #[error("SPIR-V container of version {0}; this build reads version {VERSION}")]
    Version(u32),
    /// A table or a module exceeds the file.
    #[error("SPIR-V container: {0} lies outside of its {1} words")]
    Range(&'static str, usize),
    /// A name is not UTF-8 or appears twice.
    #[error("SPIR-V container: the name of variant {0} is damaged or repeated")]
    Name(usize),
}

/// The modules of one shader, borrowed from the words of its file.
#[derive(Clone, Debug)]
pub struct Container<'a> {
    modules: Vec<(String, &'a [u32])>,
    by_name: HashMap<String, usize>,
}

impl<'a> Container<'a> {
    /// Parses the tables of a container; every offset, length and index is checked.
    pub fn parse(words: &'a [u32]) -> Result<Self, ContainerError> {
        let range = |what| ContainerError::Range(what, words.len());
        let slice = |what, start: usize, length: usize| {
            let end = start.checked_add(length).ok_or(range(what))?;
            words.get(start..end).ok_or(range(what))
        };
        let table = |what, start: usize, rows: usize, columns: usize| {
            slice(what, start, rows.checked_mul(columns).ok_or(range(what))?)
        };

        if words.first() != Some(&MAGIC) {
            return Err(ContainerError::Magic);
        }
        let header = slice("the header", 0, HEADER)?;
        if header[1] != VERSION {
            return Err(ContainerError::Version(header[1]));
        }
        let (variant_count, module_count, name_words) =
            (header[2] as usize, header[3] as usize, header[4] as usize);
        let variants = table("the variant table", HEADER, variant_count, 3)?;
        let modules = table("the module table", HEADER + variants.len(), module_count, 2)?;
        let names = slice("the name table", HEADER + variants.len() + modules.len(), name_words)?;
        let names: Vec<u8> = names.iter().flat_map(|word| word.to_le_bytes()).collect();

        let mut result = Self { modules: Vec::new(), by_name: HashMap::new() };
        for (index, row) in variants.chunks_exact(3).enumerate() {
            let (start, length) = (row[0] as usize, row[1] as usize);
            let end = start.checked_add(length).ok_or(range("a name"))?;
            let name = names.get(start..end).ok_or(range("a name"))?;
            let name = std::str::from_utf8(name).map_err(|_| ContainerError::Name(index))?.to_owned();
            let row = (row[2] as usize).checked_mul(2).ok_or(range("a module"))?;
            let (Some(start), Some(length)) = (modules.get(row), modules.get(row + 1)) else {
                return Err(range("a module"));
            };
            let module = slice("a module", *start as usize, *length as usize)?;
            if result.by_name.insert(name.clone(), index).is_some() {
                return Err(ContainerError::Name(index));
            }
            result.modules.push((name, module));
        }
        Ok(result)
    }

    /// Returns the module of a variant.
    pub fn module(&self, variant: &str) -> Option<&'a [u32]> {
        self.by_name.get(variant).map(|&index| self.modules[index].1)
    }

    /// Returns all variants in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &'a [u32])> {
        self.modules.iter().map(|(name, module)| (name.as_str(), *module))
    }
}

/// Returns the bytes of a container with these variants.
///
/// # Panics
///
/// If the modules together exceed the 16 GiB that 32-bit word offsets can address.
pub fn encode<M: AsRef<[u32]>>(variants: &[(String, M)]) -> Vec<u8> {
    let word = |value: usize| u32::try_from(value).expect("a container is smaller than 16 GiB");
    let mut names = Vec::new();
    let mut modules: Vec<&[u32]> = Vec::new();
    let mut known: HashMap<&[u32], usize> = HashMap::new();
    let mut words = vec![MAGIC, VERSION];
    let mut rows = Vec::new();
    for (name, module) in variants {
        let module = module.as_ref();
        let index = *known.entry(module).or_insert_with(|| {
            modules.push(module);
            modules.len() - 1
        });
        rows.extend([word(names.len()), word(name.len()), word(index)]);
        names.extend(name.as_bytes());
    }
    names.resize(names.len().next_multiple_of(4), 0);

    words.extend([word(variants.len()), word(modules.len()), word(names.len() / 4)]);
    words.extend(rows);
    let mut offset = words.len() + 2 * modules.len() + names.len() / 4;
    for module in &modules {
        words.extend([word(offset), word(module.len())]);
        offset += module.len();
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(names);
    bytes.extend(modules.iter().copied().flatten().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Returns the words of a file, or `None` if its length is not a multiple of four bytes.
pub fn words(bytes: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<(String, Vec<u32>)> {
        vec![("f32".into(), vec![1, 2, 3]), ("f16".into(), vec![4]), ("bf16_wide".into(), vec![1, 2, 3])]
    }

    #[test]
    fn variants_survive_the_round_trip_and_equal_modules_are_stored_once() {
        let file = words(&encode(&sample())).unwrap();
        let container = Container::parse(&file).unwrap();
        let read: Vec<(String, Vec<u32>)> =
            container.iter().map(|(n, m)| (n.to_owned(), m.to_vec())).collect();
        assert_eq!(read, sample());
        assert_eq!(container.module("f16"), Some(&[4][..]));
        assert_eq!(container.module("f64"), None);
        assert!(std::ptr::eq(container.module("f32").unwrap(), container.module("bf16_wide").unwrap()));
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let file = words(&encode(&sample())).unwrap();
        assert_eq!(Container::parse(&[]).unwrap_err(), ContainerError::Magic);
        for end in 1..file.len() {
            assert!(Container::parse(&file[..end]).is_err(), "cut to {end} words");
        }
        for index in 0..file.len() {
            for value in [0, 1, 7, u32::MAX / 2, u32::MAX] {
                let mut damaged = file.clone();
                damaged[index] = value;
                let _ = Container::parse(&damaged);
            }
        }
        assert_eq!(words(&[1, 2, 3]), None);
    }
}
