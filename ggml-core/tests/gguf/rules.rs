//! Files that break one rule of the format each.

use super::{Raw, exercise};
use ggml_core::DType;
use ggml_core::gguf::Kind;

#[test]
fn magic_and_version_are_checked() {
    let magic = r#""GGUF", as in every GGUF file"#;
    Raw(b"GGML\x03\0\0\0".to_vec()).refused("first bytes", r#""GGML""#, magic);
    Raw(b"\x1b]0;\x03\0\0\0".to_vec()).refused("first bytes", r#""\x1b]0;""#, magic);
    Raw::header(1, 0, 0).refused("GGUF version", "1", "2 or 3: convert the model again");
    Raw::header(3u32.swap_bytes(), 0, 0).refused("GGUF version", "3, big-endian", "2 or 3, little-endian");
    for version in [0, 4, u32::MAX] {
        Raw::header(version, 0, 0).refused("GGUF version", &version.to_string(), "2 or 3");
    }
    for version in [2, 3] {
        let file = Raw::header(version, 0, 0).open().unwrap();
        assert_eq!((file.parts()[0].version(), file.tensors().len()), (version, 0));
    }
}

#[test]
fn counts_and_lengths_are_compared_with_the_file() {
    let none = |left| format!("at most 0, as many as the {left} bytes left can hold");
    let left = |left| format!("at most the {left} bytes left");
    Raw::header(3, 1, 0).refused("tensor count", "1", &none(8));
    Raw::header(3, 0, 1).refused("metadata count", "1", &none(0));
    for n in [1 << 20, 1 << 32, 1 << 60, 1 << 63, u64::MAX] {
        let (count, bytes) = (n.to_string(), format!("{n} bytes"));
        Raw::header(3, n, 0).refused("tensor count", &count, &none(8));
        Raw::header(3, 0, n).refused("metadata count", &count, &none(0));
        Raw::header(3, 0, 1).u64(n).data(9).refused("metadata pair 0: key", &bytes, &left(9));
        let value = r#"metadata pair 0: key "k": "#;
        let text = Raw::header(3, 0, 1).pair("k", Kind::Str).u64(n).bytes(b"x");
        text.refused(&format!("{value}str"), &bytes, &left(1));
        for kind in Kind::ALL {
            let array = Raw::header(3, 0, 1).pair("k", Kind::Array).u32(kind as u32).u64(n);
            array.refused(&format!("{value}array length"), &count, &none(0));
        }
        // A count that fits into the bytes, of strings of which one runs past the end.
        let texts =
            Raw::header(3, 0, 1).pair("k", Kind::Array).u32(Kind::Str as u32).u64(1).u64(n).bytes(b"x");
        texts.refused(&format!("{value}text in array"), &bytes, &left(1));
        Raw::header(3, 1, 0).u64(n).bytes(&[0; 24]).refused("tensor 0: name", &bytes, &left(24));
    }
}

#[test]
fn metadata_rules_are_kept() {
    let value = r#"metadata pair 0: key "k": "#;
    for kind in [13, 99, u32::MAX] {
        let file = Raw::header(3, 0, 1).text("k").u32(kind).u64(0).u64(0);
        file.refused(&format!("{value}kind"), &kind.to_string(), "0 to 12");
    }
    let twice = Raw::header(3, 0, 2).pair("k", Kind::U32).u32(1).pair("k", Kind::U32).u32(1);
    twice.refused(r#"metadata pair 1: key "k""#, "there twice", "");
    let truth = Raw::header(3, 0, 1).pair("k", Kind::Bool).bytes(&[2]);
    truth.refused(&format!("{value}bool"), "2", "0 or 1");
    let truths = Raw::header(3, 0, 1).pair("k", Kind::Array).u32(Kind::Bool as u32).u64(2).bytes(&[1, 3]);
    truths.refused(&format!("{value}bool in array"), "3", "0 or 1");
    let key = |text: &str| Raw::header(3, 0, 1).pair(text, Kind::U32).u32(1);
    key("").refused("metadata pair 0: key", "0 bytes", "1 to 65535 bytes");
    key(&"k".repeat(65_536)).refused("metadata pair 0: key", "65536 bytes", "1 to 65535 bytes");
    let no_utf8 = Raw::header(3, 0, 1).u64(1).bytes(&[0xff]).u32(4).u32(1);
    no_utf8.refused("metadata pair 0: key", "invalid utf-8 sequence of 1 bytes from index 0", "UTF-8");
    let mut deep = Raw::header(3, 0, 1).pair("k", Kind::Array);
    for _ in 0..10_000 {
        deep = deep.u32(Kind::Array as u32).u64(1);
    }
    deep.u32(0).u64(0).refused(&format!("{value}array"), "level 9", "at most 8 levels");
    // A string that is not UTF-8 is no error of the file.
    let text = Raw::header(3, 0, 1).pair("k", Kind::Str).u64(1).bytes(&[0xff]).open().unwrap();
    assert_eq!(text.metadata().bytes("k").unwrap(), [0xff]);
    assert!(text.metadata().str("k").is_err());
}

#[test]
fn alignment_is_a_power_of_two_from_8() {
    let with =
        |a: u32| Raw::header(3, 1, 1).pair("general.alignment", Kind::U32).u32(a).tensor("w", &[4], 0, 0);
    let key = r#"metadata key "general.alignment""#;
    for a in [0, 1, 3, 4, 24, u32::MAX] {
        with(a).data(64).refused(key, &a.to_string(), "a power of two that is at least 8");
    }
    let found = "16 bytes at offset 0 of the data, which starts at byte 2147483648";
    with(1 << 31).data(64).refused(r#"tensor "w""#, found, "a place within the 160 bytes of the file");
    for a in [8, 16, 32, 64] {
        exercise(&with(a).data(64).open().unwrap());
    }
    let none = Raw::header(3, 0, 1).pair("general.alignment", Kind::U32).u32(1 << 31).open().unwrap();
    assert_eq!((none.parts()[0].alignment(), none.parts()[0].data_start()), (1 << 31, 1 << 31));
    let float = Raw::header(3, 0, 1).pair("general.alignment", Kind::F32).bytes(&32f32.to_le_bytes());
    float.refused(key, "f32 32", "u32");
}

#[test]
fn tensor_rules_are_kept() {
    let one = |shape: &[u64], dtype: u32, offset: u64| {
        Raw::header(3, 1, 0).tensor("blk.0.w", shape, dtype, offset).data(64)
    };
    let entry = |part: &str| format!("tensor 0: {part}");
    let of = |part: &str| entry(&format!("\"blk.0.w\": {part}"));
    for number in [4, 5, 31, 36, 43, 1 << 31, u32::MAX] {
        one(&[32], number, 0).refused(&of("type"), &number.to_string(), "a type of GGUF files");
    }
    one(&[], 0, 0).refused(&of("shape"), "F32 []", "1 to 4 dimensions");
    one(&[1, 1, 1, 1, 1], 0, 0).refused(&of("number of dimensions"), "5", "1 to 4");
    one(&[1, 0], 0, 0).refused(&of("shape"), "F32 [1, 0]", "no extent of 0");
    let q8 = DType::Q8_0 as u32;
    one(&[33], q8, 0).refused(&of("shape"), "Q8_0 [33]", "rows of whole blocks of 32");
    for (shape, dtype, name) in [
        (&[u64::MAX][..], 0, "F32"),
        (&[1 << 32, 1 << 32], 0, "F32"),
        (&[1 << 20, 1 << 20, 1 << 20, 1 << 4], 24, "I8"),
    ] {
        let found = format!("{name} {shape:?}");
        one(shape, dtype, 0).refused(&of("shape"), &found, "a size that can be addressed");
    }
    let data = |extent: u64, offset: u64| one(&[extent], 0, offset);
    let (tensor, file) = (r#"tensor "blk.0.w""#, "a place within the 128 bytes of the file");
    for (extent, offset) in [(1 << 40, 0), (17, 0), (1, 64), (1, u64::MAX), (1, u64::MAX - 63)] {
        let found = format!("{} bytes at offset {offset} of the data, which starts at byte 64", 4 * extent);
        data(extent, offset).refused(tensor, &found, file);
    }
    data(1, 8).refused(tensor, "offset 8", "a multiple of the alignment 32");
    let dims = Raw::header(3, 1, 0).text("w").u32(u32::MAX).u64(1).u32(0).u64(0).data(64);
    dims.refused(&entry("\"w\": number of dimensions"), "4294967295", "1 to 4");
    let names = |name: &str| Raw::header(3, 1, 0).tensor(name, &[1], 0, 0).data(64);
    names("").refused(&entry("name"), "0 bytes", "1 to 1024 bytes");
    names(&"n".repeat(1025)).refused(&entry("name"), "1025 bytes", "1 to 1024 bytes");
    exercise(&names(&"n".repeat(1024)).open().unwrap());
}

#[test]
fn tensors_keep_apart() {
    let two = |a: &str, ao, b: &str, bo| {
        Raw::header(3, 2, 0).tensor(a, &[16], 0, ao).tensor(b, &[9], 0, bo).data(256)
    };
    two("a", 0, "a", 64).refused(r#"tensor "a""#, "there twice", "");
    let (ab, ba) = (r#"tensors "a" and "b""#, r#"tensors "b" and "a""#);
    two("a", 0, "b", 0).refused(ab, "64 bytes at 96 overlap those at 96", "");
    two("a", 0, "b", 32).refused(ab, "64 bytes at 96 overlap those at 128", "");
    two("a", 32, "b", 0).refused(ba, "36 bytes at 96 overlap those at 128", "");
    two("a", 64, "b", 32).refused(ba, "36 bytes at 128 overlap those at 160", "");
    // Any order and gaps are valid.
    for (a, b) in [(0, 64), (64, 0), (0, 192), (128, 0)] {
        exercise(&two("a", a, "b", b).open().unwrap());
    }
}
