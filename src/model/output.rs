//! Results of a batch graph: the output layer, or hidden states.

use super::batch::{Predictor, Want};
use super::best::BestNodes;
use super::builder::Builder;
use ggml_core::op::Activation;
use ggml_core::{Result, TensorId};

impl Builder<'_> {
    /// Returns the number of layers that are computed.
    pub(super) fn depth(&self) -> usize {
        match self.shape.want {
            Want::Hidden(layers) => layers.min(self.hparams.layers),
            Want::Logits | Want::Best(_) => self.hparams.layers,
        }
    }

    /// Sets the wanted rows of the stream as the result in place of logits.
    pub(super) fn hidden(&mut self, x: TensorId) -> Result<()> {
        let all = self.graph.tensor(x).ne[1] > self.shape.outputs;
        self.logits = Some(match self.inputs.output_rows.filter(|_| all) {
            Some(rows) => {
                let picked = self.graph.get_rows(x, rows)?;
                self.name(picked, "hidden")?
            }
            None => x,
        });
        Ok(())
    }

    /// Builds the final norm and the output layer. Returns the normed hidden states.
    pub(super) fn output(&mut self, x: TensorId, norm: &str) -> Result<TensorId> {
        self.begin_unit();
        if self.depth() < self.hparams.layers {
            return self.hidden(x).map(|()| x);
        }
        // Some converters write the usual name for every architecture.
        let usual = self.gguf.tensor(&format!("{norm}.weight")).is_none()
            && self.gguf.tensor("output_norm.weight").is_some();
        let x = self.norm(x, if usual { "output_norm" } else { norm })?;
        if let Want::Hidden(_) = self.shape.want {
            return self.hidden(x).map(|()| x);
        }
        let mut wanted_rows = x;
        if let Some(rows) = self.inputs.output_rows.filter(|_| self.shape.predictor == Predictor::Follows) {
            wanted_rows = self.graph.get_rows(x, rows)?;
            self.name(wanted_rows, "output_norm.needed")?;
        }
        // Tied: the token embedding is also the output layer.
        let tied = self.gguf.tensor("output.weight").is_none();
        let table = if tied { "token_embd.weight" } else { "output.weight" };
        let logits = self.logits(wanted_rows, table, self.hparams.vocabulary)?;
        self.logits = Some(logits);
        if let Want::Best(k) = self.shape.want {
            self.best = Some(BestNodes::new(&mut self.graph, logits, k)?);
        }
        Ok(x)
    }

    /// Builds the logits of the first `among` tokens after normed hidden states. `table` is the weight of the output layer.
    pub(super) fn logits(&mut self, x: TensorId, table: &str, among: usize) -> Result<TensorId> {
        let mut weight = self.token_table(table, self.hparams.embedding)?;
        if among < self.hparams.vocabulary {
            let t = self.graph.tensor(weight);
            let (ne, nb) = ([t.ne[0], among, 1, 1], t.nb);
            weight = self.graph.view(weight, ne, [nb[0], nb[1], nb[1] * among, nb[1] * among], 0)?;
        }
        let product = self.graph.mul_mat(weight, x)?;
        let product = self.times_scale(product, "output")?;
        let (factor, cap) = (self.hparams.scales.logits, self.hparams.soft_caps.logits);
        let logits = if cap != 0.0 {
            // cap tanh(factor x / cap)
            self.name(product, "logits.product")?;
            let inner = self.scaled(product, factor / cap, "logits.inner")?;
            let bounded = self.graph.unary(Activation::Tanh, inner)?;
            self.name(bounded, "logits.tanh")?;
            self.graph.scale(bounded, cap, 0.0)?
        } else if factor != 1.0 {
            self.name(product, "logits.product")?;
            self.graph.scale(product, factor, 0.0)?
        } else {
            product
        };
        self.name(logits, "logits")
    }
}
