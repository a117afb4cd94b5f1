//! Code objects of a target, embedded compressed.

use crate::page::{PAGE, whole_pages};
use crate::registers;
use lzma_rust2::LzmaReader;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Code objects of one target in the archive of its generation of processors.
pub(crate) struct Image {
    archive: &'static [u8],
    /// Offset in the uncompressed archive.
    begin: usize,
    /// Sizes in the order of the stems. Each object starts at a page.
    sizes: &'static [usize],
    /// Bytes in the uncompressed archive, for PTX: it is unpacked from relative register numbers.
    ptx: Option<usize>,
    unpacked: OnceLock<Option<&'static [u8]>>,
}

impl Image {
    /// Creates an image for AMD's processors. Unused if nothing is embedded.
    #[allow(dead_code)]
    pub(crate) const fn code(archive: &'static [u8], begin: usize, sizes: &'static [usize]) -> Image {
        Image { archive, begin, sizes, ptx: None, unpacked: OnceLock::new() }
    }

    /// Creates an image for NVIDIA's processors: `bytes` bytes of the uncompressed archive.
    #[allow(dead_code)]
    pub(crate) const fn ptx(
        archive: &'static [u8],
        begin: usize,
        bytes: usize,
        sizes: &'static [usize],
    ) -> Image {
        let mut image = Image::code(archive, begin, sizes);
        image.ptx = Some(bytes);
        image
    }

    /// Returns code object number `i`. The first call unpacks the objects of the target, which takes some
    /// hundredths of a second; they stay in memory, at addresses that any loader accepts.
    pub(crate) fn object(&self, i: usize) -> Option<&'static [u8]> {
        let unpacked = (*self.unpacked.get_or_init(|| self.unpack()))?;
        let begin: usize = self.sizes.get(..i)?.iter().map(|&size| whole_pages(size)).sum();
        unpacked.get(begin..begin + self.sizes.get(i)?)
    }

    /// Unpacks the objects; `None` if memory is insufficient. (The archive is intact: it is part of the
    /// program.)
    fn unpack(&self) -> Option<&'static [u8]> {
        let bytes: usize = self.sizes.iter().map(|&size| whole_pages(size)).sum();
        let mut room = Vec::new();
        room.try_reserve_exact(bytes + PAGE).ok()?;
        room.resize(bytes + PAGE, 0);
        let at = whole_pages(room.as_ptr().addr()) - room.as_ptr().addr();
        self.unpack_to(&mut room[at..at + bytes]).ok()?;
        let room: &'static [u8] = room.leak();
        room.get(at..at + bytes)
    }

    fn unpack_to(&self, mut room: &mut [u8]) -> io::Result<()> {
        let mut reader = LzmaReader::new_mem_limit(self.archive, u32::MAX, None)?;
        io::copy(&mut (&mut reader).take(self.begin as u64), &mut io::sink())?;
        let Some(bytes) = self.ptx else { return reader.read_exact(room) };
        let mut relative = Vec::new();
        reader.take(bytes as u64).read_to_end(&mut relative)?;
        registers::absolute(&relative, &mut room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive;

    /// The library unpacks the same bytes that the build script packs, for two targets, of code and of PTX.
    #[test]
    fn objects_come_back() {
        let ptx =
            |n: u32| format!("add.s32 %r{n}, %r{}, %rd7;\n", n + 300).repeat(n as usize * 5).into_bytes();
        let objects: Vec<Vec<u8>> = (1..=70).step_by(23).map(ptx).collect();
        let images: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
        let sizes: &'static [usize] = images.iter().map(|image| image.len()).collect::<Vec<_>>().leak();
        let mut bytes = Vec::new();
        archive::append(&mut bytes, &images);
        let mut texts = Vec::new();
        archive::append_ptx(&mut texts, &images[1..]).unwrap();
        let begin = texts.len();
        archive::append_ptx(&mut texts, &images).unwrap();
        let packed = archive::text(&texts).unwrap().leak();
        let other = Image::ptx(packed, 0, begin, &sizes[1..]);
        let text = Image::ptx(packed, begin, texts.len() - begin, sizes);
        let begin = bytes.len();
        archive::append(&mut bytes, &images[1..]);
        let packed = archive::code(&bytes).unwrap().leak();
        let first = Image::code(packed, 0, sizes);
        let second = Image::code(packed, begin, &sizes[1..]);
        for (i, &image) in images.iter().enumerate() {
            assert_eq!((text.object(i), first.object(i)), (Some(image), Some(image)), "{i}");
            let next = images.get(i + 1).copied();
            assert_eq!((second.object(i), other.object(i)), (next, next), "{i}");
        }
        assert_eq!(first.object(1).map(|object| object.as_ptr().addr() % PAGE), Some(0));
    }
}
