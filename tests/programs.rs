//! The example programs as a user runs them: messages and exit status for a closed pipe, a full disk, or
//! invalid arguments.

use crate::common;

use common::{example, stdout};
use diptych::DType;
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, TensorData};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Writes a small model with `synthesize`.
fn synthesized(dir: &Path, shape: &str) -> PathBuf {
    let path = dir.join(format!("{shape}.gguf"));
    let output = Command::new(example("synthesize")).args(["--shape", shape]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    path
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns each program with arguments that make it print something.
fn programs(model: &Path) -> Vec<(&'static str, Vec<String>)> {
    let model = model.display().to_string();
    let words = |text: &str| text.split(' ').map(|word| word.replace('M', &model)).collect::<Vec<String>>();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md").to_string();
    vec![
        ("generate", words("--model M --prompt sea --predict 2")),
        ("bench", words("--model M --prompt-tokens 2 --predict 0 --repeat 1 --warm-up 0.1")),
        ("perplexity", [words("--model M --chunk 8 --chunks 2 --text"), vec![text]].concat()),
        ("inspect", words("M")),
        ("tokenize", words("--model M --text sea")),
        ("synthesize", words("--shape list")),
        ("quantize", words("M M.out Q4_0")),
    ]
}

#[test]
fn a_reader_that_goes_away_ends_a_program_quietly() {
    let dir = tempfile::tempdir().unwrap();
    for (program, args) in programs(&synthesized(dir.path(), "small-llama")) {
        let mut child = Command::new(example(program))
            .args(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{program}");
    }
}

/// `--draft` uses the predictor of a file, or says that there is none.
#[test]
fn a_file_drafts_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let synthesize = |drafts: &str| {
        let args = ["--shape", "small-qwen35", "--predictor", drafts];
        Command::new(example("synthesize")).args(args).arg(&path).output().unwrap()
    };
    assert!(synthesize("0.01").status.success());
    let generate = |model: &Path, draft: &str| {
        let args = ["--prompt", "sea", "--predict", "40", "--precision", "exact", "--draft", draft];
        let output = Command::new(example("generate")).arg("--model").arg(model).args(args).output().unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let (code, text, notes) = generate(&path, "4");
    assert!(code == Some(0) && notes.contains("drafts accepted"), "{text}{notes}");
    let (_, plain, notes) = generate(&path, "0");
    assert!(text == plain && !notes.contains("drafts"), "{notes}");
    let (code, _, notes) = generate(&synthesized(dir.path(), "small-llama"), "4");
    assert!(code == Some(2) && notes.contains("--draft: no predictor"), "{code:?} {notes}");
    let refused = synthesize("2");
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("a factor from 0 to 1"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (program, args) in programs(&synthesized(dir.path(), "small-llama")) {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = Command::new(example(program)).args(&args).stdout(full).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{program}: {text}");
        assert!(
            text.starts_with("error: standard output: ") && !text.contains("panicked"),
            "{program}: {text}"
        );
    }
}

#[test]
fn wrong_use_is_two_and_what_fails_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let model = synthesized(dir.path(), "small-llama");
    let run = |args: &[&str], variable: Option<(&str, &str)>| {
        let mut command = Command::new(example("generate"));
        let output = command.args(args).arg("--model").arg(&model).envs(variable).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let said = |got: (Option<i32>, String), code: i32, part: &str| {
        assert!(got.0 == Some(code) && got.1.contains(part), "{got:?}");
    };
    said(run(&["--prompt", ""], None), 2, "error: --prompt: \"\"; expected a text");
    said(run(&[], None), 2, "--prompt");
    said(run(&["--prompt", "a", "--backend", "gpu"], None), 2, "backend: 'gpu'; expected one of reference");
    let variable = Some(("DIPTYCH_HIP_RTC", "sometimes"));
    said(run(&["--prompt", "a", "--backend", "hip"], variable), 2, "DIPTYCH_HIP_RTC");
    let missing = Some(("DIPTYCH_HIP_LIBRARY", "/none/libamdhip64.so"));
    said(run(&["--prompt", "a", "--backend", "hip"], missing), 1, "/none/libamdhip64.so");
    let absent = dir.path().join("absent.gguf");
    let output = Command::new(example("inspect")).arg(&absent).output().unwrap();
    said((output.status.code(), stderr(&output)), 2, "absent.gguf");
    let out = dir.path().join("out.gguf");
    let output = Command::new(example("quantize")).args([&model, &out]).arg("IQ2_XS").output().unwrap();
    said((output.status.code(), stderr(&output)), 2, "importance matrix");
    assert!(!out.exists());
    let matrix = ["IQ2_XS", "--imatrix"].map(Path::new).into_iter().chain([model.as_path()]);
    let output = Command::new(example("quantize")).args([&model, &out]).args(matrix).output().unwrap();
    said((output.status.code(), stderr(&output)), 2, "general.type is imatrix");
    assert!(!out.exists());
}

/// With an importance matrix `quantize` writes a two-bit file, and `generate` runs it.
#[test]
fn a_model_of_two_bits_is_made_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let model = synthesized(dir.path(), "small-llama");
    let mut writer = GgufWriter::new();
    writer.set("general.type", "imatrix").unwrap();
    let file = GgufFile::open(&model).unwrap();
    for t in file.tensors().iter().filter(|t| t.name.starts_with("blk.") && t.n_dims == 2) {
        let sums: Vec<u8> = (0..t.ne[0]).flat_map(|i| ((i % 7) as f32).to_le_bytes()).collect();
        let mut put = |end: &str, columns: usize, bytes: Vec<u8>| {
            let data = TensorData::Bytes(bytes.into());
            writer.tensor(format!("{}.{end}", t.name), DType::F32, &[columns, 1], data).unwrap();
        };
        put("in_sum2", t.ne[0], sums);
        put("counts", 1, 3f32.to_le_bytes().to_vec());
    }
    let (matrix, out) = (dir.path().join("imatrix.gguf"), dir.path().join("out.gguf"));
    writer.write_to(&matrix).unwrap();
    let mut command = Command::new(example("quantize"));
    let output = command.args([&model, &out]).args(["IQ2_XXS", "--imatrix"]).arg(&matrix).output().unwrap();
    assert!(output.status.success() && stdout(&output).contains(" of IQ2_XXS"), "{output:?}");
    let mut command = Command::new(example("generate"));
    command.args(["--prompt", "sea", "--predict", "3", "--backend", "cpu", "--model"]).arg(&out);
    let output = command.output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
}

/// Small models of three kinds chat: each line is a turn, and the second one reuses the state of the first.
#[test]
fn a_chat_has_turns() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("template.jinja");
    std::fs::write(&template, "{% for m in messages %}{{ m.content }};{% endfor %}").unwrap();
    for (shape, held) in [("small-llama", true), ("small-qwen3moe", true), ("small-qwen35", false)] {
        let model = synthesized(dir.path(), shape);
        let chat = |extra: &[&str], input: &str| {
            let mut command = Command::new(example("generate"));
            command.arg("--model").arg(&model).args(["--chat", "--predict", "3"]).args(extra);
            let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = streams.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{shape}: {}", stderr(&output));
            stderr(&output).lines().map(str::to_string).collect::<Vec<_>>()
        };
        let summaries = chat(&[], "Hello\nAgain\n");
        assert_eq!(summaries.len(), 2, "{shape}: {summaries:?}");
        assert!(summaries.iter().all(|line| line.contains("; ended by ")), "{shape}: {summaries:?}");
        assert!(summaries[0].starts_with("prompt 27 tokens, "), "{shape}: {summaries:?}");
        // Made-up words are re-encoded as other tokens, so a recurrent model starts over.
        assert_eq!(summaries[1].contains("held already"), held, "{shape}: {summaries:?}");
        let path = template.display().to_string();
        let summaries = chat(&["--template", &path, "--prompt", "Hello", "--system", "S"], "");
        assert!(
            summaries.len() == 1 && summaries[0].starts_with("prompt 8 tokens, "),
            "{shape}: {summaries:?}"
        );
    }
}

/// Runs a chat with a template that only joins messages; returns status, standard output and standard error.
fn joined_chat(folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    chat_with("{% for m in messages %}{{ m.content }};{% endfor %}", folder, args, input)
}

fn chat_with(text: &str, folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let (model, template) = (synthesized(folder, "small-llama"), folder.join("template.jinja"));
    std::fs::write(&template, text).unwrap();
    let mut command = Command::new(example("generate"));
    command.arg("--model").arg(&model).arg("--chat").arg("--template").arg(&template).args(args);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

/// A conversation that is longer than the context goes on with its last turns, and a message that is too long
/// costs only its own answer.
#[test]
fn a_full_context_does_not_end_a_chat() {
    let dir = tempfile::tempdir().unwrap();
    let short = ["--context", "64", "--predict", "6"];
    let long = "b".repeat(200);
    let lines = ["aaaaaaaaaa"; 6].join("\n") + "\n" + &long + "\ncccc\n";
    let (status, _, errors) = joined_chat(dir.path(), &short, &lines);
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(errors.matches("; ended by ").count(), 7, "{errors}");
    assert!(
        errors.contains("the context of 64 positions is full: the conversation begins anew with the last ")
    );
    let refused = errors.lines().find(|line| line.starts_with("no answer: message: ")).expect("a line");
    assert!(
        refused.ends_with("expected at most 64, the positions of the context; --context N sets their number")
    );
    // Nothing has an answer: an error.
    for args in [&["--prompt", &long][..], &[]] {
        let (status, _, errors) = joined_chat(dir.path(), &[&short[..], args].concat(), &long);
        assert!(
            status == Some(2) && errors.contains("error: message: ") && errors.contains("--context N"),
            "{errors}"
        );
    }
    let (status, _, errors) = joined_chat(dir.path(), &["--context", "16", "--predict", "99"], "aaaaaaaa");
    assert!(status == Some(0) && errors.contains("the text is cut off after "), "{errors}");
    assert!(
        errors.contains(" of at most 99 tokens, since the context of 16 positions is full: "),
        "{errors}"
    );
}

/// An answer that fills the context goes on after the last turns: it has as many tokens as were asked for.
#[test]
fn the_rest_of_an_answer_follows_after_fewer_turns() {
    let dir = tempfile::tempdir().unwrap();
    // Answers are left out, so that the length of the second prompt is known: 42 tokens at most.
    let template = "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}";
    let input = format!("{}\n{}\n", "a".repeat(20), "b".repeat(20));
    let args = ["--context", "64", "--predict", "30"];
    let (status, _, errors) = chat_with(template, dir.path(), &args, &input);
    assert_eq!(status, Some(0), "{errors}");
    let rest = "the context of 64 positions was full: the rest of this answer was computed after the last 1 of 2 turns";
    assert!(errors.contains(rest), "{errors}");
    assert!(!errors.contains("cut off") && !errors.contains("begins anew"), "{errors}");
    let ends: Vec<&str> = errors.lines().filter(|line| line.contains("; ended by ")).collect();
    assert!(ends.len() == 2 && ends.iter().all(|line| line.contains("; 30 tokens, ")), "{errors}");
    assert!(ends.iter().all(|line| line.ends_with("ended by the limit of tokens")), "{errors}");
}

/// Text of a user that is spelled like a control token is text: it ends no turn. The template's own tokens are found.
#[test]
fn a_message_forges_no_turn() {
    let dir = tempfile::tempdir().unwrap();
    let template = "{% for m in messages %}<|end|>{{ m.content }}{% endfor %}";
    let (status, _, errors) =
        chat_with(template, dir.path(), &["--predict", "1", "--prompt", "a<|end|>"], "");
    assert_eq!(status, Some(0), "{errors}");
    // One token of the template, and each letter of the message.
    assert!(errors.contains("prompt 9 tokens, "), "{errors}");
}

/// Errors of a context that is too small or too large name the option.
#[test]
fn an_error_of_the_context_names_its_option() {
    let dir = tempfile::tempdir().unwrap();
    let model = synthesized(dir.path(), "small-llama");
    let run = |args: &[&str]| {
        let output =
            Command::new(example("generate")).args(args).arg("--model").arg(&model).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    for (context, prompt, status) in [("4", "a long prompt", 2), ("0", "a", 2), ("2000000000", "a", 1)] {
        let (code, errors) = run(&["--prompt", prompt, "--context", context]);
        assert!(code == Some(status) && errors.contains("--context"), "{context}: {errors}");
    }
}

/// An estimate has the weights that are read in place, and the context.
#[test]
fn an_estimate_says_what_is_read_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let model = synthesized(dir.path(), "small-llama");
    let output =
        Command::new(example("generate")).args(["--estimate", "--model"]).arg(&model).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with("context of 2048 positions\n"), "{text}");
    let of_file = std::fs::metadata(&model).unwrap().len() as f64 / f64::from(1 << 20);
    let (before, _) = text.split_once(" MiB of weights are read in place in the file").expect("the weights");
    let weights: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(
        weights > 0.5 * of_file && weights <= of_file + 0.05 && !text.contains("weights 0.0 MiB, state"),
        "{text}"
    );
}

/// Rounding of activations is noted where it shows: in `fast`, with few weights of few bits.
#[test]
fn rounding_is_noted_where_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    let model = |dtype: &str| {
        let path = dir.path().join(format!("{dtype}.gguf"));
        let mut command = Command::new(example("synthesize"));
        let output = command.args(["--shape", "small-llama", "--type", dtype]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        path
    };
    for (dtype, precision, noted) in
        [("Q4_K", "fast", true), ("Q4_K", "exact", false), ("Q8_0", "fast", false)]
    {
        let mut command = Command::new(example("generate"));
        command.args(["--prompt", "sea", "--predict", "1", "--precision", precision, "--model"]);
        let errors = stderr(&command.arg(model(dtype)).output().unwrap());
        assert_eq!(errors.contains("--precision exact"), noted, "{dtype} {precision}: {errors}");
    }
}

/// Returns a file with only a SentencePiece vocabulary: `<unk> <s> </s>`, the 256 bytes, one piece.
fn vocabulary() -> Vec<u8> {
    let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6));
    let special = [("<unk>", 2), ("<s>", 3), ("</s>", 3)].map(|(text, kind)| (text.to_string(), kind));
    let (texts, kinds): (Vec<String>, Vec<i32>) =
        special.into_iter().chain(bytes).chain([("▁a".to_string(), 1)]).unzip();
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.model", "llama").unwrap();
    writer.set("tokenizer.ggml.tokens", Array::texts(&texts)).unwrap();
    writer.set("tokenizer.ggml.token_type", Array::from(kinds.as_slice())).unwrap();
    writer.set("tokenizer.ggml.scores", Array::from([0f32; 260].as_slice())).unwrap();
    writer
        .tensor("token_embd.weight", DType::F32, &[32, 260], TensorData::from(vec![0u8; 260 * 32 * 4]))
        .unwrap();
    writer.to_bytes().unwrap()
}

#[test]
fn tokens_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, vocabulary()).unwrap();
    let run = |extra: &[&str]| {
        let mut command = Command::new(example("tokenize"));
        let output =
            command.arg("--model").arg(&path).args(["--text", "a</s>"]).args(extra).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&[]), "      1  \"<s>\"\n    259  \" a\"\n      2  \"</s>\"\n");
    let tokens: serde_json::Value = serde_json::from_str(&run(&["--json", "--no-special"])).unwrap();
    let ids: Vec<u64> = tokens.as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [259, 63, 50, 118, 65]);
    assert_eq!((&tokens[0]["piece"], &tokens[0]["special"]), (&" a".into(), &false.into()));
    let output =
        Command::new(example("tokenize")).args(["--model", "/nowhere.gguf", "--text", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
