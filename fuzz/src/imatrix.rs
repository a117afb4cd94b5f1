//! Importance matrices in both formats: any bytes give a result or an error, and a parsed matrix can be used
//! to encode.
#![no_main]

use diptych::quantize::Importance;
use ggml_core::DType;
use ggml_core::decode::decode;
use ggml_core::encode::encode_weighted;
use libfuzzer_sys::fuzz_target;

/// One type of each family that weights errors by column.
const TYPES: [DType; 8] = [
    DType::Q4_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q4_K,
    DType::IQ4_XS,
    DType::IQ3_XXS,
    DType::IQ2_XS,
    DType::IQ1_M,
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = Importance::from_bytes(bytes.to_vec()) else { return };
    assert!(read.tensors().count() > 0);
    let row: Vec<f32> = (0..256u32).map(|i| (i * 37 % 64) as f32 - 31.5).collect();
    for (i, name) in read.tensors().enumerate() {
        let columns = read.of(name).expect("an entry has its numbers");
        assert!(columns.iter().all(|x| x.is_finite() && *x >= 0.0), "{name}: {columns:?}");
        let columns: Vec<f32> = columns.iter().copied().cycle().take(256).collect();
        if i < 2 {
            for dtype in TYPES {
                let bytes = encode_weighted(dtype, 256, &row, &columns).expect("legal importance");
                let values = decode(dtype, &bytes).expect("a type that has a decoder");
                assert!(values.iter().all(|x| x.is_finite()), "{dtype} {columns:?}: {values:?}");
            }
        }
    }
});
