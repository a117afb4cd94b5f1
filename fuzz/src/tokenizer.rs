//! Vocabularies and texts: encoding terminates, returns existing tokens, and the tokens decode.
#![no_main]

use diptych::Tokenizer;
use diptych::tokenizer::{DecodeOptions, EncodeOptions};
use ggml_core::gguf::{Array, Metadata};
use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    sentence_piece: bool,
    pre: u8,
    name: &'a str,
    tokens: Vec<(&'a str, i8, u8)>,
    merges: Vec<(u8, u8)>,
    bos: i8,
    flags: u8,
    text: &'a [u8],
}

const PRES: [&str; 8] = ["default", "gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-v3", "tekken", "?"];

fuzz_target!(|input: Input<'_>| {
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", if input.sentence_piece { "llama" } else { "gpt2" });
    m.insert("tokenizer.ggml.pre", PRES[usize::from(input.pre) % PRES.len()]);
    m.insert("general.name", input.name);
    let texts: Vec<String> = input.tokens.iter().map(|(text, _, _)| (*text).to_string()).collect();
    let pick = |i: u8| texts.get(usize::from(i)).map_or("a", String::as_str);
    let merges = input.merges.iter().map(|(a, b)| format!("{} {}", pick(*a), pick(*b)));
    let scores: Vec<f32> = input.tokens.iter().map(|(_, score, _)| f32::from(*score)).collect();
    let kinds: Vec<i32> = input.tokens.iter().map(|(_, _, kind)| i32::from(*kind % 8)).collect();
    m.insert("tokenizer.ggml.merges", Array::texts(merges));
    m.insert("tokenizer.ggml.scores", Array::from(&scores[..]));
    m.insert("tokenizer.ggml.token_type", Array::from(&kinds[..]));
    m.insert("tokenizer.ggml.tokens", Array::texts(texts.iter().map(String::as_str)));
    m.insert("tokenizer.ggml.bos_token_id", i32::from(input.bos));
    m.insert("tokenizer.ggml.add_space_prefix", input.flags & 1 != 0);
    let Ok(tokenizer) = Tokenizer::from_metadata(&m) else { return };
    for parse_special in [false, true] {
        let options = EncodeOptions { add_special: input.flags & 2 != 0, parse_special };
        let ids = tokenizer.encode_bytes(input.text, &options);
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.len()));
        let options = DecodeOptions { special: true, continues: true };
        let mut stream = tokenizer.detokenizer_with(&options);
        let text: String = ids.iter().map(|id| stream.push(*id)).collect();
        let whole = tokenizer.decode_bytes(&ids, &options);
        assert_eq!(text + &stream.finish(), String::from_utf8_lossy(&whole));
    }
});
