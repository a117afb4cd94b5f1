//! The code objects of a target, which are embedded compressed.

use crate::page::{PAGE, whole_pages};
use lzma_rust2::LzmaReader;
use std::io::{self, Read};
use std::sync::OnceLock;

/// The code objects of one target in the archive of its generation of processors.
pub(crate) struct Image {
    archive: &'static [u8],
    /// Where they begin in what the archive holds.
    begin: usize,
    /// Their sizes, in the order of the stems. Each begins at a page.
    sizes: &'static [usize],
    unpacked: OnceLock<Option<&'static [u8]>>,
}

impl Image {
    /// Not used where nothing is embedded.
    #[allow(dead_code)]
    pub(crate) const fn new(archive: &'static [u8], begin: usize, sizes: &'static [usize]) -> Image {
        Image { archive, begin, sizes, unpacked: OnceLock::new() }
    }

    /// Code object number `i`. The first call unpacks those of the target, which takes some hundredths of a second;
    /// they stay in memory, at addresses that any loader accepts.
    pub(crate) fn object(&self, i: usize) -> Option<&'static [u8]> {
        let unpacked = (*self.unpacked.get_or_init(|| self.unpack()))?;
        let begin: usize = self.sizes.get(..i)?.iter().map(|&size| whole_pages(size)).sum();
        unpacked.get(begin..begin + self.sizes.get(i)?)
    }

    /// `None` if there is no memory for it. (The archive is whole: it is part of the program.)
    fn unpack(&self) -> Option<&'static [u8]> {
        let bytes: usize = self.sizes.iter().map(|&size| whole_pages(size)).sum();
        let mut room = Vec::new();
        room.try_reserve_exact(bytes + PAGE).ok()?;
        room.resize(bytes + PAGE, 0);
        let at = whole_pages(room.as_ptr().addr()) - room.as_ptr().addr();
        let mut reader = LzmaReader::new_mem_limit(self.archive, u32::MAX, None).ok()?;
        io::copy(&mut (&mut reader).take(self.begin as u64), &mut io::sink()).ok()?;
        reader.read_exact(&mut room[at..at + bytes]).ok()?;
        let room: &'static [u8] = room.leak();
        room.get(at..at + bytes)
    }
}
