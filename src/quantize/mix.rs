//! Mixes: the rules that give each tensor its type, as in llama.cpp's files, with one exception: IQ4_NL, IQ4_XS and
//! Q4_K_M give attention values more bits from three query heads for each key head on. These matrices are small there,
//! and each of their errors reaches several heads. For SmolLM2-135M the files are 0.7 and 0.6 % larger, and perplexity on
//! 3,570 tokens is 21.02 in place of 21.62 (IQ4_XS) and 18.78 in place of 18.99 (Q4_K_M).

use crate::model::part_by_name;
use ggml_core::gguf::{GgufFile, TensorInfo};
use ggml_core::{DType, Error, Result};

/// Number of more precise tensors in a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Only the output layer gets a better type.
    Plain,
    Small,
    Medium,
    Large,
    /// Only experts get the main type.
    Experts,
}

/// Named selection of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    name: &'static str,
    main: DType,
    size: Size,
    /// Id in `general.file_type`; `None` if the mix has no id yet.
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
    mix("IQ1_S", DType::IQ1_S, Size::Small, 24),
    mix("IQ1_M", DType::IQ1_M, Size::Small, 31),
    mix("IQ2_XXS", DType::IQ2_XXS, Size::Small, 19),
    mix("IQ2_XS", DType::IQ2_XS, Size::Small, 20),
    mix("IQ2_S", DType::IQ2_XS, Size::Medium, 28),
    mix("IQ2_M", DType::IQ2_S, Size::Medium, 29),
    mix("IQ3_XXS", DType::IQ3_XXS, Size::Small, 23),
    mix("IQ3_XS", DType::IQ3_S, Size::Small, 22),
    mix("IQ3_S", DType::IQ3_S, Size::Plain, 26),
    mix("IQ3_M", DType::IQ3_S, Size::Medium, 27),
    mix("IQ4_NL", DType::IQ4_NL, Size::Plain, 25),
    mix("IQ4_XS", DType::IQ4_XS, Size::Plain, 30),
    mix("TQ1_0", DType::TQ1_0, Size::Plain, 36),
    mix("TQ2_0", DType::TQ2_0, Size::Plain, 37),
    Mix { name: "MXFP4", main: DType::MXFP4, size: Size::Plain, file_type: None },
    mix("MXFP4_MOE", DType::MXFP4, Size::Experts, 38),
    mix("NVFP4", DType::NVFP4, Size::Plain, 39),
    mix("Q1_0", DType::Q1_0, Size::Plain, 40),
    mix("Q2_0", DType::Q2_0, Size::Plain, 41),
];

/// Short names for the middle one of several mixes.
const SHORT: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Types of fewer than three bits.
const FEW: [DType; 5] = [DType::IQ1_S, DType::IQ1_M, DType::IQ2_XXS, DType::IQ2_XS, DType::IQ2_S];

/// Token tables: operations select rows of them, so importance has no meaning for their columns.
const TABLES: [&str; 2] = ["token_embd.weight", "per_layer_token_embd.weight"];

/// True if a type loses too much when all columns have equal importance.
fn is_rough(dtype: DType) -> bool {
    FEW.contains(&dtype) || dtype == DType::IQ3_XXS
}

/// True for a token table, for which an importance matrix may have an entry of another length.
pub(super) fn is_table(name: &str) -> bool {
    TABLES.contains(&name)
}

/// Substrings of the names of matrices that stay unchanged: small ones with a large influence.
const UNCHANGED: [&str; 8] = [
    "_norm.weight",
    "ffn_gate_inp",
    "ssm_conv1d",
    "shortconv.conv",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "attn_rel_b",
];

/// Properties of a model that the rules depend on.
pub(super) struct ModelProperties {
    layers: usize,
    /// Number of layers that a text passes through; those after them predict further tokens.
    computed: usize,
    experts: usize,
    /// Number of query heads for each key head.
    shared_heads: usize,
    /// Indices of layers with a matrix for attention values.
    values: Vec<usize>,
    tied: bool,
    /// True if there is an importance matrix.
    weighed: bool,
}

