//! Experts of a mixture, and the rule that chooses them. The graph is in [`crate::model`]'s `moe`, with the
//! sources.

use super::Hparams;
use super::values::{checked, named, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;

/// Function that turns a router's scores into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
    /// Sigmoid of each score.
    Sigmoid,
}

/// Experts of a model, and the rule that chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// Experts of each layer that has any.
    pub count: usize,
    /// Experts that compute a token.
    pub used: usize,
    /// Width of an expert's feed-forward network.
    pub feed_forward: usize,
    /// Width of the shared network that computes every token in addition to the chosen experts; 0 if there is
    /// none.
    pub shared: usize,
    /// Function that turns scores into probabilities.
    pub gating: Gating,
    /// True if the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Number of groups that the experts are divided into.
    pub groups: usize,
    /// Number of groups that a token's experts come from.
    pub groups_used: usize,
    /// True if an expert has a gate; otherwise it is `down(max(up x, 0)^2)`, and so is the shared network.
    pub gated: bool,
    /// True if an expert's weight multiplies its input instead of its result.
    pub weighs_input: bool,
    /// Number of initial layers without experts.
    pub dense: usize,
    /// Period of the layers with experts: layer `i` has experts if `i >= dense` and `step` divides `i + 1`.
    pub step: usize,
}

/// Largest number of experts of a token: each adds its own nodes. Known models use no more than a few dozen.
const MAX_USED: usize = 256;

impl Experts {
    /// Returns experts whose weights are the soft-max of their scores.
    pub const fn new(count: usize, used: usize, feed_forward: usize) -> Experts {
        Experts {
            count,
            used,
            feed_forward,
            shared: 0,
            gating: Gating::SoftMax,
            normalised: true,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
            gated: true,
            weighs_input: false,
            dense: 0,
            step: 1,
        }
    }

    /// Number of best experts whose probabilities are summed to rank a group: two (DeepSeek-V3 report,
    /// 2.1.2), or one if probabilities are a soft-max (DeepSeek-V2 report, 2.2.2).
    pub(in crate::model) fn best_of_group(&self) -> usize {
        if self.gating == Gating::SoftMax { 1 } else { 2 }
    }

    /// True if a layer has experts.
    pub fn has(&self, layer: usize) -> bool {
        layer >= self.dense && (layer + 1).is_multiple_of(self.step)
    }

    /// Reads the experts of a model, or `None` if it has none.
    pub(in crate::model) fn read_if_any(
        gguf: &GgufFile,
        h: &Hparams,
        normalised: bool,
    ) -> Result<Option<Experts>> {
        let count = gguf.metadata().opt_usize(&h.key("expert_count"))?.unwrap_or(0);
        if count > 0 { Experts::read(gguf, h, normalised).map(Some) } else { Ok(None) }
    }

    /// Reads and checks the experts. `normalised` is the default for files that do not record it.
    pub(in crate::model) fn read(gguf: &GgufFile, h: &Hparams, normalised: bool) -> Result<Experts> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let optional = |name: &str, default: usize| match m.opt_usize(&h.key(name))? {
            None | Some(0) => Ok(default),
            Some(n) => checked(&h.key(name), n),
        };
        let (count, used) = (extent("expert_count")?, extent("expert_used_count")?);
        if used > count || used > MAX_USED {
            let found = format!("{used} of {count} experts");
            let expected = format!("no more than there are, and at most {MAX_USED}");
            return Err(Error::model(named(&h.key("expert_used_count")), found, expected));
        }
        let feed_forward = optional("expert_feed_forward_length", h.feed_forward[0])?;
        let shared = optional("expert_shared_count", 0)?.saturating_mul(feed_forward);
        let key = h.key("expert_gating_func");
        let gating = match m.opt_usize(&key)? {
            // 3: the soft-max over the chosen experts, which equals the normalised one over all.
            None | Some(0 | 1 | 3) => Gating::SoftMax,
            Some(2) => Gating::Sigmoid,
            Some(other) => return Err(Error::model(named(&key), other, "1 (soft-max) or 2 (sigmoid)")),
        };
        let key = h.key("expert_weights_scale");
        let scale = m.opt_f32(&key)?.filter(|&scale| scale != 0.0);
        let normalised = m.opt_bool(&h.key("expert_weights_norm"))?.unwrap_or(normalised);
        Ok(Experts {
            shared: optional("expert_shared_feed_forward_length", shared)?,
            gating,
            normalised,
            scale: scale.map_or(Ok(1.0), |scale| positive(&key, scale))?,
            groups: optional("expert_group_count", 1)?,
            groups_used: optional("expert_group_used_count", 1)?,
            dense: optional("leading_dense_block_count", 0)?,
            step: optional("interleave_moe_layer_step", 1)?,
            ..Experts::new(count, used, feed_forward)
        })
    }

    /// Checks that groups have equal size and that the used groups have enough experts. The rule that ranks
    /// groups must be known: an architecture may change the gating after [`Experts::read`].
    pub(in crate::model) fn check_groups(&self, h: &Hparams) -> Result<()> {
        let Experts { count, used, groups, groups_used, .. } = *self;
        let (size, best_of_group) = (count / groups, self.best_of_group());
        let fits = groups_used <= groups && used <= size.saturating_mul(groups_used);
        if groups == 1 || count % groups == 0 && size >= best_of_group && fits {
            return Ok(());
        }
        let found = format!("{groups_used} of {groups} groups of {count} experts, {used} of which are used");
        let expected =
            format!("equal groups of {best_of_group} experts or more, those used with enough experts");
        Err(Error::model(named(&h.key("expert_group_count")), found, expected))
    }
}
