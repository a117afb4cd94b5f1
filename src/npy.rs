//! Reader and writer of NumPy's array files (format 1.0), F32 only, for exchange with other programs.
//!
//! Source: the NumPy enhancement proposal 1, "A simple file format for NumPy arrays".

use ggml_core::{Error, Result, files};
use std::path::Path;

/// Writes a two-dimensional array, row-major. Fails if `data` does not have `rows * columns` elements.
pub fn write(path: &Path, rows: usize, columns: usize, data: &[f32]) -> Result<()> {
    if rows.checked_mul(columns) != Some(data.len()) {
        let expected = format!("{rows} rows of {columns}");
        return Err(Error::argument("array", format!("{} values", data.len()), expected));
    }
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // Magic, version and length are 10 bytes; the data start at a multiple of 64.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(data));
    files::write_atomically(path, &bytes).map_err(|e| Error::io(path, e))
}

/// Reads a two-dimensional F32 array and returns its rows, columns and row-major values.
pub fn read(path: &Path) -> Result<(usize, usize, Vec<f32>)> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    parse(&bytes).ok_or_else(|| Error::model("array file", "", "two dimensions of '<f4'").with_path(path))
}

fn parse(bytes: &[u8]) -> Option<(usize, usize, Vec<f32>)> {
    let rest = bytes.strip_prefix(b"\x93NUMPY\x01\x00")?;
    let length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]));
    let header = std::str::from_utf8(rest.get(2..2 + length)?).ok()?;
    if !header.contains("'<f4'") || !header.contains("'fortran_order': False") {
        return None;
    }
    let shape = header.split("'shape':").nth(1)?.split('(').nth(1)?.split(')').next()?;
    let mut extents =
        shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse::<usize>().ok());
    let (rows, columns) = (extents.next()??, extents.next()??);
    let data = rest.get(2 + length..)?;
    if extents.next().is_some() || Some(data.len()) != rows.checked_mul(columns)?.checked_mul(4) {
        return None;
    }
    Some((
        rows,
        columns,
        data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let data: Vec<f32> = (0..6).map(|i| i as f32 / 3.0).collect();
        write(&path, 2, 3, &data).unwrap();
        assert_eq!(read(&path).unwrap(), (2, 3, data));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len() - 24) % 64, 0);
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_none());
        }
        assert!(write(&path, 2, 2, &[0.0; 3]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_its_place_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("x.npy"), dir.path().join("target"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write(&path, 1, 1, &[1.0]).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        assert_eq!(read(&path).unwrap(), (1, 1, vec![1.0]));
    }
}