/// Matrices that give the attention values, by themselves or with other parts.
const VALUES: [&str; 3] = ["attn_v", "attn_qkv", "attn_kv_b"];

/// Returns the part of a layer that a tensor belongs to.
fn part(name: &str) -> &str {
    name.split('.').nth(2).unwrap_or_default()
}

/// Returns the layer of a tensor.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

impl ModelProperties {
    pub(super) fn new(file: &GgufFile, weighed: bool) -> ModelProperties {
        let m = file.metadata();
        let architecture = m.str("general.architecture").unwrap_or_default().to_string();
        // The maximum over the layers if they differ.
        let number = |key: &str| {
            let key = format!("{architecture}.{key}");
            let one = m.opt_usize(&key).ok().flatten();
            one.or_else(|| m.opt_array_usize(&key).ok().flatten()?.into_iter().max()).unwrap_or(0)
        };
        let names = || file.tensors().iter().map(|t| t.name.as_str());
        // A bias has the same part.
        let is_value = |name: &&str| VALUES.contains(&part(name)) && name.ends_with(".weight");
        let mut values: Vec<usize> = names().filter(is_value).filter_map(layer).collect();
        values.sort_unstable();
        let layers = number("block_count");
        ModelProperties {
            layers,
            computed: layers.saturating_sub(number("nextn_predict_layers")),
            experts: number("expert_count"),
            shared_heads: number("attention.head_count") / number("attention.head_count_kv").max(1),
            values,
            tied: !names().any(|name| name == "output.weight"),
            weighed,
        }
    }

    /// True if a text does not pass through a tensor, so that no importance matrix has an entry for it:
    /// layers that predict further tokens, and what [`ModelFile::left_out`](crate::model::ModelFile::left_out) lists.
    fn is_bypassed(&self, name: &str) -> bool {
        let further =
            layer(name).is_some_and(|i| (self.computed..self.layers).contains(&i)) || part(name) == "nextn";
        further || part_by_name(name).is_some()
    }

    /// True if a tensor loses too much in a type when all of its columns have equal importance. (Token
    /// tables, the output layer and tensors that a text does not pass through may have any type.)
    pub(super) fn needs_importance(&self, name: &str, dtype: DType) -> bool {
        let free = name == "output.weight" || TABLES.contains(&name) || self.is_bypassed(name);
        !free && is_rough(dtype)
    }
}

/// Type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Type that the tensor gets.
    pub(super) dtype: DType,
    /// Type by the rules of the mix, whose blocks may not fit the tensor's rows.
    pub(super) wanted: DType,
}

