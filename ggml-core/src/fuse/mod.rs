//! Groups: nodes that a backend may compute together.
//!
//! A group is computed as if its members were computed in order. Only its results leave it and have regions
//! in the arena. Candidates for groups do not depend on a driver; they are found here by patterns, one file
//! for each. A backend accepts or refuses each candidate
//! ([`Backend::joins`](crate::backend::Backend::joins)). If it refuses, smaller groups are offered, at last
//! single nodes.
//!
//! | group | members |
//! | --- | --- |
//! | [`Products`] | RMS_NORM and its weight inside; one to three MUL_MAT of one input; their biases; GLU; a residual sum |
//! | [`Heads`] | norms and ROPE of the heads of q and k, SET_ROWS of k and v into the cache |
//! | [`Experts`] | MUL_MAT_ID of one input and their biases; GLU, or the weighted sum over a token's experts |
//! | [`Router`] | TOP_K, GET_ROWS, SOFT_MAX: the chosen experts, and their weights |
//! | [`Gate`] | RMS_NORM and its weight, MUL_MAT, a bias, and the [`Choice`] by these scores |
//! | [`Norm`] | a sum, RMS_NORM, its weight, a residual sum or a gate |
//! | [`Scaled`] | RMS_NORM, its factor |
//! | [`Chain`] | consecutive element-wise functions; sums, products and gated units with other operands |
//! | [`Conv`] | a short convolution with bias and activation, and its new state stored over the old one |
//! | [`Delta`] | for few tokens, a delta net with the norms of its queries and keys, the nodes of its decays and betas, and the copy of its state |
//! | [`Best`] | TOP_K of one element, GET_ROWS, MUL_MAT of the row with itself, CPY: the best token, and whether all are finite |

mod best;
mod chain;
mod choice;
mod experts;
mod find;
mod gate;
mod group;
mod heads;
mod levels;
mod norm;
mod order;
mod products;
mod recurrent;
mod router;
mod search;

pub use group::{
    Best, Biased, Chain, Choice, Conv, Delta, DeltaGates, ExpertGroups, ExpertProduct, Experts, Gate, Gated,
    GluPart, Group, Head, Heads, Norm, NormPart, Normalised, Probabilities, ProbabilityOf, Product, Products,
    Rotated, Router, Scaled, Stored, Sum, Weighted,
};
pub use products::FEW_ROWS;

pub(crate) use find::groups;
pub(crate) use levels::levels;

#[cfg(test)]
mod tests;
