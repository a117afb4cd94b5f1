//! The table of routes: ways to compute or to use the runtime beyond the plain one, each of which can be left out.

use ggml_core::routes::{Row, Table};

/// A route of this backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Products of many columns on matrix units.
    MatrixProducts,
    /// Attention of many tokens on matrix units.
    MatrixAttention,
    /// Launches of a program as a graph.
    Graphs,
    /// Branches of independent steps in a graph.
    GraphBranches,
    /// Copies between host and device by a kernel.
    KernelCopies,
    /// Weights in pinned host memory.
    HostWeights,
    /// Weights there that the device's caches keep.
    CachedWeights,
}

impl Table for Route {
    const ALL: &'static [Route] = &[
        Route::MatrixProducts,
        Route::MatrixAttention,
        Route::Graphs,
        Route::GraphBranches,
        Route::KernelCopies,
        Route::HostWeights,
        Route::CachedWeights,
    ];

    fn row(self) -> &'static Row {
        match self {
            Route::MatrixProducts => &Row {
                name: "hip.matrix-products",
                about: "products of several tokens on matrix units (WMMA, MFMA, mma)",
                plain: "tiles of bytes or floats",
                on_top_of: None,
            },
            Route::MatrixAttention => &Row {
                name: "hip.matrix-attention",
                about: "attention of prompts on matrix units (WMMA, MFMA, mma)",
                plain: "tiles of floats",
                on_top_of: None,
            },
            Route::Graphs => &Row {
                name: "hip.graphs",
                about: "launches of a program started as one graph",
                plain: "one launch after the other",
                on_top_of: None,
            },
            Route::GraphBranches => &Row {
                name: "hip.graph-branches",
                about: "branches of a graph for steps that do not depend on each other",
                plain: "one branch",
                on_top_of: Some("hip.graphs"),
            },
            Route::KernelCopies => &Row {
                name: "hip.kernel-copies",
                about: "copies between host and device by a kernel",
                plain: "copies by the runtime (DMA engines)",
                on_top_of: None,
            },
            Route::HostWeights => &Row {
                name: "hip.host-weights",
                about: "weights in pinned host memory, which the device reads in place",
                plain: "weights in device memory",
                on_top_of: None,
            },
            Route::CachedWeights => &Row {
                name: "hip.cached-weights",
                about: "weights in host memory that the device's caches keep (not coherent with the host)",
                plain: "coherent host memory, which caches of some devices do not keep",
                on_top_of: Some("hip.host-weights"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_complete() {
        let names: HashSet<&str> = Route::ALL.iter().map(|route| route.row().name).collect();
        assert_eq!(names.len(), Route::ALL.len());
        for (at, route) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, at, "{route:?}");
            let row = route.row();
            assert!(row.name.starts_with("hip.") && row.on_top_of.is_none_or(|base| names.contains(base)));
        }
    }
}
