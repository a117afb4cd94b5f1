//! Which tensor gets which type: the rules of the common mixes, as llama.cpp's files have them.

use ggml_core::gguf::{GgufFile, TensorInfo};
use ggml_core::{DType, Error, Result};

/// How much more than its main type a mix spends on what matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Nothing but the output layer.
    Plain,
    Small,
    Medium,
    Large,
    /// The main type is for experts alone.
    Experts,
}

/// A named choice of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    name: &'static str,
    main: DType,
    size: Size,
    /// What files say in `general.file_type`; none where there is no number yet.
    file_type: Option<u32>,
}

const fn mix(name: &'static str, main: DType, size: Size, file_type: u32) -> Mix {
    Mix { name, main, size, file_type: Some(file_type) }
}

const MIXES: &[Mix] = &[
    mix("F32", DType::F32, Size::Plain, 0),
    mix("F16", DType::F16, Size::Plain, 1),
    mix("BF16", DType::BF16, Size::Plain, 32),
    mix("Q8_0", DType::Q8_0, Size::Plain, 7),
    mix("Q4_0", DType::Q4_0, Size::Plain, 2),
    mix("Q4_1", DType::Q4_1, Size::Plain, 3),
    mix("Q5_0", DType::Q5_0, Size::Plain, 8),
    mix("Q5_1", DType::Q5_1, Size::Plain, 9),
    mix("Q2_K", DType::Q2_K, Size::Medium, 10),
    mix("Q2_K_S", DType::Q2_K, Size::Small, 21),
    mix("Q3_K_S", DType::Q3_K, Size::Small, 11),
    mix("Q3_K_M", DType::Q3_K, Size::Medium, 12),
    mix("Q3_K_L", DType::Q3_K, Size::Large, 13),
    mix("Q4_K_S", DType::Q4_K, Size::Small, 14),
    mix("Q4_K_M", DType::Q4_K, Size::Medium, 15),
    mix("Q5_K_S", DType::Q5_K, Size::Small, 16),
    mix("Q5_K_M", DType::Q5_K, Size::Medium, 17),
    mix("Q6_K", DType::Q6_K, Size::Plain, 18),
    mix("IQ4_NL", DType::IQ4_NL, Size::Plain, 25),
    mix("IQ4_XS", DType::IQ4_XS, Size::Plain, 30),
    mix("TQ1_0", DType::TQ1_0, Size::Plain, 36),
    mix("TQ2_0", DType::TQ2_0, Size::Plain, 37),
    Mix { name: "MXFP4", main: DType::MXFP4, size: Size::Plain, file_type: None },
    mix("MXFP4_MOE", DType::MXFP4, Size::Experts, 38),
    mix("NVFP4", DType::NVFP4, Size::Plain, 39),
    mix("Q1_0", DType::Q1_0, Size::Plain, 40),
    Mix { name: "Q2_0", main: DType::Q2_0, size: Size::Plain, file_type: None },
];

/// Names that mean the middle one of several.
const SHORT: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Types that lose too much where all numbers count the same.
const WEIGHED: [DType; 7] =
    [DType::IQ1_S, DType::IQ1_M, DType::IQ2_XXS, DType::IQ2_XS, DType::IQ2_S, DType::IQ3_XXS, DType::IQ3_S];

/// Parts of names of matrices that stay as they are: small ones that much depends on.
const KEPT: [&str; 8] = [
    "_norm.weight",
    "ffn_gate_inp",
    "ssm_conv1d",
    "shortconv.conv",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "attn_rel_b",
];

/// What the rules ask of a model.
pub(super) struct Model {
    layers: usize,
    experts: usize,
    /// Query heads that share a key head.
    shared_heads: usize,
    /// Layers with values of attention.
    values: Vec<usize>,
    tied: bool,
}

/// Matrices that give the values of attention, alone or with others.
const VALUES: [&str; 3] = ["attn_v", "attn_qkv", "attn_kv_b"];

/// What a tensor of a layer is.
fn part(name: &str) -> &str {
    name.split('.').nth(2).unwrap_or_default()
}

/// The layer of a tensor.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

