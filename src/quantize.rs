//! Quantization: GGUF files with their weights in other types.
//!
//! Weights are read in place, decoded and encoded some rows at a time on all cores, and written immediately,
//! so memory holds only a few megabytes of them whatever their size. The file gets its name only at the end:
//! if anything fails or the work is cancelled, an existing file stays unchanged. An [`Importance`] matrix
//! gives the importance of the columns of the weights; types of few bits need one. Weights of NVFP4 have
//! their scales as separate tensors.

mod convert;
mod finite;
mod importance;
mod mix;
mod progress;
mod scale;
mod substitution;

pub use crate::cancel::Cancel;
pub use importance::Importance;
pub use mix::Mix;
pub use substitution::Substitution;

use convert::Conversion;
use ggml_core::gguf::{GgufFile, GgufWriter, Metadata, TensorData, TensorInfo};
use ggml_core::{DType, Error, Result};
use mix::ModelProperties;
use progress::Progress;
use scale::Scales;
use std::cell::RefCell;
use std::path::Path;

/// Number of values that a thread processes at a time.
const CHUNK: usize = 1 << 16;

/// Prefix of the keys that record the importance matrix of a file.
const IMPORTANCE: &str = "quantize.imatrix.";

/// Version of the block layouts, which all files record.
const LAYOUTS: u32 = 2;

/// Summary of a written file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all tensors of the input.
    pub before: u64,
    /// Bytes of all tensors of the output.
    pub after: u64,
    /// Types in the order of their ids, each with its number of tensors.
    pub types: Vec<(DType, usize)>,
    /// Types whose blocks do not fit the rows of some tensors.
    pub substitutions: Vec<Substitution>,
    /// Tensors of F32, F16 or BF16 with values that are NaN or infinite, as in the input, each with their
    /// number.
    pub non_finite: Vec<(String, usize)>,
}

impl Summary {
    fn add(&mut self, dtype: DType, bytes: usize) {
        self.after += bytes as u64;
        match self.types.iter_mut().find(|(of, _)| *of == dtype) {
            Some((_, count)) => *count += 1,
            None => self.types.push((dtype, 1)),
        }
    }
}

/// Settings for quantizing a model.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Types of the tensors.
    pub mix: Mix,
    /// True to use only the mix's main type for all matrices, and no better type.
    pub pure: bool,
    /// Importance of the columns of the weights; `None`: all columns are equal.
    pub importance: Option<&'a Importance>,
}

impl Recipe<'_> {
    /// Returns the settings for a mix with its rules and without importance.
    pub fn new(mix: Mix) -> Recipe<'static> {
        Recipe { mix, pure: false, importance: None }
    }
}

/// Writes a file with the weights of another in other types. `progress` receives the processed bytes of the
/// weights and the total.
///
/// # Errors
/// [`Error::InvalidArgument`] if a tensor would have a type that needs an importance matrix and there is none
/// for it, or if the matrix has another length; [`Error::InvalidModel`] for weights of a type without a
/// decoder, and for values that are NaN or infinite in a type that cannot hold them, or that become infinite;
/// [`Error::Io`], with the kind [`std::io::ErrorKind::Interrupted`] if `cancel` is set.
pub fn quantize(
    input: &GgufFile,
    out: &Path,
    recipe: &Recipe<'_>,
    cancel: &Cancel,
    progress: &dyn Fn(u64, u64),
) -> Result<Summary> {
    let total = input.tensors().iter().map(|t| t.bytes as u64).sum();
    let progress = Progress::new(out, cancel, progress, total);
    let model = ModelProperties::new(input, recipe.importance.is_some());
    let choice = |t| if recipe.pure { recipe.mix.pure(t) } else { recipe.mix.of(t, &model) };
    let scales: Vec<_> = input.tensors().iter().map(|t| Scales::new(input, t, choice(t).dtype)).collect();
    let non_finite = RefCell::new(Vec::new());
    let mut writer = GgufWriter::new();
    writer.set_all(&metadata(input, recipe))?;
    let (types, substitutions, before) = (Vec::new(), Vec::new(), total);
    let mut summary = Summary { before, after: 0, types, substitutions, non_finite: Vec::new() };
    for (t, own) in input.tensors().iter().zip(&scales) {
        let dtype = choice(t).dtype;
        substitution::add(&mut summary.substitutions, t, choice(t));
        summary.add(dtype, dtype.row_bytes(t.ne[0]).unwrap_or(0) * (t.elements() / t.ne[0]));
        let (progress, non_finite) = (&progress, &non_finite);
        if let Some(of) = scales.iter().flatten().find(|of| of.name() == t.name) {
            let data =
                TensorData::stream(|sink| progress.advance(t.bytes).and_then(|()| sink.put(&of.bytes()?)));
            writer.tensor(t.name.clone(), dtype, t.shape(), data)?;
            continue;
        }
        let importance = if dtype == t.dtype { None } else { columns(t, dtype, &model, recipe.importance)? };
        let conversion = Conversion { dtype, importance, scales: own.as_ref() };
        let data = TensorData::stream(move |sink| {
            let count = conversion.write(input, t, progress, sink)?;
            non_finite.borrow_mut().extend((count > 0).then(|| (t.name.clone(), count)));
            Ok(())
        });
        writer.tensor(t.name.clone(), dtype, t.shape(), data)?;
        if let Some(own) = own.as_ref().filter(|own| !own.replaces()) {
            summary.add(DType::F32, own.count() * size_of::<f32>());
            let data = TensorData::stream(|sink| sink.put(&own.bytes()?));
            writer.tensor(own.name(), DType::F32, &[own.count()], data)?;
        }
    }
    summary.types.sort();
    writer.write_to(out)?;
    summary.non_finite = non_finite.take();
    Ok(summary)
}

