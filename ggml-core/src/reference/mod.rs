//! The reference backend: every operation exactly as its definition says, in f64, on one thread.
//!
//! It exists to be right and to be read. It shares no code with any other backend, not even a dequantiser, and keeps
//! a vector of bytes for each tensor instead of an arena, so that an error of the planner shows too. Results are
//! rounded to the type of their tensor once, when a node is finished.

use crate::dtype::DType;
use crate::tensor::Tensor;

mod backend;
mod decode;
mod points;
mod store;

pub use backend::ReferenceBackend;

/// There is no memory for what a definition keeps on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// Bytes asked for.
    pub asked: usize,
}

/// An operand of a definition: elements by index, as f64.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    nb: [usize; 4],
    offset: usize,
    bytes: &'a [u8],
}

impl<'a> Operand<'a> {
    /// A tensor over the storage of its root.
    pub fn new(tensor: &Tensor, bytes: &'a [u8]) -> Operand<'a> {
        Operand { dtype: tensor.dtype, ne: tensor.ne, nb: tensor.nb, offset: tensor.offset, bytes }
    }

    fn place(&self, [i0, i1, i2, i3]: [usize; 4]) -> usize {
        self.offset
            + i0 / self.dtype.block() * self.nb[0]
            + i1 * self.nb[1]
            + i2 * self.nb[2]
            + i3 * self.nb[3]
    }

    /// The element at an index.
    pub fn at(&self, index: [usize; 4]) -> f64 {
        decode::element(self.dtype, &self.bytes[self.place(index)..], index[0] % self.dtype.block())
    }

    /// The row at the three outer indices.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn row(&self, [i1, i2, i3]: [usize; 3]) -> Result<Vec<f64>, NoMemory> {
        list((0..self.ne[0]).map(|i0| self.at([i0, i1, i2, i3])))
    }
}

/// The result of a definition.
#[derive(Debug)]
pub struct OperandMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    nb: [usize; 4],
    offset: usize,
    bytes: &'a mut [u8],
}

impl<'a> OperandMut<'a> {
    /// A tensor over the storage of its root.
    pub fn new(tensor: &Tensor, bytes: &'a mut [u8]) -> OperandMut<'a> {
        OperandMut { dtype: tensor.dtype, ne: tensor.ne, nb: tensor.nb, offset: tensor.offset, bytes }
    }

    /// Sets an element, rounded to the type (nearest, ties to even).
    pub fn set(&mut self, [i0, i1, i2, i3]: [usize; 4], value: f64) {
        let at = self.offset + i0 * self.nb[0] + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        decode::store(self.dtype, &mut self.bytes[at..], value);
    }

    /// Sets a whole row, rounded to the type; blocks as SET_ROWS says.
    pub fn set_row(&mut self, [i1, i2, i3]: [usize; 3], row: &[f64]) {
        let at = self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        for (i, block) in row.chunks_exact(self.dtype.block()).enumerate() {
            store::block(self.dtype, &mut self.bytes[at + i * self.nb[0]..], block);
        }
    }
}

/// What an iterator gives: `collect` without an abort.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn list<T>(items: impl Iterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let asked = |count: usize| NoMemory { asked: count.saturating_mul(size_of::<T>()) };
    let (mut list, least) = (Vec::new(), items.size_hint().0);
    list.try_reserve_exact(least).map_err(|_| asked(least))?;
    for item in items {
        if list.len() == list.capacity() {
            list.try_reserve(1).map_err(|_| asked(2 * list.len()))?;
        }
        list.push(item);
    }
    Ok(list)
}

/// Every index of a tensor, the first fastest.
pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let count: usize = ne.iter().product();
    (0..count).map(move |n| {
        [n % ne[0], n / ne[0] % ne[1], n / (ne[0] * ne[1]) % ne[2], n / (ne[0] * ne[1] * ne[2])]
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Sources of a folder of the crate, without their tests.
    fn sources(folder: &str) -> Vec<(String, String)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                all.append(&mut sources(&name));
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            all.push((name, lines.collect::<Vec<_>>().join("\n")));
        }
        assert!(!all.is_empty());
        all
    }

    /// The paths that begin with `prefix`, without it; those of a group one by one.
    fn paths(code: &str, prefix: &str) -> Vec<String> {
        let mut all = Vec::new();
        for rest in code.split(prefix).skip(1) {
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
            match rest[end..].strip_prefix('{') {
                Some(group) => {
                    let items = group.split('}').next().unwrap_or_default().split(',').map(str::trim);
                    let items = items.filter(|item| !item.is_empty());
                    all.extend(items.map(|item| format!("{}{item}", &rest[..end])));
                }
                None => all.push(rest[..end].to_string()),
            }
        }
        all
    }

    /// Agreement of two that share code proves nothing: the reference and the definitions use what describes tensors and
    /// graphs or says how far off a result may be, the numbers that a format lists, and no code that computes. Test cases stand beside the definitions and may use the catalogue.
    #[test]
    fn the_reference_shares_nothing() {
        let of_reference =
            ["backend", "dtype", "error", "graph", "grids", "mapped", "op", "phase", "plan", "tensor"];
        let of_definitions = ["bound", "catalogue", "dtype", "plan", "reference", "tensor"];
        for (folder, allowed) in [("reference", &of_reference[..]), ("op", &of_definitions)] {
            for (name, code) in sources(folder) {
                for path in paths(&code, "crate::") {
                    let module = path.split(':').next().unwrap_or_default();
                    assert!(allowed.contains(&module), "{name} uses crate::{path}");
                }
            }
        }
    }

    /// The other way round: other backends know an operation's parameters, types with capitals, and none of its functions.
    #[test]
    fn nobody_else_uses_a_definition() {
        for (name, code) in sources("cpu").into_iter().chain(sources("kernel")) {
            for path in paths(&code, "crate::op::") {
                let last = path.split("::").last().unwrap_or_default();
                assert!(last.starts_with(char::is_uppercase), "{name} uses crate::op::{path}");
            }
            assert!(!code.contains("crate::reference"), "{name} uses the reference");
        }
    }
}