impl Model {
    pub(super) fn new(file: &GgufFile) -> Model {
        let m = file.metadata();
        let architecture = m.str("general.architecture").unwrap_or_default().to_string();
        // Where layers differ, their largest.
        let number = |key: &str| {
            let key = format!("{architecture}.{key}");
            let one = m.opt_usize(&key).ok().flatten();
            one.or_else(|| m.opt_array_usize(&key).ok().flatten()?.into_iter().max()).unwrap_or(0)
        };
        let names = || file.tensors().iter().map(|t| t.name.as_str());
        let mut values: Vec<usize> =
            names().filter(|n| VALUES.contains(&part(n))).filter_map(layer).collect();
        values.sort_unstable();
        Model {
            layers: number("block_count"),
            experts: number("expert_count"),
            shared_heads: number("attention.head_count") / number("attention.head_count_kv").max(1),
            values,
            tied: !names().any(|name| name == "output.weight"),
        }
    }
}

/// Whether one of `n` layers gets more bits: the first and last eighths, and every third between.
fn more_bits(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// The type, or where rows are no multiple of its blocks the next larger one that fits.
fn fitting(dtype: DType, columns: usize) -> DType {
    let instead = match dtype {
        _ if columns.is_multiple_of(dtype.block()) => return dtype,
        DType::Q2_K | DType::Q3_K | DType::IQ4_XS => DType::IQ4_NL,
        DType::Q4_K | DType::TQ1_0 | DType::TQ2_0 | DType::NVFP4 | DType::Q1_0 | DType::Q2_0 => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        _ => return DType::F16,
    };
    fitting(instead, columns)
}

impl Mix {
    /// The mix of a name, in any case.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none of that name, or it needs an importance matrix.
    pub fn named(name: &str) -> Result<Mix> {
        let long =
            SHORT.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)).map_or(name, |(_, long)| long);
        let known = MIXES.iter().find(|mix| mix.name.eq_ignore_ascii_case(long)).copied();
        known.ok_or_else(|| {
            let expected = match DType::from_name(name).filter(|dtype| WEIGHED.contains(dtype)) {
                Some(_) => "a type that needs no importance matrix, which cannot be read yet".to_string(),
                None => format!("one of {}", Mix::names().collect::<Vec<_>>().join(", ")),
            };
            Error::argument("type", format!("'{name}'"), expected)
        })
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MIXES.iter().map(|mix| mix.name)
    }

    /// What files say in `general.file_type`.
    pub(super) fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// The type of a tensor where all matrices are alike.
    pub(super) fn pure(&self, t: &TensorInfo) -> DType {
        let matrix = t.n_dims > 1 && t.name.ends_with("weight");
        if matrix && !KEPT.iter().any(|part| t.name.contains(part)) && t.dtype.info().computable {
            fitting(self.main, t.ne[0])
        } else {
            t.dtype
        }
    }

    /// The type of a tensor.
    pub(super) fn of(&self, t: &TensorInfo, model: &Model) -> DType {
        let pure = self.pure(t);
        if pure == t.dtype || !self.main.is_quantized() {
            return pure;
        }
        fitting(self.special(t, model).unwrap_or(self.main), t.ne[0])
    }

    /// The type of a matrix that is not the main one.
    fn special(&self, t: &TensorInfo, model: &Model) -> Option<DType> {
        use DType::{IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_0};
        use Size::{Experts, Large, Medium, Small};
        let (name, main, size) = (t.name.as_str(), self.main, self.size);
        if size == Experts {
            return (!name.contains("_exps.")).then_some(Q8_0);
        }
        let embedding = name == "token_embd.weight";
        if name == "output.weight" || embedding && model.tied {
            let eight = matches!(main, Q8_0 | MXFP4 | NVFP4) || !t.ne[0].is_multiple_of(Q6_K.block());
            return Some(if eight { Q8_0 } else { Q6_K });
        }
        if embedding {
            return matches!(main, DType::TQ1_0 | DType::TQ2_0).then_some(Q4_K);
        }
        let i = layer(name).unwrap_or(0);
        let part = part(name);
        // Eight experts are the first mixtures, whose attention is small beside them.
        let eight_experts = model.experts == 8;
        match part {
            "attn_k" if eight_experts => Some(Q8_0),
            _ if VALUES.contains(&part) && eight_experts => Some(Q8_0),
            _ if VALUES.contains(&part) => {
                let (i, shared) =
                    (model.values.iter().position(|of| *of == i).unwrap_or(0), model.shared_heads >= 4);
                match (main, size) {
                    (Q2_K, _) if shared => Some(Q4_K),
                    (Q2_K, Medium) => Some(Q3_K),
                    (Q3_K, Medium) => Some(if i < 2 { Q5_K } else { Q4_K }),
                    (Q3_K, Large) => Some(Q5_K),
                    (IQ4_NL | IQ4_XS, _) if shared => Some(Q5_K),
                    (Q4_K | Q5_K, Medium) if more_bits(i, model.values.len()) => Some(Q6_K),
                    (Q4_K, Small) if i < 4 => Some(Q5_K),
                    _ => None,
                }
            }
            _ if part.starts_with("ffn_down") => match (main, size) {
                (Q2_K, Medium) => Some(Q3_K),
                (Q2_K, Small) if i < model.layers / 8 => Some(Q4_K),
                (Q3_K, Medium) => Some(if i < model.layers / 16 { Q5_K } else { Q4_K }),
                (Q3_K, Large) => Some(Q5_K),
                (Q4_K | Q5_K, Medium) if more_bits(i, model.layers) => Some(Q6_K),
                (IQ4_NL | IQ4_XS, _) | (Q4_K, Small) if i < model.layers / 8 => Some(Q5_K),
                _ => None,
            },
            "attn_output" => match (main, size) {
                (Q2_K | Q4_K | IQ4_NL | IQ4_XS, _) | (Q3_K, Small | Medium) if eight_experts => Some(Q5_K),
                (Q2_K, Medium) => Some(Q3_K),
                (Q3_K, Medium) => Some(Q4_K),
                (Q3_K, Large) => Some(Q5_K),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::gguf::{GgufWriter, TensorData};

    fn of(mix: &str, name: &str, columns: usize, model: &Model) -> DType {
        let mut writer = GgufWriter::new();
        let data = TensorData::Bytes(vec![0; columns * 16].into());
        writer.tensor(name, DType::F16, &[columns, 8], data).unwrap();
        let file = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let t = &file.tensors()[0];
        Mix::named(mix).unwrap().of(t, model)
    }

    #[test]
    fn types_go_by_the_rules() {
        let model = Model { layers: 16, experts: 0, shared_heads: 2, values: (0..16).collect(), tied: false };
        let down = |mix: &str| -> Vec<DType> {
            (0..5).map(|i| of(mix, &format!("blk.{i}.ffn_down.weight"), 512, &model)).collect()
        };
        use DType::{F16, IQ4_NL, Q3_K, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
        assert_eq!(down("Q4_K_M"), [Q6_K, Q6_K, Q4_K, Q4_K, Q6_K]);
        assert_eq!(down("q4_k"), down("Q4_K_M"));
        assert_eq!(down("Q4_K_S"), [Q5_K, Q5_K, Q4_K, Q4_K, Q4_K]);
        assert_eq!(down("Q3_K_M"), [Q5_K, Q4_K, Q4_K, Q4_K, Q4_K]);
        for (mix, name, columns, want) in [
            ("Q4_K_M", "output.weight", 512, Q6_K),
            ("Q4_K_M", "output.weight", 96, Q8_0),
            ("Q4_K_M", "token_embd.weight", 512, Q4_K),
            ("Q4_K_M", "blk.3.attn_q.weight", 96, Q5_0),
            ("Q5_K_M", "blk.3.attn_q.weight", 96, Q5_1),
            ("Q2_K", "blk.3.attn_v.weight", 512, Q3_K),
            ("Q2_K", "blk.3.attn_q.weight", 96, IQ4_NL),
            ("Q4_K_M", "blk.3.attn_q.weight", 80, F16),
            ("Q4_K_M", "blk.3.attn_norm.weight", 512, F16),
            ("Q4_K_M", "blk.3.ffn_gate_inp.weight", 512, F16),
            ("Q4_0", "output.weight", 512, Q6_K),
            ("F16", "output.weight", 512, F16),
            ("MXFP4_MOE", "blk.0.attn_q.weight", 512, Q8_0),
            ("MXFP4_MOE", "blk.0.ffn_up_exps.weight", 512, DType::MXFP4),
            ("TQ2_0", "token_embd.weight", 512, Q4_K),
        ] {
            assert_eq!(of(mix, name, columns, &model), want, "{mix} {name} {columns}");
        }
        let tied = Model { tied: true, shared_heads: 8, ..model };
        assert_eq!(of("Q4_K_M", "token_embd.weight", 512, &tied), Q6_K);
        assert_eq!(of("Q2_K", "blk.3.attn_v.weight", 512, &tied), Q4_K);
        let eight = Model { experts: 8, ..tied };
        assert_eq!(of("Q4_K_M", "blk.3.attn_k.weight", 512, &eight), Q8_0);
        assert_eq!(of("Q4_K_M", "blk.3.attn_output.weight", 512, &eight), Q5_K);
    }
}
