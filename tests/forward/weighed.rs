//! Experts whose inputs are weighted: the weight applies to the products, not to their biases, and to gate and
//! up in one matrix as to two.

use super::{CONTEXT, TOKENS, backends, file, forward, options, tiny};
use diptych::ggml::gguf::{GgufFile, GgufWriter};
use diptych::ggml::metrics::distance;
use diptych::model::{Experts, ModelFile};
use diptych::synthesize::Shape;
use diptych::{DType, Model, Precision};

/// Change to the experts of a file.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Biases of the gates and of the results.
    Biases,
    /// Gate and up become the halves of one matrix.
    OneMatrix,
}

fn changed(original: &ModelFile, change: Change) -> ModelFile {
    let original = original.gguf();
    let mut writer = GgufWriter::new();
    writer.set_all(original.metadata()).unwrap();
    for t in original.tensors() {
        let bytes = original.data(t).unwrap();
        let part = t.name.split('.').nth(2).unwrap_or_default();
        let [k, n, experts] = [t.ne[0], t.ne[1], t.ne[2]];
        match (change, part) {
            (Change::Biases, "ffn_gate_exps" | "ffn_down_exps") => {
                let bias: Vec<u8> =
                    (0..n * experts).flat_map(|i| ((i % 7) as f32 * 0.3 - 0.8).to_le_bytes()).collect();
                writer.tensor(t.name.replace("weight", "bias"), DType::F32, &[n, experts], bias).unwrap();
            }
            (Change::OneMatrix, "ffn_up_exps") => continue,
            (Change::OneMatrix, "ffn_gate_exps") => {
                let up = original.require(&t.name.replace("gate", "up")).unwrap();
                let halves = bytes.chunks(4 * k * n).zip(original.data(up).unwrap().chunks(4 * k * n));
                let both: Vec<u8> = halves.flat_map(|(gate, up)| [gate, up].concat()).collect();
                let name = t.name.replace("ffn_gate_exps", "ffn_gate_up_exps");
                writer.tensor(name, t.dtype, &[k, 2 * n, experts], both).unwrap();
                continue;
            }
            _ => {}
        }
        writer.tensor(t.name.clone(), t.dtype, t.shape(), bytes.to_vec()).unwrap();
    }
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

#[test]
fn weights_of_inputs_apply_to_products() {
    let tiny = tiny("llama4", DType::F32);
    let experts = Some(Experts { used: 2, ..tiny.experts.expect("experts") });
    let shape = Shape { experts, ..tiny };
    for change in [Change::Biases, Change::OneMatrix] {
        let want = forward(&changed(&file(&shape), change), &TOKENS[..9], CONTEXT);
        for (name, backend) in backends().into_iter().filter(|(name, _)| ["reference", "cpu"].contains(name))
        {
            let model = Model::from_file(changed(&file(&shape), change), backend).unwrap();
            let got = model.session(&options(Precision::Exact)).unwrap().logits(&TOKENS[..9]).unwrap();
            let error = distance(&got, &want).nmse;
            assert!(error < 1e-10, "{change:?} on {name}: {error:.1e}");
        }
    }
}
