//! Tokenizers from metadata: hand-worked cases, naive implementations compared with the fast ones, and broken
//! files.

use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, Metadata, TensorData, Value};
use diptych::tokenizer::{DecodeOptions, EncodeOptions, TokenKind, Tokenizer};
use diptych::{DType, Error};
use proptest::prelude::*;
use std::collections::HashMap;

const PARSE: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const SPECIAL: DecodeOptions = DecodeOptions { special: true, continues: false };

/// Returns the character for a byte in GPT-2's alphabet, by its definition: printable Latin-1 characters map
/// to themselves, the other bytes, in order, to U+0100 and above.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| (b'!'..=b'~').contains(&b) || (0xA1..=0xAC).contains(&b) || b >= 0xAE;
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !printable(*b)).count() as u32;
    char::from_u32(0x100 + before).unwrap()
}

fn spelled(text: &str) -> String {
    text.bytes().map(byte_char).collect()
}

/// Metadata of a tokenizer, modifiable before parsing.
struct Builder {
    m: Metadata,
    tokens: Vec<String>,
    kinds: Vec<i32>,
    scores: Vec<f32>,
    merges: Vec<String>,
}

impl Builder {
    fn empty(model: &str) -> Builder {
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", model);
        Builder { m, tokens: vec![], kinds: vec![], scores: vec![], merges: vec![] }
    }

    /// Byte-level: the 256 bytes as tokens 0 to 255, then merges, each with the resulting token.
    fn bpe(pre: &str, merges: &[(&str, &str)]) -> Builder {
        let mut b = Builder::empty("gpt2");
        b.m.insert("tokenizer.ggml.pre", pre);
        for byte in 0..=255 {
            b.add(&byte_char(byte).to_string(), 1);
        }
        for (left, right) in merges {
            b.add(&spelled(&format!("{left}{right}")), 1);
            b.merges.push(format!("{} {}", spelled(left), spelled(right)));
        }
        b
    }

    /// SentencePiece: `<unk> <s> </s>`, the 256 bytes as tokens 3 to 258, then pieces with their scores.
    fn spm(pieces: &[(&str, f32)]) -> Builder {
        let mut b = Builder::empty("llama");
        for (text, kind) in [("<unk>", 2), ("<s>", 3), ("</s>", 3)] {
            b.add(text, kind);
        }
        for byte in 0..=255 {
            b.add(&format!("<0x{byte:02X}>"), 6);
        }
        for (text, score) in pieces {
            b.add(text, 1);
            *b.scores.last_mut().unwrap() = *score;
        }
        b
    }

