//! Which pipeline: shader and constants.

/// What one pipeline is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineSpec {
    /// Stem of the shader's source.
    pub shader: &'static str,
    /// Variant in the shaders crate's table.
    pub variant: &'static str,
    /// Specialisation constants, ids from 0; id 0 is the work-group size.
    pub specialization: Vec<u32>,
    /// Invocations of a subgroup, for shaders that depend on it and devices that let one choose.
    pub subgroup: Option<u32>,
}

impl std::fmt::Display for PipelineSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {:?}", self.shader, self.variant, self.specialization)?;
        self.subgroup.map_or(Ok(()), |lanes| write!(f, " by {lanes}"))
    }
}
