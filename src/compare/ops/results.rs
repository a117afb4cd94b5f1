//! File of the reference's results, which grows case by case.
//!
//! An entry is the length of the name in bytes (u32), the number of values (u64), the name, the values (f32),
//! all little endian. An unfinished last entry is ignored.

use ggml_core::{Error, Result, files};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Appends the values of a case.
pub(super) fn append(path: &Path, case: &str, values: &[f32]) -> Result<()> {
    let mut entry = Vec::with_capacity(12 + case.len() + 4 * values.len());
    entry.extend_from_slice(&(case.len() as u32).to_le_bytes());
    entry.extend_from_slice(&(values.len() as u64).to_le_bytes());
    entry.extend_from_slice(case.as_bytes());
    values.iter().for_each(|v| entry.extend_from_slice(&v.to_le_bytes()));
    let written = files::open_to_append(path).and_then(|mut file| write_durably(&mut file, &entry));
    written.map_err(|e| Error::io(path, e))
}

/// A file whose contents can be brought to the disk.
trait Durable: Write {
    fn sync(&mut self) -> std::io::Result<()>;
}

impl Durable for File {
    fn sync(&mut self) -> std::io::Result<()> {
        self.sync_data()
    }
}

/// Writes an entry to the disk. The event that announces it follows, and a case after that may stop the machine.
fn write_durably(file: &mut impl Durable, entry: &[u8]) -> std::io::Result<()> {
    file.write_all(entry)?;
    file.sync()
}

/// Creates an empty file.
pub(super) fn create(path: &Path) -> Result<()> {
    files::write_atomically(path, &[]).map_err(|e| Error::io(path, e))
}

/// Reads all values, by name of the case.
pub(super) fn read(path: &Path) -> Result<HashMap<String, Vec<f32>>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let (mut all, mut rest) = (HashMap::new(), bytes.as_slice());
    while let Some((name, values, after)) = entry(rest) {
        all.insert(name, values);
        rest = after;
    }
    Ok(all)
}

/// Parses the first entry and returns it with the remaining bytes.
fn entry(bytes: &[u8]) -> Option<(String, Vec<f32>, &[u8])> {
    let (name_bytes, rest) = bytes.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<8>()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_bytes) as usize)?;
    let value_bytes = usize::try_from(u64::from_le_bytes(*count)).ok()?.checked_mul(4)?;
    let (values, rest) = rest.split_at_checked(value_bytes)?;
    let values = values.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();
    Some((String::from_utf8(name.to_vec()).ok()?, values, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_on_the_disk_when_it_is_announced() {
        struct Recorded(Vec<String>);
        impl Write for Recorded {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(format!("write {}", bytes.len()));
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        impl Durable for Recorded {
            fn sync(&mut self) -> std::io::Result<()> {
                self.0.push("sync".into());
                Ok(())
            }
        }
        let mut file = Recorded(Vec::new());
        write_durably(&mut file, b"entry").unwrap();
        assert_eq!(file.0, ["write 5", "sync"]);
    }

    #[test]
    fn an_unfinished_entry_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        create(&path).unwrap();
        append(&path, "a", &[1.0, f32::NEG_INFINITY]).unwrap();
        append(&path, "b, c", &[]).unwrap();
        append(&path, "d", &[0.5; 100]).unwrap();
        let all = read(&path).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(all["a"], [1.0, f32::NEG_INFINITY]);
        assert_eq!(all["d"], [0.5; 100]);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 1..413 {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let all = read(&path).unwrap();
            assert!(all.len() == 2 && !all.contains_key("d"), "{cut} bytes less");
        }
        assert!(matches!(read(&dir.path().join("nowhere")), Err(Error::Io { .. })));
    }
}