    fn add(&mut self, text: &str, kind: i32) -> u32 {
        self.tokens.push(text.into());
        self.kinds.push(kind);
        self.scores.push(0.0);
        self.tokens.len() as u32 - 1
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Builder {
        self.m.insert(key, value);
        self
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::new();
        for (key, value) in self.m.iter() {
            m.insert(key, value.clone());
        }
        m.insert("tokenizer.ggml.tokens", Array::texts(&self.tokens));
        m.insert("tokenizer.ggml.token_type", Array::from(self.kinds.as_slice()));
        if self.m.str("tokenizer.ggml.model").is_ok_and(|model| model == "llama") {
            m.insert("tokenizer.ggml.scores", Array::from(self.scores.as_slice()));
        } else {
            m.insert("tokenizer.ggml.merges", Array::texts(&self.merges));
        }
        m
    }

    fn build(&self) -> Tokenizer {
        Tokenizer::from_metadata(&self.metadata()).expect("a tokenizer")
    }
}

fn plain(t: &Tokenizer, text: &str) -> Vec<u32> {
    t.encode(text, &EncodeOptions::PLAIN)
}

#[test]
fn byte_pairs_by_hand() {
    let t = Builder::bpe("gpt-2", &[("l", "l"), ("h", "e"), ("he", "ll"), (" ", "w"), ("l", "o")]).build();
    let (ll, hell, space_w) = (256, 258, 259);
    let [e, o, r, l, d] = [b'e', b'o', b'r', b'l', b'd'].map(u32::from);
    assert_eq!(plain(&t, "hello world"), [hell, o, space_w, o, r, l, d]);
    // "l l" has the lower rank and is merged first at any position, from left to right.
    assert_eq!(plain(&t, "lllo"), [ll, 260]);
    assert_eq!(plain(&t, "elllle"), [e, ll, ll, e]);
    assert_eq!(plain(&t, ""), [0; 0]);
    assert_eq!(plain(&t, "é"), [0xC3, 0xA9]);
}

#[test]
fn whole_words_of_llama_3_need_no_merges() {
    let mut b = Builder::bpe("llama-bpe", &[("a", "b")]);
    let word = b.add("abc", 1);
    assert_eq!(plain(&b.build(), "abc"), [word]);
    b.m.insert("tokenizer.ggml.pre", "qwen2");
    assert_eq!(plain(&b.build(), "abc"), [256, u32::from(b'c')]);
}

/// Character merges: spaces are U+2581, no merge crosses a line end, a character without a token becomes its
/// bytes.
#[test]
fn character_pairs_by_hand() {
    let mut b = Builder { m: Builder::empty("gemma4").m, ..Builder::spm(&[]) };
    let [a, _, _, space_a] = ["a", "▁", "\n", "▁a"].map(|text| b.add(text, 1));
    b.merges = vec!["▁ a".into()];
    let t = b.build();
    assert_eq!(plain(&t, "a aé\n"), [a, space_a, 3 + 0xC3, 3 + 0xA9, space_a - 1]);
    assert_eq!(t.decode(&[a, space_a, 3 + 0xC3, 3 + 0xA9]), "a aé");
}

#[test]
fn sentence_piece_by_hand() {
    let b = Builder::spm(&[("▁", -9.0), ("a", -9.0), ("b", -9.0), ("ab", -2.0), ("ba", -1.0), ("▁a", -3.0)]);
    let (space, a, ab, ba, space_a) = (259, 260, 262, 263, 264);
    let t = b.build();
    // "ba" has the best score, then "▁a".
    assert_eq!(plain(&t, "aba"), [space_a, ba]);
    assert_eq!(plain(&t, "ab a"), [space, ab, space_a]);
    assert_eq!(plain(&t, " a"), [space, space_a]);
    // Bytes where no piece matches: é is C3 A9, tokens 3 + byte.
    assert_eq!(plain(&t, "aé"), [space_a, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(t.encode("a", &EncodeOptions::default()), [1, space_a]);
    assert_eq!(plain(&t, ""), [0; 0]);
    let t = b.with("tokenizer.ggml.add_space_prefix", false).with("tokenizer.ggml.add_bos_token", false);
    let t = t.with("tokenizer.ggml.add_eos_token", true).build();
    assert_eq!(t.encode("aba", &EncodeOptions::default()), [a, ba, 2]);
    assert_eq!((t.decode(&[space_a, ba]), t.add_bos(), t.add_eos()), (" aba".into(), false, true));
}

#[test]
fn special_tokens_are_found_where_asked_for() {
    let mut b = Builder::bpe("gpt-2", &[]);
    let start = b.add("<|s|>", 3);
    let longer = b.add("<|s|>!", 3);
    let user = b.add("<u>", 4);
    let t = b.build();
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    assert_eq!(plain(&t, "a<|s|>"), bytes("a<|s|>"));
    assert_eq!(plain(&t, "a<u>b"), [b'a'.into(), user, b'b'.into()]);
    assert_eq!(t.encode("<|s|><|s|>!x<u>", &PARSE), [start, longer, b'x'.into(), user]);
    let ids = [start, b'x'.into(), user];
    assert_eq!(t.decode(&ids), "x<u>");
    assert_eq!(t.decode_bytes(&ids, &SPECIAL), b"<|s|>x<u>");
    assert!(t.is_special(start) && !t.is_special(user) && t.kind(user) == Some(TokenKind::UserDefined));
}

#[test]
fn the_longest_special_token_is_taken_first_wherever_it_stands() {
    let mut b = Builder::bpe("gpt-2", &[]);
    let short = b.add("<ab", 4);
    let long = b.add("b>cd", 4);
    let t = b.build();
    assert_eq!(plain(&t, "<ab>cd"), [b'<'.into(), b'a'.into(), long]);
    assert_eq!(plain(&t, "<ab<ab"), [short, short]);
}

/// Splits the text at each special token in turn, longest first, then the remaining parts at the shorter
/// ones.
fn naive_special(text: &str, tokens: &[(String, u32)]) -> Vec<u32> {
    let Some(((token, id), shorter)) = tokens.split_first() else {
        return text.bytes().map(u32::from).collect();
    };
    let parts: Vec<Vec<u32>> = text.split(token.as_str()).map(|part| naive_special(part, shorter)).collect();
    parts.join(&[*id][..])
}

proptest! {
    #[test]
    fn fast_special_tokens_equal_naive_ones(
        texts in prop::collection::hash_set("[ab]{1,6}", 0..12), text in "[abc]{0,40}"
    ) {
        // A single character would also be a byte token, which is no special token.
        let mut b = Builder::bpe("gpt-2", &[]);
        let added = texts.iter().filter(|t| t.len() > 1).map(|t| (t.clone(), b.add(t, 4)));
        let mut tokens: Vec<(String, u32)> = added.collect();
        tokens.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
        prop_assert_eq!(plain(&b.build(), &text), naive_special(&text, &tokens));
    }
}

/// 4,000 tokens, each a prefix of the next: all of them match at every position of the text.
#[test]
fn nested_special_tokens_cost_no_more_than_others() {
    let mut b = Builder::bpe("gpt-2", &[]);
    let ids: Vec<u32> = (2..=4000).map(|n| b.add(&"a".repeat(n), 4)).collect();
    let t = b.build();
    let text = "a".repeat(1_000_003);
    let ids_of_text = plain(&t, &text);
    assert_eq!((ids_of_text.len(), ids_of_text[0], ids_of_text[250]), (251, ids[3998], ids[1]));
}

#[test]
fn a_space_follows_special_tokens_of_sentence_piece() {
    let t = Builder::spm(&[("▁", -9.0), ("x", -9.0), ("▁x", -1.0)]).build();
    assert_eq!(t.encode("<s>x</s>x", &PARSE), [1, 261, 2, 261]);
    assert_eq!(t.decode_bytes(&[1, 261, 2, 261], &SPECIAL), b"<s> x</s> x");
    assert_eq!(t.decode(&[1, 261]), "x");
}

#[test]
fn special_tokens_of_phi_3_take_white_space_along() {
    let mut b = Builder::spm(&[("x", -1.0)]);
    let user = b.add("<|user|>", 3);
    let b = b.with("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(b.build().encode("<|user|>\n x", &PARSE), [user, 3 + 0x0A, 3 + 0xE2, 3 + 0x96, 3 + 0x81, 259]);
    let b = b.with("general.name", "Phi-3 mini");
    assert_eq!(b.build().encode("<|user|>\n x<|user|> <|user|>", &PARSE), [user, 259, user, user]);
    assert_eq!(b.build().encode("<s> x", &PARSE)[..2], [1, 3 + 0xE2], "not these");
}

#[test]
fn ends_are_known_by_key_and_by_text() {
    let mut b = Builder::bpe("qwen2", &[]);
    let (turn, text, file) = (b.add("<|im_end|>", 3), b.add("<|endoftext|>", 3), b.add("<|file_sep|>", 4));
    let t = b.with("tokenizer.ggml.eos_token_id", 65u32).build();
    assert_eq!(t.ends().collect::<Vec<_>>(), [65, turn, text, file]);
    assert!(t.is_end(turn) && !t.is_end(66) && t.special().eot == Some(turn) && t.special().eos == Some(65));
    // The harmony format: a message ends, the reply continues, and its structure is text.
    let mut b = Builder::bpe("gpt-4o", &[]);
    let [end, back, call, channel] =
        ["<|end|>", "<|return|>", "<|call|>", "<|channel|>"].map(|text| b.add(text, 3));
    let t = b.build();
    assert!(!t.is_end(end) && t.is_end(back) && t.is_end(call));
    assert_eq!(t.decode(&[channel, end, back]), "<|channel|><|end|>");
}

#[test]
fn streams_give_whole_characters() {
    let t = Builder::bpe("gpt-2", &[]).build();
    let mut d = t.detokenizer();
    let steps: Vec<String> = "a€😀".bytes().map(|b| d.push(b.into())).collect();
    assert_eq!(steps, ["a", "", "", "€", "", "", "", "😀"]);
    assert_eq!([d.push(0xF0), d.push(0x9F), d.push(b'x'.into())], ["", "", "\u{FFFD}x"]);
    assert_eq!([d.push(0xFF), d.push(9999), d.push(0xE2)], ["\u{FFFD}", "\u{FFFD}", ""]);
    assert_eq!(d.finish(), "\u{FFFD}");
    // A continuation keeps its first space; a separate text loses it.
    let t = Builder::spm(&[("▁x", -1.0)]).build();
    assert_eq!(t.detokenizer().push(259), " x");
    assert_eq!(t.detokenizer_with(&DecodeOptions::default()).push(259), "x");
}

#[test]
fn spaces_before_punctuation_go_where_the_kind_says_so() {
    let decode = |pre| {
        let t = Builder::bpe(pre, &[]).build();
        t.decode(&plain(&t, "a , b"))
    };
    assert_eq!((decode("llama-bpe"), decode("qwen2")), ("a, b".into(), "a , b".into()));
}

#[test]
fn bytes_that_are_no_text() {
    let t = Builder::bpe("qwen2", &[]).build();
    let replacement = [0xEFu32, 0xBF, 0xBD];
    assert_eq!(t.encode_bytes(b"\xFF", &EncodeOptions::PLAIN), replacement);
    assert_eq!(t.encode_bytes(b"\xC0\xAF", &EncodeOptions::PLAIN), [replacement, replacement].concat());
    assert_eq!(t.encode_bytes(b"\xED\xA0\x80", &EncodeOptions::PLAIN), [0xED, 0xA0, 0x80]);
    let t = Builder::spm(&[]).with("tokenizer.ggml.add_space_prefix", false).build();
    assert_eq!(t.encode_bytes(b"\xFF\xC0", &EncodeOptions::PLAIN), [3 + 0xFF, 3 + 0xC0]);
}

#[test]
fn long_texts_take_linear_time() {
    let pairs: Vec<String> = (0..6).map(|n| ".".repeat(1 << n)).collect();
    let merges: Vec<(&str, &str)> = pairs.iter().map(|p| (p.as_str(), p.as_str())).collect();
    let bpe = Builder::bpe("llama-bpe", &merges).build();
    let pieces: Vec<(&str, f32)> =
        pairs.iter().zip(0u8..).map(|(p, i)| (p.as_str(), -f32::from(i))).collect();
    let spm = Builder::spm(&[&[("▁", -9.0)], &*pieces].concat()).build();
    // One word without a split point: a quadratic algorithm would not finish.
    for (t, text) in
        [&bpe, &spm].into_iter().flat_map(|t| [(t, ".".repeat(1 << 20)), (t, " .".repeat(1 << 19))])
    {
        let back = t.decode(&plain(t, &text));
        assert!(back.replace(' ', "") == text.replace(' ', ""), "{} bytes of {}", back.len(), text.len());
    }
}

/// Returns the error of a tokenizer after a change of its metadata.
fn error(b: &Builder, change: impl FnOnce(&mut Metadata)) -> String {
    let mut m = b.metadata();
    change(&mut m);
    let error = Tokenizer::from_metadata(&m).expect_err("broken metadata");
    assert!(matches!(error, Error::InvalidModel { .. }), "{error:?}");
    error.to_string()
}

fn without(b: &Builder, key: &str) -> String {
    error(b, |m| {
        let mut rest = Metadata::new();
        m.iter().filter(|(k, _)| *k != key).for_each(|(k, v)| drop(rest.insert(k, v.clone())));
        *m = rest;
    })
}

#[test]
fn broken_metadata_is_refused_by_key() {
    let (bpe, spm) = (Builder::bpe("gpt-2", &[("a", "b")]), Builder::spm(&[("a", -1.0)]));
    let names =
        |text: String, key: &str, what: &str| assert!(text.contains(key) && text.contains(what), "{text}");
    for (b, name) in [(&bpe, "model"), (&bpe, "tokens"), (&bpe, "merges"), (&spm, "scores")] {
        let key = format!("tokenizer.ggml.{name}");
        names(without(b, &key), &key, "missing");
        names(error(b, |m| drop(m.insert(key.as_str(), 7u32))), &key, "expected");
    }
    let set = |b: &Builder, name: &str, value: Value, what: &str| {
        let key = format!("tokenizer.ggml.{name}");
        names(error(b, |m| drop(m.insert(key.as_str(), value))), &key, what);
    };
    set(&bpe, "model", "rwkv".into(), "'rwkv'");
    set(&bpe, "pre", "klingon".into(), "'klingon'");
    set(&bpe, "pre", 1u32.into(), "expected");
    set(&bpe, "tokens", Array::texts([""; 0]).into(), "0 tokens");
    set(&spm, "scores", Array::from(&[0.0f32][..]).into(), "1 elements; expected one for each of 260 tokens");
    set(&spm, "scores", Array::from(&[f32::NAN; 260][..]).into(), "element 0");
    set(
        &spm,
        "token_type",
        Array::from(&[1i32][..]).into(),
        "1 elements; expected one for each of 260 tokens",
    );
    set(
        &spm,
        "token_type",
        Array::from(&[77i32; 260][..]).into(),
        "element 0 is 77; expected a kind of token",
    );
    for (merge, what) in [
        ("ab", "no space"),
        ("a zz", "'zz' is not a token"),
        ("b a", "'ba' is not a token"),
        ("", "no space"),
    ] {
        set(&bpe, "merges", Array::texts([merge]).into(), what);
    }
    set(&spm, "bos_token_id", 260u32.into(), "260; expected one of the 260 tokens");
    set(&spm, "eos_token_id", (-2i32).into(), "-2; expected one of");
    set(&spm, "eos_token_id", "2".into(), "expected");
    set(&bpe, "add_bos_token", true.into(), "expected tokenizer.ggml.bos_token_id as well");
    set(&bpe, "add_eos_token", 1u32.into(), "expected");
    // -1 as an unsigned integer means none.
    let t = Builder::spm(&[]).with("tokenizer.ggml.padding_token_id", u32::MAX).build();
    assert_eq!(t.special().padding, None);
}

/// Returns a file with a vocabulary and an embedding of `rows` rows.
fn file(b: &Builder, rows: usize) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.set_all(&b.metadata()).unwrap();
    let data = TensorData::from(vec![0u8; rows * 32 * 4]);
    writer.tensor("token_embd.weight", DType::F32, &[32, rows], data).unwrap();
    writer.to_bytes().unwrap()
}

#[test]
fn the_embedding_has_a_row_for_each_token() {
    let b = Builder::spm(&[("a", -1.0)]);
    let open = |rows| Tokenizer::from_gguf(&GgufFile::from_bytes(file(&b, rows)).unwrap());
    assert_eq!(open(260).unwrap().len(), 260);
    assert_eq!(open(261).unwrap().len(), 260);
    let text = open(259).unwrap_err().to_string();
    assert!(text.contains("tokenizer.ggml.tokens") && text.contains("at most 259, the rows of"), "{text}");
}

/// Merges step by step: the neighbouring pair of the lowest rank, leftmost first.
fn naive_bpe(word: &str, merges: &[(String, String)]) -> Vec<String> {
    let mut parts: Vec<String> = word.chars().map(String::from).collect();
    let rank = |pair: &[String]| merges.iter().position(|(l, r)| *l == pair[0] && *r == pair[1]);
    while let Some((_, at)) =
        (0..parts.len().saturating_sub(1)).filter_map(|i| Some((rank(&parts[i..i + 2])?, i))).min()
    {
        let right = parts.remove(at + 1);
        parts[at] += &right;
    }
    parts
}

/// Joins step by step: the neighbouring pair that forms the piece with the best score, leftmost first.
fn naive_spm(text: &str, scores: &HashMap<String, f32>) -> Vec<String> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let joined = |i: usize| scores.get(&format!("{}{}", parts[i], parts[i + 1]));
        let mut best: Option<(f32, usize)> = None;
        for i in 0..parts.len().saturating_sub(1) {
            if let Some(&score) = joined(i)
                && best.is_none_or(|(b, _)| score > b)
            {
                best = Some((score, i));
            }
        }
        let Some((_, at)) = best else { return parts };
        let right = parts.remove(at + 1);
        parts[at] += &right;
    }
}

/// Returns random merges of existing tokens.
fn random_merges(picks: &[(usize, usize)]) -> Vec<(String, String)> {
    let mut parts: Vec<String> = ["a", "b", "c"].map(String::from).into();
    let mut merges: Vec<(String, String)> = Vec::new();
    for (l, r) in picks {
        let (l, r) = (parts[l % parts.len()].clone(), parts[r % parts.len()].clone());
        let token = format!("{l}{r}");
        if token.len() < 12 && !merges.contains(&(l.clone(), r.clone())) {
            merges.push((l, r));
            parts.push(token);
        }
    }
    merges
}

proptest! {
    #[test]
    fn fast_byte_pairs_equal_naive_ones(
        picks in prop::collection::vec((0usize..40, 0usize..40), 0..25), text in "[abc]{0,40}"
    ) {
        let merges = random_merges(&picks);
        let borrowed: Vec<(&str, &str)> = merges.iter().map(|(l, r)| (l.as_str(), r.as_str())).collect();
        let t = Builder::bpe("gpt-2", &borrowed).build();
        let pieces: Vec<String> = plain(&t, &text).iter().map(|id| t.text(*id).unwrap()).collect();
        prop_assert_eq!(pieces, naive_bpe(&text, &merges));
    }

    #[test]
    fn fast_sentence_pieces_equal_naive_ones(
        pieces in prop::collection::hash_map("[ab▁é]{1,6}", -4i8..0, 0..30), text in "[ab é]{0,40}"
    ) {
        let scores: HashMap<String, f32> = pieces.iter().map(|(p, s)| (p.clone(), f32::from(*s))).collect();
        let listed: Vec<(&str, f32)> = scores.iter().map(|(p, s)| (p.as_str(), *s)).collect();
        let t = Builder::spm(&listed).build();
        let expected: Vec<u32> = naive_spm(&format!(" {text}").replace(' ', "▁"), &scores)
            .iter()
            .filter(|_| !text.is_empty())
            .flat_map(|part| match t.find(part) {
                Some(id) => vec![id],
                None => part.bytes().map(|b| 3 + u32::from(b)).collect(),
            })
            .collect();
        prop_assert_eq!(plain(&t, &text), expected);
    }

    #[test]
    fn texts_come_back(text in any::<String>(), words in "[a-zA-Z0-9 .,'!\n\t<>|/s]{0,60}") {
        let bpe = Builder::bpe("qwen2", &[("t", "h"), ("th", "e"), (" ", "the"), ("\n", "\n")]).build();
        let spm = Builder::spm(&[("▁", -9.0), ("▁the", -2.0), ("th", -1.0), ("▁▁", -3.0)]).build();
        for text in [text.replace('▁', "_"), words] {
            for t in [&bpe, &spm] {
                prop_assert_eq!(t.decode(&plain(t, &text)), &*text);
                let ids = t.encode(&text, &PARSE);
                let mut d = t.detokenizer_with(&SPECIAL);
                let stream = ids.iter().map(|id| d.push(*id)).collect::<String>();
                prop_assert_eq!((stream + &d.finish()).into_bytes(), t.decode_bytes(&ids, &SPECIAL));
            }
        }
    }

    #[test]
    fn any_bytes_and_ids_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..60), ids in prop::collection::vec(0u32..600, 0..40)) {
        for t in [Builder::bpe("gpt-4o", &[("a", "b")]).build(), Builder::spm(&[("ab", -1.0)]).build()] {
            let encoded = t.encode_bytes(&bytes, &EncodeOptions::default());
            prop_assert!(encoded.iter().all(|id| (*id as usize) < t.len()));
            let mut d = t.detokenizer_with(&DecodeOptions { special: true, continues: true });
            let stream: String = ids.iter().map(|id| d.push(*id)).collect();
            let whole = t.decode_bytes(&ids, &DecodeOptions { special: true, continues: true });
            prop_assert_eq!(stream + &d.finish(), String::from_utf8_lossy(&whole));
        }
    }
}
