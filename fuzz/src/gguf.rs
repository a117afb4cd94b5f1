//! GGUF files, and the models and tokenizers in them: any bytes give a result or an error.
#![no_main]

use diptych::Tokenizer;
use diptych::model::ModelFile;
use ggml_core::gguf::GgufFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_bytes(bytes.to_vec()) else { return };
    for (key, value) in file.metadata().iter() {
        let _ = (file.metadata().array_str(key), format!("{value:?}"));
    }
    for tensor in file.tensors() {
        // The data declared in a tensor's header must be present.
        let data = file.data(tensor).expect("a tensor of a file that was read has its bytes");
        let _ = data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    }
    let _ = Tokenizer::from_gguf(&file).map(|t| t.encode("a <|b|> c", &Default::default()));
    let _ = ModelFile::from_gguf(file);
});
