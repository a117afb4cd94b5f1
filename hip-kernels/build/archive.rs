//! Code objects of a generation of processors, compressed together: most of their code is the same.

use lzma_rust2::{EncodeMode, LzmaOptions, LzmaWriter, MfType};
use std::io::{self, Write};

#[path = "../src/page.rs"]
mod page;

use page::whole_pages;

/// Part of the name of what [`compress`] makes: to be changed with it.
pub(crate) const METHOD: &str = "lzma 1";

/// Appends code objects, each at the beginning of a page.
pub(crate) fn append(archive: &mut Vec<u8>, objects: &[&[u8]]) {
    for object in objects {
        archive.extend_from_slice(object);
        archive.resize(whole_pages(archive.len()), 0);
    }
}

/// An LZMA file. Instructions are words of four bytes; the dictionary holds a whole generation. This match finder loses
/// a few hundredths against a tree and takes half of the time, which counts where build scripts are not optimised.
pub(crate) fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(6);
    (options.lc, options.lp, options.pb) = (2, 2, 2);
    (options.mode, options.mf, options.depth_limit) = (EncodeMode::Normal, MfType::Hc4, 24);
    options.dict_size = 64 << 20;
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(archive.len() as u64))?;
    writer.write_all(archive)?;
    writer.finish()
}