/// Returns the importance of a tensor's columns, for each matrix of a stack.
fn columns<'a>(
    t: &TensorInfo,
    dtype: DType,
    model: &ModelProperties,
    of: Option<&'a Importance>,
) -> Result<Option<&'a [f32]>> {
    let found = of.and_then(|of| of.of(&t.name));
    let count = t.ne[0] * t.ne[2];
    match found.filter(|found| found.len() == count || !mix::is_table(&t.name)) {
        Some(found) if found.len() != count => {
            let expected = format!("{count} for tensor {:?}", t.name);
            Err(Error::argument("importance matrix", format!("{} values", found.len()), expected))
        }
        None if model.needs_importance(&t.name, dtype) => {
            let found = if of.is_some() { "no entry for the tensor" } else { "none given" };
            let expected = format!("an entry for tensor {:?}, which becomes {dtype}", t.name);
            Err(Error::argument("importance matrix", found, expected))
        }
        found => Ok(found),
    }
}

/// Returns the metadata of the output, with the id of the mix, if it has one, and the origin of the
/// importance matrix, under llama.cpp's keys.
fn metadata(input: &GgufFile, recipe: &Recipe<'_>) -> Metadata {
    let mut all = Metadata::new();
    // Keys of another matrix would be wrong.
    let stays = |key: &str| key != "general.file_type" && !key.starts_with(IMPORTANCE);
    for (key, value) in input.metadata().iter().filter(|(key, _)| stays(key)) {
        all.insert(key, value.clone());
    }
    all.insert("general.quantization_version", LAYOUTS);
    if let Some(number) = recipe.mix.file_type() {
        all.insert("general.file_type", number);
    }
    if let Some(importance) = recipe.importance {
        let name = importance.path().file_name().unwrap_or_default().to_string_lossy();
        all.insert(format!("{IMPORTANCE}file"), name.as_ref());
        if let Some(dataset) = importance.datasets().first() {
            all.insert(format!("{IMPORTANCE}dataset"), dataset.as_str());
        }
        all.insert(format!("{IMPORTANCE}entries_count"), importance.tensors().count() as u32);
        all.insert(format!("{IMPORTANCE}chunks_count"), importance.chunks());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelFile;
    use crate::synthesize::{self, Shape};
    use crate::{Model, Precision, SessionOptions};
    use ggml_core::decode::decode;
    use ggml_core::encode::{Effort, encode_weighted, encode_with};
    use ggml_core::metrics::distance;
    use ggml_core::rng::Rng;
    use std::cell::Cell;
    use std::io::ErrorKind;

    pub(super) fn file(shape: &Shape) -> GgufFile {
        GgufFile::from_bytes(synthesize::bytes(shape, 5).unwrap()).unwrap()
    }

    fn shape() -> Shape {
        // Rows of 256 for K-quants, and of 64, which are no multiple of their blocks.
        let small = Shape { layers: 2, vocabulary: 300, embedding: 256, ..Shape::small("llama") };
        Shape { feed_forward: 320, ..small.with_type(DType::F16) }
    }

    pub(super) fn quantized(input: &GgufFile, name: &str, importance: Option<&Importance>) -> GgufFile {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gguf");
        let last = Cell::new((0, 0));
        let recipe = Recipe { importance, ..Recipe::new(Mix::named(name).unwrap()) };
        let summary =
            quantize(input, &path, &recipe, &Cancel::default(), &|done, total| last.set((done, total)))
                .unwrap();
        assert_eq!(last.get(), (summary.before, summary.before), "{name}");
        let out = GgufFile::open(&path).unwrap();
        assert_eq!(out.tensors().iter().map(|t| t.bytes as u64).sum::<u64>(), summary.after, "{name}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{name}");
        out
    }

    /// Returns a random importance matrix for all weights of layers except those in `but`.
    fn matrix(input: &GgufFile, but: &[&str]) -> Importance {
        let mut rng = Rng::new(9);
        let mut writer = GgufWriter::new();
        writer.set("general.type", "imatrix").unwrap();
        writer.set("imatrix.chunk_count", 5u32).unwrap();
        let layers = input.tensors().iter().filter(|t| t.name.starts_with("blk.") && t.n_dims > 1);
        for t in layers.filter(|t| !but.contains(&t.name.as_str())) {
            let mut put = |end: &str, shape: [usize; 2], value: &mut dyn FnMut() -> f32| {
                let bytes: Vec<u8> = (0..shape[0] * shape[1]).flat_map(|_| value().to_le_bytes()).collect();
                let data = TensorData::Bytes(bytes.into());
                writer.tensor(format!("{}.{end}", t.name), DType::F32, &shape, data).unwrap();
            };
            put("in_sum2", [t.ne[0], t.ne[2]], &mut || (1.5 * rng.normal()).exp());
            put("counts", [1, t.ne[2]], &mut || 64.0);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("imatrix.gguf");
        writer.write_to(&path).unwrap();
        Importance::open(&path).unwrap()
    }

    /// Checks that each tensor has the bytes that the encoder makes of its values, and that a second run
    /// changes nothing.
    #[test]
    fn tensors_are_what_their_encoders_make_of_them() {
        let input = file(&shape());
        let importance = matrix(&input, &[]);
        let few =
            |name: &str| name.starts_with("IQ1") || name.starts_with("IQ2") || name.starts_with("IQ3_X");
        let without = Mix::names().filter(|name| !few(name)).map(|name| (name, None));
        let weighed = ["IQ1_M", "IQ2_M", "IQ3_XXS", "IQ4_XS", "Q4_0", "Q4_K_M", "Q8_0"];
        let weighed = weighed.into_iter().map(|name| (name, Some(&importance)));
        for (name, importance) in without.chain(weighed) {
            let out = quantized(&input, name, importance);
            for a in input.tensors() {
                let b = out.require(&a.name).unwrap();
                assert_eq!(a.ne, b.ne, "{name}");
                let mut values = decode(a.dtype, input.data(a).unwrap()).unwrap();
                let scale = out.tensor(&a.name.replace(".weight", ".scale"));
                if let Some(scale) = scale.filter(|_| b.dtype == DType::NVFP4) {
                    let scale = decode(scale.dtype, out.data(scale).unwrap()).unwrap()[0];
                    values.iter_mut().for_each(|x| *x /= scale);
                }
                let want = match a.dtype == b.dtype {
                    true => input.data(a).unwrap().to_vec(),
                    false => match importance.and_then(|of| of.of(&a.name)) {
                        Some(columns) => encode_weighted(b.dtype, a.ne[0], &values, columns).unwrap(),
                        None => encode_with(b.dtype, a.ne[0], &values, Effort::Search).unwrap(),
                    },
                };
                assert_eq!(out.data(b).unwrap(), want, "{name} {}", a.name);
            }
        }
        let once = quantized(&input, "Q4_K_M", None);
        let twice = quantized(&once, "Q4_K_M", None);
        assert!(
            once.tensors()
                .iter()
                .zip(twice.tensors())
                .all(|(a, b)| once.data(a).unwrap() == twice.data(b).unwrap())
        );
    }

    /// Cancels at every point, with and without an existing file.
    #[test]
    fn what_is_cancelled_leaves_nothing() {
        let input = file(&shape());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gguf");
        let recipe = Recipe::new(Mix::named("Q4_K_M").unwrap());
        let count = Cell::new(0);
        let all = Cancel::default();
        quantize(&input, &path, &recipe, &all, &|_, _| count.set(count.get() + 1)).unwrap();
        let before = std::fs::read(&path).unwrap();
        for there in [true, false] {
            if !there {
                std::fs::remove_file(&path).unwrap();
            }
            for stop in [0, 1, count.get() / 2, count.get() - 1] {
                let (cancel, calls) = (Cancel::default(), Cell::new(0));
                let progress = |_, _| {
                    calls.set(calls.get() + 1);
                    if calls.get() >= stop {
                        cancel.cancel();
                    }
                };
                if stop == 0 {
                    cancel.cancel();
                }
                let error = quantize(&input, &path, &recipe, &cancel, &progress).unwrap_err();
                assert_eq!(error.io_kind(), Some(ErrorKind::Interrupted), "{error}");
                let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
                assert_eq!(files.len(), usize::from(there), "{files:?}");
                assert!(!there || std::fs::read(&path).unwrap() == before);
            }
        }
    }

    /// Checks that each expert has its own importance, and that a file records the matrix it was made with.
    #[test]
    fn each_expert_has_its_importance() {
        let small = Shape { layers: 1, vocabulary: 300, embedding: 256, ..Shape::small("qwen3moe") };
        let input = file(&small.with_type(DType::F16));
        let importance = matrix(&input, &[]);
        let out = quantized(&input, "IQ2_XXS", Some(&importance));
        let name = "blk.0.ffn_up_exps.weight";
        let (a, b) = (input.require(name).unwrap(), out.require(name).unwrap());
        assert!(a.ne[2] > 1 && b.dtype == DType::IQ2_XXS, "{a:?} {b:?}");
        let values = decode(a.dtype, input.data(a).unwrap()).unwrap();
        let columns = importance.of(name).unwrap().chunks(a.ne[0]);
        let experts = values.chunks(a.ne[0] * a.ne[1]).zip(columns);
        let want = experts.map(|(values, of)| encode_weighted(b.dtype, a.ne[0], values, of).unwrap());
        assert_eq!(out.data(b).unwrap(), want.collect::<Vec<_>>().concat());
        let m = out.metadata();
        assert_eq!(m.str("quantize.imatrix.file").unwrap(), "imatrix.gguf");
        // A run without a matrix does not keep the keys of an earlier one.
        let again = quantized(&out, "F16", None);
        assert!(!again.metadata().iter().any(|(key, _)| key.starts_with("quantize.imatrix.")));
        assert_eq!(m.u32("quantize.imatrix.chunks_count").unwrap(), 5);
        assert_eq!(m.u32("general.file_type").unwrap(), 19);
    }

    /// Checks that a bias of the attention values is no layer: the choice of layers with more bits depends on
    /// the matrices only.
    #[test]
    fn biases_are_no_layers() {
        for architecture in ["qwen2", "bert"] {
            let small = Shape { layers: 8, vocabulary: 300, embedding: 256, ..Shape::small(architecture) };
            let input = file(&Shape { feed_forward: 256, ..small }.with_type(DType::F16));
            assert!(input.tensor("blk.7.attn_v.bias").is_some(), "{architecture}");
            let model = ModelProperties::new(&input, false);
            let types = |mix: &str, part: &str| -> Vec<DType> {
                let mix = Mix::named(mix).unwrap();
                let tensor = |i| input.require(&format!("blk.{i}.{part}.weight")).unwrap();
                (0..8).map(|i| mix.of(tensor(i), &model).dtype).collect()
            };
            use DType::{Q4_K, Q5_K, Q6_K};
            let want = [true, false, false, true, false, false, true, true];
            let types_of = |better, other| want.map(|more| if more { better } else { other });
            assert_eq!(types("Q5_K_M", "attn_v"), types_of(Q6_K, Q5_K), "{architecture}");
            assert_eq!(types("Q4_K_M", "ffn_down"), types_of(Q6_K, Q4_K), "{architecture}");
            let want = [Q5_K, Q5_K, Q4_K, Q4_K, Q4_K, Q4_K, Q4_K, Q4_K];
            assert_eq!(types("Q3_K_M", "attn_v"), want, "{architecture}");
        }
    }

    /// Checks that the summary names each type that does not fit, and what was used in its place.
    #[test]
    fn substitutions_are_named() {
        let input = file(&shape());
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let recipe = Recipe::new(Mix::named(name).unwrap());
            let out = dir.path().join("out.gguf");
            quantize(&input, &out, &recipe, &Cancel::default(), &|_, _| {}).unwrap().substitutions
        };
        // Rows of 320.
        let first = "blk.0.ffn_down.weight".to_string();
        let tensors = vec![first.clone(), "blk.1.ffn_down.weight".to_string()];
        let (wanted, used) = (DType::Q6_K, DType::Q8_0);
        assert_eq!(made("Q6_K"), [Substitution { wanted, used, columns: 320, tensors }]);
        let (wanted, used) = (DType::TQ2_0, DType::Q2_0);
        let text = made("TQ2_0")[0].to_string();
        let reason = "whose blocks of 256 do not fit rows of 320";
        assert_eq!(text, format!("{used} in place of {wanted}, {reason}: 2 tensors, {first} first"));
        assert_eq!(made("Q8_0"), []);
    }

    /// Checks that tensors that a text does not pass through need no entry in an importance matrix.
    #[test]
    fn bypassed_tensors_need_no_importance() {
        let input = file(&shape());
        let importance = matrix(&input, &["blk.1.attn_q.weight"]);
        let mut writer = GgufWriter::new();
        writer.set_all(input.metadata()).unwrap();
        writer.set("llama.nextn_predict_layers", 1u32).unwrap();
        for t in input.tensors() {
            let data = TensorData::Bytes(input.data(t).unwrap().into());
            writer.tensor(t.name.clone(), t.dtype, t.shape(), data).unwrap();
        }
        let towers =
            ["v.blk.0.attn_q", "s.position_table", "model.vision_tower.fc", "mtp.layers.0.mlp.up_proj"];
        for name in towers {
            let tower = TensorData::Bytes([0x00, 0x3c].repeat(256 * 2).into());
            writer.tensor(format!("{name}.weight"), DType::F16, &[256, 2], tower).unwrap();
        }
        let norm = TensorData::Bytes(vec![7; 256 * 4].into());
        writer.tensor("mtp.norm.weight", DType::F32, &[256], norm).unwrap();
        let input = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
        for (mix, dtype) in [("IQ2_XXS", DType::IQ3_S), ("Q4_K_M", DType::Q4_K), ("F16", DType::F16)] {
            let importance = Some(&importance).filter(|_| mix == "IQ2_XXS");
            let out = quantized(&input, mix, importance);
            for name in towers {
                let t = out.require(&format!("{name}.weight")).unwrap();
                assert_eq!((t.dtype, t.shape()), (dtype, &[256, 2][..]), "{mix} {name}");
                let values = decode(t.dtype, out.data(t).unwrap()).unwrap();
                assert!(values.iter().all(|x| (x - 1.0).abs() < 0.02), "{mix} {name}: {:?}", &values[..4]);
            }
            let norm = out.require("mtp.norm.weight").unwrap();
            assert_eq!(out.data(norm).unwrap(), [7; 256 * 4], "{mix}");
            if mix == "IQ2_XXS" {
                let layer = |i: usize| out.require(&format!("blk.{i}.attn_q.weight")).unwrap().dtype;
                assert_eq!([layer(0), layer(1)], [DType::IQ2_XXS, DType::IQ3_S]);
            }
        }
    }

    /// Returns the same model with its weights decoded to F32.
    fn plain(file: &GgufFile) -> GgufFile {
        let mut writer = GgufWriter::new();
        writer.set_all(file.metadata()).unwrap();
        for t in file.tensors() {
            let values = decode(t.dtype, file.data(t).unwrap()).unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            writer.tensor(t.name.clone(), DType::F32, t.shape(), TensorData::Bytes(bytes.into())).unwrap();
        }
        GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()
    }

    /// Checks that on the CPU a file of few bits gives the logits of its decoded weights.
    #[test]
    fn models_of_few_bits_run() {
        let cpu = crate::open("cpu", &crate::OpenOptions::default()).unwrap();
        let logits = |file: GgufFile| {
            let model = Model::from_file(ModelFile::from_gguf(file).unwrap(), cpu.clone()).unwrap();
            let options = SessionOptions::default().with_context(64).with_precision(Precision::Exact);
            model.session(&options).unwrap().logits(&[5, 42, 79, 116]).unwrap()
        };
        let small = Shape { layers: 1, vocabulary: 300, ..Shape::small("llama") }.with_type(DType::F16);
        let input = file(&small);
        let importance = matrix(&input, &[]);
        for mix in
            ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"]
        {
            let out = quantized(&input, mix, Some(&importance));
            let main = Mix::named(mix).unwrap().pure(out.require("blk.0.ffn_up.weight").unwrap()).dtype;
            assert!(out.tensors().iter().any(|t| t.dtype == main), "{mix}");
            let want = logits(plain(&out));
            let distance = distance(&logits(out), &want);
            assert!(distance.nmse < 1e-9, "{mix}: {distance:?}");
        }
    }

    /// Checks that values which are no numbers are reported where the type keeps them and refused where they
    /// would spoil a block, and that no value becomes infinite.
    #[test]
    fn values_that_are_no_numbers_are_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gguf");
        let run = |values: &[f32], mix: &str| {
            let original = plain(&file(&Shape { layers: 1, ..shape() }));
            let mut writer = GgufWriter::new();
            writer.set_all(original.metadata()).unwrap();
            for t in original.tensors() {
                let mut bytes = original.data(t).unwrap().to_vec();
                if t.name == "blk.0.ffn_up.weight" {
                    let new: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    bytes[400..400 + new.len()].copy_from_slice(&new);
                }
                writer.tensor(t.name.clone(), t.dtype, t.shape(), TensorData::Bytes(bytes.into())).unwrap();
            }
            let input = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
            let recipe = Recipe::new(Mix::named(mix).unwrap());
            let done = quantize(&input, &path, &recipe, &Cancel::default(), &|_, _| {});
            done.map(|summary| summary.non_finite).map_err(|error| {
                assert!(matches!(error, Error::InvalidModel { .. }), "{error:?}");
                error.to_string()
            })
        };
        let lost = [f32::NAN, f32::NEG_INFINITY, 1.0];
        let kept = vec![("blk.0.ffn_up.weight".to_string(), 2)];
        for mix in ["F32", "F16", "BF16"] {
            assert_eq!(run(&lost, mix).unwrap(), kept, "{mix}");
        }
        assert_eq!(run(&[60_000.0, -1e-30], "F16").unwrap(), []);
        for (values, mix, expected) in [
            (&lost[..], "Q8_0", "a value that is NaN; expected numbers, for Q8_0"),
            (&lost[1..], "Q4_0", "a value that is -inf"),
            (&[f32::NAN, 1e6], "F16", "a value of magnitude 1e6; expected smaller values"),
            (&[1e7], "Q8_0", "this one is infinite in Q8_0"),
        ] {
            std::fs::write(&path, "before").unwrap();
            let error = run(values, mix).unwrap_err();
            assert!(error.contains("\"blk.0.ffn_up.weight\"") && error.contains(expected), "{mix}: {error}");
            assert_eq!(std::fs::read(&path).unwrap(), b"before");
        }
        assert!(run(&[1e7], "BF16").unwrap().is_empty());
    }

    #[test]
    fn types_that_need_importance_are_refused_without() {
        let input = file(&shape());
        let dir = tempfile::tempdir().unwrap();
        let refused = |name: &str, importance: Option<&Importance>| {
            let recipe = Recipe { importance, ..Recipe::new(Mix::named(name).unwrap()) };
            let out = dir.path().join("out.gguf");
            let error = quantize(&input, &out, &recipe, &Cancel::default(), &|_, _| {}).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            error.to_string()
        };
        for name in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS"] {
            let error = refused(name, None);
            assert!(
                error.starts_with("importance matrix: none given; ") && error.contains("blk.0."),
                "{error}"
            );
        }
        let some = matrix(&input, &["blk.1.attn_q.weight"]);
        let error = refused("IQ2_M", Some(&some));
        assert!(
            error.contains("no entry for the tensor")
                && error.contains("\"blk.1.attn_q.weight\", which becomes IQ2_S"),
            "{error}"
        );
        let narrow = file(&Shape { embedding: 512, ..shape() });
        let error = refused("Q4_K_M", Some(&matrix(&narrow, &[])));
        assert!(error.contains("512 values; expected 256 for tensor"), "{error}");
        let error = Mix::named("Q9").unwrap_err().to_string();
        assert!(error.contains("Q4_K_M") && error.contains("IQ2_XXS"), "{error}");
    }
}
