//! Kinds of metadata values.

/// Kind of a metadata value. The discriminants are the GGUF type numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 32 bits.
    U32 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// IEEE binary32.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// Bytes with a 64-bit length; UTF-8 by the specification, but not always in practice.
    Str = 8,
    /// Elements of one kind with a 64-bit count.
    Array = 9,
    /// Unsigned, 64 bits.
    U64 = 10,
    /// Signed, 64 bits.
    I64 = 11,
    /// IEEE binary64.
    F64 = 12,
}

impl Kind {
    /// All kinds, sorted by GGUF type number.
    pub const ALL: [Kind; 13] = [
        Kind::U8,
        Kind::I8,
        Kind::U16,
        Kind::I16,
        Kind::U32,
        Kind::I32,
        Kind::F32,
        Kind::Bool,
        Kind::Str,
        Kind::Array,
        Kind::U64,
        Kind::I64,
        Kind::F64,
    ];

    /// Returns the kind with a GGUF type number, if there is one.
    pub fn from_gguf(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u32 == number)
    }

    /// Returns the name as GGUF tools print it ("u32", "str", "arr").
    pub fn name(self) -> &'static str {
        match self {
            Kind::U8 => "u8",
            Kind::I8 => "i8",
            Kind::U16 => "u16",
            Kind::I16 => "i16",
            Kind::U32 => "u32",
            Kind::I32 => "i32",
            Kind::F32 => "f32",
            Kind::Bool => "bool",
            Kind::Str => "str",
            Kind::Array => "arr",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
        }
    }

    /// Returns the bytes of one encoded value; `None` if they depend on the value (strings, arrays).
    pub fn size(self) -> Option<usize> {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => Some(1),
            Kind::U16 | Kind::I16 => Some(2),
            Kind::U32 | Kind::I32 | Kind::F32 => Some(4),
            Kind::U64 | Kind::I64 | Kind::F64 => Some(8),
            Kind::Str | Kind::Array => None,
        }
    }

    /// Returns the minimum encoded size of a value in bytes. It bounds a count before the values are read.
    pub(super) fn least_size(self) -> usize {
        match self {
            Kind::Str => 8,
            Kind::Array => 12,
            fixed => fixed.size().unwrap_or(1),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_know_their_numbers() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(Kind::from_gguf(number as u32), Some(kind));
            assert!(kind.least_size() >= 1);
        }
        assert_eq!(Kind::from_gguf(13), None);
        assert_eq!(Kind::from_gguf(u32::MAX), None);
    }
}