/// True if layer `i` of `n` gets more bits: the first and last eighths, and every third layer between.
fn more_bits(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// Returns the type, or the next larger one that fits if rows are no multiple of its blocks.
fn fitting(dtype: DType, columns: usize) -> DType {
    let instead = match dtype {
        _ if columns.is_multiple_of(dtype.block()) => return dtype,
        DType::Q2_K | DType::Q3_K | DType::IQ4_XS | DType::IQ3_XXS | DType::IQ3_S => DType::IQ4_NL,
        _ if FEW.contains(&dtype) => DType::IQ4_NL,
        DType::TQ1_0 | DType::TQ2_0 => DType::Q2_0,
        DType::Q1_0 | DType::Q2_0 => DType::Q4_0,
        DType::Q4_K | DType::NVFP4 => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        _ => return DType::F16,
    };
    fitting(instead, columns)
}

impl Mix {
    /// Returns the mix of a name, in upper or lower case.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none of that name.
    pub fn named(name: &str) -> Result<Mix> {
        let long =
            SHORT.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)).map_or(name, |(_, long)| long);
        let known = MIXES.iter().find(|mix| mix.name.eq_ignore_ascii_case(long)).copied();
        known.ok_or_else(|| {
            let expected = format!("one of {}", Mix::names().collect::<Vec<_>>().join(", "));
            Error::argument("type", format!("'{name}'"), expected)
        })
    }

    /// Returns all names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MIXES.iter().map(|mix| mix.name)
    }

    /// Returns the id in `general.file_type`.
    pub(super) fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// Returns the type of a tensor if all matrices get the main type.
    pub(super) fn pure(&self, t: &TensorInfo) -> Choice {
        let matrix = t.n_dims > 1 && t.name.ends_with("weight");
        if matrix && !UNCHANGED.iter().any(|part| t.name.contains(part)) && t.dtype.info().computable {
            Choice { dtype: fitting(self.main, t.ne[0]), wanted: self.main }
        } else {
            Choice { dtype: t.dtype, wanted: t.dtype }
        }
    }

    /// Returns the type of a tensor.
    pub(super) fn of(&self, t: &TensorInfo, model: &ModelProperties) -> Choice {
        let pure = self.pure(t);
        if pure.dtype == t.dtype || !self.main.is_quantized() {
            return pure;
        }
        let wanted = self.special(t, model).unwrap_or(self.main);
        let fits = t.ne[0].is_multiple_of(wanted.block());
        // The output layer has the most influence.
        let instead = if self.is_output(&t.name, model) && !fits { DType::Q8_0 } else { wanted };
        Choice { dtype: fitting(instead, t.ne[0]), wanted }
    }

    /// True for the token table `token_embd`, and for further ones if the main type is rough.
    fn is_embedding(&self, name: &str) -> bool {
        name == "token_embd.weight" || is_rough(self.main) && is_table(name)
    }

    /// True for the output layer, and for a token table in its place.
    fn is_output(&self, name: &str, model: &ModelProperties) -> bool {
        let experts = self.size == Size::Experts;
        !experts && (name == "output.weight" || self.is_embedding(name) && model.tied)
    }

    /// Returns the type of a matrix that does not get the main type.
    fn special(&self, t: &TensorInfo, model: &ModelProperties) -> Option<DType> {
        use DType::{IQ2_S, IQ3_S, IQ3_XXS, IQ4_NL, IQ4_XS, MXFP4, NVFP4};
        use DType::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
        use Size::{Experts, Large, Medium, Small};
        let (name, main, size) = (t.name.as_str(), self.main, self.size);
        if size == Experts {
            return (!name.contains("_exps.")).then_some(Q8_0);
        }
        let few = FEW.contains(&main);
        let rough = is_rough(main);
        let embedding = self.is_embedding(name);
        if self.is_output(name, model) {
            let eight = matches!(main, Q8_0 | MXFP4 | NVFP4);
            return Some(if eight {
                Q8_0
            } else if rough {
                Q5_K
            } else {
                Q6_K
            });
        }
        if rough && model.is_bypassed(name) {
            return Some(IQ3_S);
        }
        if embedding && rough {
            return Some(if few && size == Small { Q2_K } else { IQ3_S });
        }
        if embedding {
            return matches!(main, DType::TQ1_0 | DType::TQ2_0).then_some(Q4_K);
        }
        let i = layer(name).unwrap_or(0);
        let part = part(name);
        // Eight experts identify the first mixtures, whose attention is small compared to the experts.
        let eight_experts = model.experts == 8;
        if few {
            return self.of_few(part, i, model);
        }
        match part {
            "attn_k" if eight_experts => Some(Q8_0),
            _ if VALUES.contains(&part) && eight_experts => Some(Q8_0),
            _ if VALUES.contains(&part) => {
                let (i, shared) =
                    (model.values.iter().position(|of| *of == i).unwrap_or(0), model.shared_heads >= 4);
                let small = part == "attn_v" && model.shared_heads >= 3;
                match (main, size) {
                    (Q2_K, _) if shared => Some(Q4_K),
                    (Q2_K, Medium) => Some(Q3_K),
                    (Q3_K, Medium) => Some(if i < 2 { Q5_K } else { Q4_K }),
                    (Q3_K, Large) => Some(Q5_K),
                    (IQ3_S, Medium) => Some(Q4_K),
                    (IQ3_XXS | IQ3_S, _) if shared => Some(Q4_K),
                    (IQ4_NL | IQ4_XS, _) if shared || small => Some(Q5_K),
                    (Q4_K, Medium) if small => Some(Q6_K),
                    (Q4_K | Q5_K, Medium) if more_bits(i, model.values.len()) => Some(Q6_K),
                    (Q4_K, Small) if i < 4 => Some(Q5_K),
                    _ => None,
                }
            }
            "attn_q" | "attn_k" => match (main, size) {
                (IQ3_S, Small) => Some(IQ3_XXS),
                (IQ3_XXS, _) => Some(IQ2_S),
                _ => None,
            },
            _ if part.starts_with("ffn_down") => match (main, size) {
                (Q4_0, _) if model.weighed && i < model.layers / 8 => Some(Q4_1),
                (Q5_0, _) if model.weighed && i < model.layers / 8 => Some(Q5_1),
                (IQ4_NL | IQ4_XS, _) if model.weighed => None,
                (IQ3_S, Medium) if i < model.layers / 8 => Some(Q4_K),
                (IQ3_S, Medium) if eight_experts && more_bits(i, model.layers) => Some(Q4_K),
                (Q2_K, Medium) => Some(Q3_K),
                (Q2_K, Small) if i < model.layers / 8 => Some(Q4_K),
                (Q3_K, Medium) => Some(if i < model.layers / 16 { Q5_K } else { Q4_K }),
                (Q3_K, Large) => Some(Q5_K),
                (Q4_K | Q5_K, Medium) if more_bits(i, model.layers) => Some(Q6_K),
                (IQ4_NL | IQ4_XS, _) | (Q4_K, Small) if i < model.layers / 8 => Some(Q5_K),
                _ => None,
            },
            "attn_output" => match (main, size) {
                (Q2_K | Q4_K | IQ3_XXS | IQ3_S | IQ4_NL | IQ4_XS, _) | (Q3_K, Small | Medium)
                    if eight_experts =>
                {
                    Some(Q5_K)
                }
                (IQ3_XXS, _) => Some(IQ3_S),
                (IQ3_S, Medium) => Some(Q4_K),
                (Q2_K, Medium) => Some(Q3_K),
                (Q3_K, Medium) => Some(Q4_K),
                (Q3_K, Large) => Some(Q5_K),
                _ => None,
            },
            _ if part.starts_with("ffn_gate") || part.starts_with("ffn_up") => {
                let inner = i >= model.layers / 8 && i < 7 * model.layers / 8;
                (main == IQ3_S && size == Small && inner).then_some(IQ3_XXS)
            }
            _ => None,
        }
    }

    /// Returns the type of a part of a layer if the main type has fewer than three bits.
    fn of_few(&self, part: &str, i: usize, model: &ModelProperties) -> Option<DType> {
        use DType::{IQ1_M, IQ1_S, IQ2_XXS, IQ3_S, Q2_K, Q4_K, Q5_K};
        let better = if self.size == Size::Medium { IQ3_S } else { Q2_K };
        match part {
            _ if VALUES.contains(&part) => {
                Some(if model.shared_heads >= 4 || model.experts >= 4 { Q4_K } else { better })
            }
            "attn_k" if model.experts == 8 => Some(Q4_K),
            "attn_output" if model.experts == 8 => Some(Q5_K),
            "attn_output" if matches!(self.main, IQ1_S | IQ1_M) => Some(IQ2_XXS),
            "attn_output" => (self.size == Size::Medium).then_some(IQ3_S),
            _ if part.starts_with("ffn_down") => (i < model.layers / 8).then_some(better),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::gguf::{GgufWriter, TensorData};

    fn of(mix: &str, name: &str, columns: usize, model: &ModelProperties) -> DType {
        let mut writer = GgufWriter::new();
        let data = TensorData::Bytes(vec![0; columns * 16].into());
        writer.tensor(name, DType::F16, &[columns, 8], data).unwrap();
        let file = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let t = &file.tensors()[0];
        Mix::named(mix).unwrap().of(t, model).dtype
    }

    fn plain() -> ModelProperties {
        let values = (0..16).collect();
        let [layers, computed] = [16; 2];
        ModelProperties { layers, computed, experts: 0, shared_heads: 2, values, tied: false, weighed: false }
    }

    #[test]
    fn types_go_by_the_rules() {
        let model = plain();
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
            ("TQ2_0", "blk.3.attn_q.weight", 576, DType::Q2_0),
            ("TQ1_0", "blk.3.attn_q.weight", 96, DType::Q4_0),
        ] {
            assert_eq!(of(mix, name, columns, &model), want, "{mix} {name} {columns}");
        }
        let tied = ModelProperties { tied: true, shared_heads: 8, ..model };
        assert_eq!(of("Q4_K_M", "token_embd.weight", 512, &tied), Q6_K);
        assert_eq!(of("Q2_K", "blk.3.attn_v.weight", 512, &tied), Q4_K);
        let three = || ModelProperties { shared_heads: 3, ..plain() };
        for (mix, name, of_two, of_three) in [
            ("Q4_K_M", "blk.3.attn_v.weight", Q4_K, Q6_K),
            ("Q4_K_M", "blk.3.attn_qkv.weight", Q4_K, Q4_K),
            ("Q5_K_M", "blk.3.attn_v.weight", Q5_K, Q5_K),
            ("IQ4_XS", "blk.3.attn_v.weight", DType::IQ4_XS, Q5_K),
        ] {
            let types = [plain(), three()].map(|model| of(mix, name, 512, &model));
            assert_eq!(types, [of_two, of_three], "{mix} {name}");
        }
        let eight = ModelProperties { experts: 8, ..tied };
        assert_eq!(of("Q4_K_M", "blk.3.attn_k.weight", 512, &eight), Q8_0);
        assert_eq!(of("Q4_K_M", "blk.3.attn_output.weight", 512, &eight), Q5_K);
    }

    /// Checks parts of a layer against llama-quantize's files with these mixes.
    #[test]
    fn few_bits_go_by_the_rules() {
        use DType::{
            IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_NL, Q2_K, Q4_K, Q5_K, Q6_K, Q8_0,
        };
        let model = || ModelProperties { weighed: true, ..plain() };
        let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
        let layer = |mix: &str, i: usize, model: &ModelProperties| {
            parts.map(|part| of(mix, &format!("blk.{i}.{part}.weight"), 512, model))
        };
        for (mix, [q, k, v, output, gate, up, down], first_down, table, tied) in [
            ("IQ1_S", [IQ1_S, IQ1_S, Q2_K, IQ2_XXS, IQ1_S, IQ1_S, IQ1_S], Q2_K, Q2_K, Q5_K),
            ("IQ1_M", [IQ1_M, IQ1_M, Q2_K, IQ2_XXS, IQ1_M, IQ1_M, IQ1_M], Q2_K, Q2_K, Q5_K),
            ("IQ2_XXS", [IQ2_XXS, IQ2_XXS, Q2_K, IQ2_XXS, IQ2_XXS, IQ2_XXS, IQ2_XXS], Q2_K, Q2_K, Q5_K),
            ("IQ2_XS", [IQ2_XS, IQ2_XS, Q2_K, IQ2_XS, IQ2_XS, IQ2_XS, IQ2_XS], Q2_K, Q2_K, Q5_K),
            ("IQ2_S", [IQ2_XS, IQ2_XS, IQ3_S, IQ3_S, IQ2_XS, IQ2_XS, IQ2_XS], IQ3_S, IQ3_S, Q5_K),
            ("IQ2_M", [IQ2_S, IQ2_S, IQ3_S, IQ3_S, IQ2_S, IQ2_S, IQ2_S], IQ3_S, IQ3_S, Q5_K),
            ("IQ3_XXS", [IQ2_S, IQ2_S, IQ3_XXS, IQ3_S, IQ3_XXS, IQ3_XXS, IQ3_XXS], IQ3_XXS, IQ3_S, Q5_K),
            ("IQ3_XS", [IQ3_XXS, IQ3_XXS, IQ3_S, IQ3_S, IQ3_XXS, IQ3_XXS, IQ3_S], IQ3_S, IQ3_S, Q6_K),
            ("IQ3_S", [IQ3_S, IQ3_S, IQ3_S, IQ3_S, IQ3_S, IQ3_S, IQ3_S], IQ3_S, IQ3_S, Q6_K),
            ("IQ3_M", [IQ3_S, IQ3_S, Q4_K, Q4_K, IQ3_S, IQ3_S, IQ3_S], Q4_K, IQ3_S, Q6_K),
        ] {
            assert_eq!(layer(mix, 5, &model()), [q, k, v, output, gate, up, down], "{mix}");
            assert_eq!(of(mix, "blk.1.ffn_down.weight", 512, &model()), first_down, "{mix}");
            assert_eq!(of(mix, "token_embd.weight", 512, &model()), table, "{mix}");
            assert_eq!(of(mix, "output.weight", 512, &model()), tied, "{mix}");
            assert_eq!(
                of(mix, "token_embd.weight", 512, &ModelProperties { tied: true, ..model() }),
                tied,
                "{mix}"
            );
            assert_eq!(of(mix, "output.weight", 96, &model()), Q8_0, "{mix}");
            assert_eq!(of(mix, "blk.5.ffn_up.weight", 96, &model()), IQ4_NL, "{mix}");
            // Many query heads share a key head, so keys and values are small.
            let shared = ModelProperties { shared_heads: 4, ..model() };
            assert_eq!(of(mix, "blk.5.attn_v.weight", 512, &shared), Q4_K, "{mix}");
        }
        assert_eq!(of("IQ3_XS", "blk.1.ffn_gate.weight", 512, &model()), IQ3_S);
        assert_eq!(of("IQ3_XS", "blk.14.ffn_up_exps.weight", 512, &model()), IQ3_S);
        let eight = ModelProperties { experts: 8, ..model() };
        for (mix, [k, v, output]) in [("IQ2_XS", [Q4_K, Q4_K, Q5_K]), ("IQ3_XXS", [Q8_0, Q8_0, Q5_K])] {
            let got = ["attn_k", "attn_v", "attn_output"].map(|part| format!("blk.5.{part}.weight"));
            assert_eq!(got.map(|name| of(mix, &name, 512, &eight)), [k, v, output], "{mix}");
        }
        assert_eq!(of("IQ3_M", "blk.2.ffn_down_exps.weight", 512, &eight), IQ3_S);
        assert_eq!(of("IQ3_M", "blk.4.ffn_down_exps.weight", 512, &eight), Q4_K);
        assert_eq!(of("IQ2_XXS", "per_layer_token_embd.weight", 512, &model()), Q2_K);
    }

    /// Checks that an importance matrix changes the first layers of some mixes.
    #[test]
    fn importance_changes_some_types() {
        use DType::{IQ4_XS, Q4_0, Q4_1, Q5_0, Q5_1, Q5_K};
        let weighed = ModelProperties { weighed: true, ..plain() };
        for (mix, without, with) in [("Q4_0", Q4_0, Q4_1), ("Q5_0", Q5_0, Q5_1), ("IQ4_XS", Q5_K, IQ4_XS)] {
            let first = |model: &ModelProperties| of(mix, "blk.1.ffn_down.weight", 512, model);
            assert_eq!((first(&plain()), first(&weighed)), (without, with), "{mix}");
        }
    }

    #[test]
    fn some_types_need_importance() {
        let model = ModelProperties { computed: 15, ..plain() };
        for (dtype, needs) in [
            (DType::IQ1_S, true),
            (DType::IQ2_S, true),
            (DType::IQ3_XXS, true),
            (DType::IQ3_S, false),
            (DType::Q2_K, false),
        ] {
            assert_eq!(model.needs_importance("blk.0.attn_q.weight", dtype), needs, "{dtype}");
            assert!(
                !model.needs_importance("token_embd.weight", dtype)
                    && !model.needs_importance("output.weight", dtype)
            );
        }
        for name in [
            "blk.15.attn_q.weight",
            "blk.14.nextn.eh_proj.weight",
            "v.blk.0.attn_q.weight",
            "a.blk.0.ffn_up.weight",
            "mm.0.weight",
        ] {
            assert!(!model.needs_importance(name, DType::IQ2_XXS), "{name}");
            for mix in ["IQ1_S", "IQ2_M", "IQ3_XXS"] {
                assert_eq!(of(mix, name, 512, &model), DType::IQ3_S, "{mix} {name}");
            }
            assert_eq!(of("Q8_0", name, 512, &model), DType::Q8_0, "{name}");
        }
    }
}
