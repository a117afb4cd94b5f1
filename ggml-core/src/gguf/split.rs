//! Models in several files, named `NAME-00001-of-00003.gguf`.
//!
//! Each part is a GGUF file with the keys `split.no` (part number from 0), `split.count` (number of parts)
//! and `split.tensors.count` (tensors in all parts). The first part holds the metadata of the model.

use super::metadata::Metadata;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub(super) const NO_KEY: &str = "split.no";
pub(super) const COUNT_KEY: &str = "split.count";
pub(super) const TENSORS_KEY: &str = "split.tensors.count";

/// Returns the number of parts of the model according to its metadata; 1 for a model in one file.
pub(super) fn count(metadata: &Metadata) -> Result<usize> {
    Ok(metadata.opt_u16(COUNT_KEY)?.unwrap_or(1).max(1).into())
}

/// Checks the part number and part count in a part's metadata.
pub(super) fn check_part(metadata: &Metadata, number: usize, of: usize) -> Result<()> {
    let (found_number, found_of) = (usize::from(metadata.u16(NO_KEY)?), count(metadata)?);
    if (found_number, found_of) != (number, of) {
        let text = |number: usize, of: usize| format!("part {} of {of}", number + 1);
        return Err(Error::model("part of the model", text(found_number, found_of), text(number, of)));
    }
    Ok(())
}

/// Checks the number of tensors in all parts against the first part's metadata.
pub(super) fn check_tensors(metadata: &Metadata, found: usize) -> Result<()> {
    match metadata.opt_usize(TENSORS_KEY)? {
        Some(expected) if expected != found => {
            Err(Error::model("tensors of all parts", found, format!("{expected}, as {TENSORS_KEY} says")))
        }
        _ => Ok(()),
    }
}

/// Parsed file name of a part.
#[derive(Debug, PartialEq)]
pub(super) struct SplitName {
    folder: PathBuf,
    stem: OsString,
    /// Part number, from 0.
    pub(super) number: usize,
    pub(super) count: usize,
}

impl SplitName {
    /// Parses `NAME-00001-of-00003.gguf`; `None` for every other name. NAME need not be UTF-8.
    pub(super) fn parse(path: &Path) -> Option<SplitName> {
        let (stem, end) = at_end(path.file_name()?, "-00001-of-00001.gguf".len())?;
        let (number, count) = end.strip_prefix('-')?.strip_suffix(".gguf")?.split_once("-of-")?;
        let digits = |text: &str| {
            let all = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            if all { text.parse::<usize>().ok() } else { None }
        };
        let (number, count) = (digits(number)?, digits(count)?);
        let folder = path.parent().unwrap_or(Path::new("")).into();
        let valid = (1..=count).contains(&number);
        valid.then(|| SplitName { folder, stem, number: number - 1, count })
    }

    /// Returns the file of a part, counted from 0.
    pub(super) fn path(&self, number: usize) -> PathBuf {
        let mut name = self.stem.clone();
        name.push(format!("-{:05}-of-{:05}.gguf", number + 1, self.count));
        self.folder.join(name)
    }
}

/// Divides a name before its last `bytes` bytes, which must be text; `None` if it is shorter. A name of bytes
/// that are no text can be divided on Unix only.
fn at_end(name: &OsStr, bytes: usize) -> Option<(OsString, &str)> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let (stem, end) = name.as_bytes().split_at_checked(name.len().checked_sub(bytes)?)?;
        Some((OsStr::from_bytes(stem).into(), std::str::from_utf8(end).ok()?))
    }
    #[cfg(not(unix))]
    {
        let (stem, end) = name.to_str()?.split_at_checked(name.len().checked_sub(bytes)?)?;
        Some((stem.into(), end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_made() {
        let path = Path::new("/models/big-of-all-00002-of-00003.gguf");
        let name = SplitName::parse(path).unwrap();
        assert_eq!((name.stem.as_os_str(), name.number, name.count), ("big-of-all".as_ref(), 1, 3));
        assert_eq!(name.path(1), path);
        assert_eq!(name.path(2), Path::new("/models/big-of-all-00003-of-00003.gguf"));
        assert_eq!(
            SplitName::parse(Path::new("a-00001-of-00001.gguf")).unwrap().path(0).parent(),
            Some("".as_ref())
        );
        for other in [
            "model.gguf",
            "a-00000-of-00003.gguf",
            "a-00004-of-00003.gguf",
            "a-0001-of-0003.gguf",
            "a-00001-of-00003.bin",
            "a-+0001-of-00003.gguf",
            "00001-of-00003.gguf",
            "",
        ] {
            assert_eq!(SplitName::parse(Path::new(other)), None, "{other}");
        }
    }
}
