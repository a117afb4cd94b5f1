//! Random blocks and their values from ggml's own decoders, compared bit for bit.

use ggml_core::decode::decode;
use ggml_core::exact::Operand;
use ggml_core::{DType, Shape};

/// Lines with a type, the bytes of a block and the bits of its values, in hexadecimal.
const BLOCKS: &str = include_str!("blocks.txt");

fn hex(text: &str, digits: usize) -> impl Iterator<Item = u32> + '_ {
    let numbers = text.as_bytes().chunks(digits).map(|n| str::from_utf8(n).unwrap());
    numbers.map(|n| u32::from_str_radix(n, 16).unwrap())
}

#[test]
fn blocks_of_few_bits_are_what_ggml_makes_of_them() {
    let mut types = Vec::new();
    for line in BLOCKS.lines().filter(|line| !line.starts_with('#')) {
        let [name, block, values] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let dtype = DType::from_name(name).unwrap();
        let bytes: Vec<u8> = hex(block, 2).map(|byte| byte as u8).collect();
        let want: Vec<u32> = hex(values, 8).collect();
        assert_eq!([bytes.len(), want.len()], [dtype.block_bytes(), dtype.block()], "{name}");
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(decode(dtype, &bytes).unwrap()), want, "{name} on cpu");
        let row = Shape { name: name.into(), dtype, ne: [want.len(), 1, 1, 1], nb: [bytes.len(); 4] };
        let by_reference = Operand::new(&row, 0, &bytes).row([0, 0, 0]).unwrap();
        assert_eq!(bits(by_reference.iter().map(|x| *x as f32).collect()), want, "{name} on reference");
        types.push(dtype);
    }
    types.dedup();
    assert_eq!(types.len(), 12);
}
