//! The table of routes: ways to compute beyond the plain one, each of which can be left out.

use ggml_core::routes::{Row, Table};

/// A route of this backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Products of many columns on cooperative matrices.
    MatrixProducts,
    /// Attention of many tokens on cooperative matrices.
    MatrixAttention,
    /// The same with scores in registers, by operations on rows of cooperative matrices.
    MatrixRows,
    /// Tiles of large products shared between work-groups.
    SharedTiles,
    /// Products of few columns on cooperative matrices.
    MatrixColumns,
    /// Products of many columns by dot products of bytes.
    DotTiles,
    /// Products of few columns by dot products of bytes.
    DotVectors,
    /// Weights of one column read through workgroup-shared memory.
    StagedWeights,
    /// Reductions by subgroup arithmetic.
    SubgroupArithmetic,
    /// Pipelines compiled by several threads.
    ParallelCompilation,
}

impl Table for Route {
    const ALL: &'static [Route] = &[
        Route::MatrixProducts,
        Route::MatrixAttention,
        Route::MatrixRows,
        Route::SharedTiles,
        Route::MatrixColumns,
        Route::DotTiles,
        Route::DotVectors,
        Route::StagedWeights,
        Route::SubgroupArithmetic,
        Route::ParallelCompilation,
    ];

    fn row(self) -> &'static Row {
        match self {
            Route::MatrixProducts => &Row {
                name: "vulkan.matrix-products",
                about: "products of prompts on matrix units (cooperative matrices)",
                plain: "tiles in registers",
                on_top_of: None,
            },
            Route::MatrixAttention => &Row {
                name: "vulkan.matrix-attention",
                about: "attention of prompts on matrix units (cooperative matrices)",
                plain: "tiles in registers",
                on_top_of: None,
            },
            Route::MatrixRows => &Row {
                name: "vulkan.matrix-rows",
                about: "scores of attention of prompts stay in registers (VK_NV_cooperative_matrix2)",
                plain: "scores pass through workgroup-shared memory",
                on_top_of: Some("vulkan.matrix-attention"),
            },
            Route::SharedTiles => &Row {
                name: "vulkan.shared-tiles",
                about: "as many work-groups as run at a time share the tiles of a large product",
                plain: "one work-group for each tile",
                on_top_of: Some("vulkan.matrix-products"),
            },
            Route::MatrixColumns => &Row {
                name: "vulkan.matrix-columns",
                about: "products of 3 to 64 tokens read and decode each weight once, on matrix units",
                plain: "products of single tokens, or tiles",
                on_top_of: Some("vulkan.matrix-products"),
            },
            Route::DotTiles => &Row {
                name: "vulkan.dot-tiles",
                about: "products of prompts by dot products of bytes",
                plain: "F16 or F32 tiles",
                on_top_of: None,
            },
            Route::DotVectors => &Row {
                name: "vulkan.dot-vectors",
                about: "products of single tokens by dot products of bytes",
                plain: "products in F32",
                on_top_of: None,
            },
            Route::StagedWeights => &Row {
                name: "vulkan.staged-weights",
                about: "weights of single tokens read through workgroup-shared memory",
                plain: "weights read into registers",
                on_top_of: Some("vulkan.dot-vectors"),
            },
            Route::SubgroupArithmetic => &Row {
                name: "vulkan.subgroup-arithmetic",
                about: "sums over a subgroup by its own operations",
                plain: "sums through workgroup-shared memory",
                on_top_of: None,
            },
            Route::ParallelCompilation => &Row {
                name: "vulkan.parallel-compilation",
                about: "pipelines compiled by several threads",
                plain: "one after the other",
                on_top_of: None,
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
            assert!(row.name.starts_with("vulkan.") && row.on_top_of.is_none_or(|base| names.contains(base)));
        }
    }
}
