//! Metadata arrays in their encoded form.
//!
//! A vocabulary has 150,000 strings or more. An array is therefore a window on the file. The length of every
//! element is checked when the file is read; elements are decoded on access.

use super::cursor::{Cursor, as_argument};
use super::kind::Kind;
use crate::error::Result;
use crate::mapped::MappedBytes;

/// Maximum nesting depth of arrays. (Files in use have no nested arrays; each level needs stack.)
const MAX_ARRAY_DEPTH: usize = 8;

/// Array of elements of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    kind: Kind,
    len: usize,
    /// Encoded elements, as in a file.
    bytes: MappedBytes,
}

impl Array {
    /// Builds an array of strings, which may be any bytes.
    pub fn texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Array {
        let mut bytes = Vec::new();
        let mut len = 0;
        for text in texts {
            encode_text(text.as_ref(), &mut bytes);
            len += 1;
        }
        Array { kind: Kind::Str, len, bytes: bytes.into() }
    }

    /// Builds an array of arrays.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if arrays are nested deeper than the reader
    /// accepts (8).
    pub fn nested(arrays: &[Array]) -> Result<Array> {
        let mut bytes = Vec::new();
        for array in arrays {
            array.encode(&mut bytes);
        }
        let array = Array { kind: Kind::Array, len: arrays.len(), bytes: bytes.into() };
        let mut encoded = Vec::new();
        array.encode(&mut encoded);
        read(&mut Cursor::new(&encoded.into()), 1).map_err(as_argument)?;
        Ok(array)
    }

    /// Returns the kind of the elements.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the encoded elements, little-endian as in a file.
    pub fn encoded(&self) -> &MappedBytes {
        &self.bytes
    }

    /// Iterates over the bytes of the strings; `None` if the elements are no strings.
    pub fn as_texts(&self) -> Option<impl Iterator<Item = &[u8]> + '_> {
        if self.kind != Kind::Str {
            return None;
        }
        let mut cursor = Cursor::new(&self.bytes);
        Some((0..self.len).map_while(move |_| cursor.text("text in array").ok()))
    }

    /// Returns the kind and number of the elements ("[str; 32000]").
    pub(super) fn describe(&self) -> String {
        format!("[{}; {}]", self.kind, self.len)
    }

    /// Appends the encoded array, without its own kind.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.kind as u32).to_le_bytes());
        out.extend((self.len as u64).to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }
}

/// Reads an array: element kind, count, elements. Each element is checked; none is copied.
pub(super) fn read(cursor: &mut Cursor<'_>, depth: usize) -> Result<Array> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(cursor.error(
            "array",
            format!("level {depth}"),
            format!("at most {MAX_ARRAY_DEPTH} levels"),
        ));
    }
    let kind = cursor.kind("array element kind")?;
    let len = cursor.count(kind.least_size(), "array length")?;
    let start = cursor.position();
    match kind {
        Kind::Str => {
            for _ in 0..len {
                cursor.text("text in array")?;
            }
        }
        Kind::Array => {
            for _ in 0..len {
                read(cursor, depth + 1)?;
            }
        }
        Kind::Bool => {
            let bytes = cursor.take(len as u64, "array of bool")?;
            if let Some(other) = bytes.iter().find(|b| **b > 1) {
                return Err(cursor.error("bool in array", other, "0 or 1"));
            }
        }
        fixed => {
            let size = len as u64 * fixed.least_size() as u64;
            cursor.take(size, "array")?;
        }
    }
    Ok(Array { kind, len, bytes: cursor.window_from(start)? })
}

/// Appends an encoded string.
pub(super) fn encode_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

macro_rules! number_arrays {
    ($($t:ty => $kind:ident),*) => {
        $(impl From<&[$t]> for Array {
            fn from(elements: &[$t]) -> Array {
                let bytes: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()).collect();
                Array { kind: Kind::$kind, len: elements.len(), bytes: bytes.into() }
            }
        })*
    };
}
number_arrays!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64);

impl From<&[bool]> for Array {
    fn from(elements: &[bool]) -> Array {
        let bytes: Vec<u8> = elements.iter().map(|e| u8::from(*e)).collect();
        Array { kind: Kind::Bool, len: elements.len(), bytes: bytes.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::gguf::Value;

    #[test]
    fn elements_come_back() {
        let numbers = Array::from(&[1i16, -2, 3][..]);
        assert_eq!(numbers.values().collect::<Vec<_>>(), [1i16, -2, 3].map(Value::I16));
        assert_eq!((numbers.kind(), numbers.len(), numbers.encoded().len()), (Kind::I16, 3, 6));
        assert!(numbers.as_texts().is_none());
        let texts = Array::texts(["a", "", "bcd"]);
        assert_eq!(texts.as_texts().unwrap().collect::<Vec<_>>(), [&b"a"[..], b"", b"bcd"]);
        assert_eq!(texts.values().collect::<Vec<_>>(), ["a", "", "bcd"].map(Value::from));
        let bools = Array::from(&[true, false][..]);
        assert_eq!(bools.values().collect::<Vec<_>>(), [Value::Bool(true), Value::Bool(false)]);
        assert!(Array::from(&[] as &[f64]).is_empty());
    }

    #[test]
    fn nesting_has_a_limit() {
        let inner = Array::from(&[7u64][..]);
        let two = Array::nested(&[inner.clone(), Array::texts(["x"])]).unwrap();
        assert_eq!(two.values().collect::<Vec<_>>(), [inner.clone().into(), Array::texts(["x"]).into()]);
        let mut deep = inner;
        for _ in 1..MAX_ARRAY_DEPTH {
            deep = Array::nested(&[deep]).unwrap();
        }
        let error = Array::nested(&[deep]).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { found, .. } if found == "level 9"), "{error}");
    }
}
