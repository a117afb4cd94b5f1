//! Code objects of a generation of processors, compressed together because most of their code is equal; also
//! the sources.

use super::page::whole_pages;
use super::registers;
use lzma_rust2::{DICT_SIZE_MAX, DICT_SIZE_MIN, LzmaOptions, LzmaWriter, MfType};
use std::io::{self, Write};

/// Part of the archives' names; must change when [`code`] or [`ptx`] changes its output.
pub(crate) const METHOD: &str = "lzma 3";

/// Appends code objects, each at the start of a page.
pub(crate) fn append(archive: &mut Vec<u8>, objects: &[&[u8]]) {
    for object in objects {
        archive.extend_from_slice(object);
        archive.resize(whole_pages(archive.len()), 0);
    }
}

/// Compresses code of AMD's processors to an LZMA file: instructions are words of four bytes. This match
/// finder compresses a few hundredths less than a tree and takes a third of the time, which matters because
/// build scripts are not optimised.
pub(crate) fn code(archive: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(6);
    (options.lc, options.lp, options.pb) = (2, 2, 2);
    (options.mf, options.depth_limit) = (MfType::Hc4, 24);
    lzma(archive, options)
}

/// Appends PTX of one target with relative register numbers.
pub(crate) fn append_ptx(archive: &mut Vec<u8>, objects: &[&[u8]]) -> io::Result<()> {
    let mut texts = Vec::new();
    append(&mut texts, objects);
    registers::relative(&texts, archive)
}

/// Compresses any text to an LZMA file.
pub(crate) fn text(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(6);
    (options.lc, options.lp, options.pb) = (4, 0, 0);
    options.nice_len = LzmaOptions::NICE_LEN_MAX;
    lzma(text, options)
}

/// Compresses bytes with a dictionary that holds all of them.
fn lzma(bytes: &[u8], mut options: LzmaOptions) -> io::Result<Vec<u8>> {
    options.dict_size = u32::try_from(bytes.len()).unwrap_or(u32::MAX).clamp(DICT_SIZE_MIN, DICT_SIZE_MAX);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    writer.finish()
}
