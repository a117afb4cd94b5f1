//! Kernels that the fake driver computes.

use crate::code::kernels::KernelSet;
use crate::op::{Context, Launch, Operand, Refusal};
use ggml_core::Op;
use ggml_core::fuse::{Chain, Group};
use ggml_core::kernel::{BinaryParams, NormParams, RopeParams, UnaryParams};

/// Code object of [`FakeKernels`].
pub(super) const IMAGE: &[u8] = b"not an ELF file, so nothing is known of its kernels";

/// Returns the text with the kernels of [`FakeKernels`].
fn text() -> &'static [u8] {
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n".to_string();
    let kernels = [
        ("add", 3, size_of::<BinaryParams>()),
        ("scale", 2, size_of::<UnaryParams>()),
        ("double", 2, size_of::<NormParams>()),
        ("halve", 2, size_of::<NormParams>()),
        ("constant", 4, size_of::<RopeParams>()),
    ];
    for (name, operands, params) in kernels {
        let operands: String = (0..operands).map(|i| format!(".param .u64 p{i}, ")).collect();
        text += &format!(".visible .entry {name}({operands}.param .align 4 .b8 p[{params}]) {{ ret; }}\n");
    }
    text.leak().as_bytes()
}

/// Kernels that [`Fake`](super::fake::Fake) computes: ADD, SCALE, RMS_NORM (the identity, through scratch), ROPE (its constant).
#[derive(Debug, Default)]
pub(crate) struct FakeKernels {
    /// Targets; "gfx906" if empty.
    pub(crate) targets: Vec<&'static str>,
    /// True for kernels that are text.
    pub(crate) is_text: bool,
}

impl KernelSet for FakeKernels {
    fn targets(&self) -> Vec<&'static str> {
        if self.targets.is_empty() { vec!["gfx906"] } else { self.targets.clone() }
    }

    fn code_object(&self, _target: &str, stem: &str) -> Option<&'static [u8]> {
        (stem == "fake").then(|| if self.is_text { text() } else { IMAGE })
    }

    fn plan(&self, c: &Context<'_>, _group: &Group) -> Result<Vec<Launch>, Refusal> {
        let (g, node) = (c.graph, c.node);
        let src = g.tensor(node).src().to_vec();
        let launch = |kernel, mut operands: Vec<Operand>, to: Operand, params: &[u8]| {
            operands.push(to);
            let (grid, block) = ([1; 3], [64, 1, 1]);
            Launch {
                module: "fake",
                kernel,
                operands,
                written: 1,
                params: params.into(),
                grid,
                block,
                lds_bytes: 0,
            }
        };
        let all = || src.iter().map(|&s| Operand::Tensor(s)).collect::<Vec<_>>();
        let to = Operand::Tensor(node);
        Ok(match g.tensor(node).op() {
            None => Vec::new(),
            Some(op) if op.is_view() => Vec::new(),
            Some(Op::Binary(ggml_core::op::Binary::Add)) => {
                vec![launch("add", all(), to, bytemuck::bytes_of(&BinaryParams::new(g, node, &[])?))]
            }
            Some(Op::Scale(_)) => {
                vec![launch(
                    "scale",
                    all(),
                    to,
                    bytemuck::bytes_of(&UnaryParams::new(g, &Chain::of_one(g, node), [0; 5])?),
                )]
            }
            Some(Op::RmsNorm(_)) => {
                let params = NormParams::new(g, node, &[])?;
                let scratch = Operand::Scratch(256, g.tensor(node).dense_bytes());
                vec![
                    launch("double", all(), scratch, bytemuck::bytes_of(&params)),
                    launch("halve", vec![scratch], to, bytemuck::bytes_of(&params)),
                ]
            }
            Some(Op::Rope(_)) => {
                let operands =
                    vec![Operand::Tensor(src[0]), Operand::Tensor(src[1]), Operand::Constant(node)];
                vec![launch("constant", operands, to, bytemuck::bytes_of(&RopeParams::new(g, node, &[])?))]
            }
            Some(op) => return Err(Refusal(format!("the fake driver computes no {}", op.name()))),
        })
    }
}
