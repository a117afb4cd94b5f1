//! Loading of weights onto a backend, in few allocations.

use super::memory::check_fits;
use super::read_ahead::{self, Window};
use ggml_core::backend::{Backend, Buffer, Slice, Usage};
use ggml_core::buffers::{BufferLimits, Buffers, Location};
use ggml_core::error::Error;
use ggml_core::gguf::{GgufFile, TensorInfo};
use ggml_core::{MemoryNeed, Result};
use std::collections::HashMap;

/// Tensors of a file, in file order.
pub(super) type Tensors<'a> = Vec<&'a TensorInfo>;

/// Loads tensors of a file. If the backend can read host memory in place, the memory map itself is the
/// buffer; otherwise the tensors are laid out in blocks no larger than the device allows. `progress` receives
/// the bytes loaded so far and the total. If `check` is set, weights that need more memory than is free are
/// refused before anything is allocated.
pub(super) fn load(
    gguf: &GgufFile,
    tensors: &Tensors<'_>,
    backend: &dyn Backend,
    check: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<HashMap<String, Slice>> {
    gguf.check_length()?;
    let total = tensors.iter().map(|t| t.bytes as u64).sum();
    progress(0, total);
    let weights = match in_place(gguf, tensors, backend)? {
        Some(weights) => weights,
        None => {
            if check {
                check_room(tensors, backend)?;
            }
            upload(gguf, tensors, backend, &mut |done| progress(done, total))?
        }
    };
    progress(total, total);
    Ok(weights)
}

/// True if a backend reads the file's memory map in place.
pub(super) fn reads_in_place(gguf: &GgufFile, backend: &dyn Backend) -> Result<bool> {
    Ok(imported(gguf, backend)?.is_some())
}

/// Returns the bytes that [`load`] allocates if a backend does not read the memory map in place.
pub(super) fn allocated(tensors: &Tensors<'_>, backend: &dyn Backend) -> Result<u64> {
    let limits = &backend.device().limits;
    let layout = lay_out(tensors, limits.into())?;
    Ok(layout.blocks.iter().map(|&bytes| bytes as u64).sum())
}

/// Checks that the device has enough memory for the weights, as far as its free memory is known.
fn check_room(tensors: &Tensors<'_>, backend: &dyn Backend) -> Result<()> {
    check_fits(vec![MemoryNeed {
        backend: backend.device().backend.clone(),
        weights: allocated(tensors, backend)?,
        in_place: 0,
        state: 0,
        compute: 0,
        free: backend.free_memory(),
    }])
}

fn in_place(
    gguf: &GgufFile,
    tensors: &Tensors<'_>,
    backend: &dyn Backend,
) -> Result<Option<HashMap<String, Slice>>> {
    if tensors.is_empty() {
        return Ok(Some(HashMap::new()));
    }
    let Some(parts) = imported(gguf, backend)? else { return Ok(None) };
    let slice = |t: &TensorInfo| Slice { buffer: parts[t.part].clone(), offset: t.offset };
    Ok(Some(tensors.iter().map(|t| (t.name.clone(), slice(t))).collect()))
}

/// Imports the parts of a file as buffers, if the backend reads them in place.
fn imported(gguf: &GgufFile, backend: &dyn Backend) -> Result<Option<Vec<Buffer>>> {
    (0..gguf.parts().len()).map(|part| backend.import(gguf.part_bytes(part)?)).collect()
}

/// Location of each tensor, and the length of each block.
struct Layout {
    places: Vec<Location>,
    blocks: Vec<usize>,
}

fn lay_out(tensors: &Tensors<'_>, limits: BufferLimits) -> Result<Layout> {
    let (mut places, mut blocks) = (Vec::new(), Buffers::new(limits));
    for t in tensors {
        let wrong = |expected: String| {
            Error::argument(format!("tensor '{}'", t.name), format!("{} bytes", t.bytes), expected)
        };
        if !limits.fits(t.bytes) {
            let largest = limits.largest;
            return Err(wrong(format!(
                "at most {largest} bytes, the device's largest buffer, or a model loaded with a host (--offload)"
            )));
        }
        let place = blocks.place(t.bytes);
        places.push(place.ok_or_else(|| wrong("what is left of the address space".into()))?);
    }
    Ok(Layout { places, blocks: blocks.into_lengths() })
}

fn upload(
    gguf: &GgufFile,
    tensors: &Tensors<'_>,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(u64),
) -> Result<HashMap<String, Slice>> {
    let limits = &backend.device().limits;
    let layout = lay_out(tensors, limits.into())?;
    let blocks = layout
        .blocks
        .iter()
        .map(|&bytes| backend.allocate(bytes, Usage::Weights))
        .collect::<Result<Vec<_>>>()?;
    let window = Window::of(tensors.iter().map(|t| t.bytes).sum());
    let (mut weights, mut runs, mut targets) = (HashMap::new(), Vec::new(), Vec::new());
    for (t, place) in tensors.iter().zip(&layout.places) {
        let (data, slice) =
            (gguf.share(t)?, Slice { buffer: blocks[place.buffer].clone(), offset: place.offset });
        for from in (0..data.len()).step_by(window.upload_bytes()) {
            runs.push(data.slice(from..data.len().min(from + window.upload_bytes()))?);
            targets.push((slice.buffer.clone(), slice.offset + from));
        }
        weights.insert(t.name.clone(), slice);
    }
    let mut done = 0;
    // The file's pages would take room from the model's.
    let gives_back = backend.device().unified;
    let on_demand = |on_demand: bool| gguf.parts().iter().for_each(|p| p.bytes().read_on_demand(on_demand));
    on_demand(window.reads());
    let uploaded = read_ahead::each(&runs, window, |i, run| {
        gguf.check_length()?;
        let (buffer, offset) = &targets[i];
        backend.upload(buffer, *offset, run)?;
        if gives_back {
            run.give_back();
        }
        done += run.len() as u64;
        progress(done);
        Ok(())
    });
    on_demand(false);
    uploaded.map(|()| weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::DType;
    use ggml_core::gguf::GgufWriter;

    /// A file that became shorter is found before its bytes are read, which would end the process.
    #[test]
    fn a_shorter_file_is_not_uploaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let mut writer = GgufWriter::new();
        writer.tensor("t", DType::F32, &[5000], vec![0u8; 20_000]).unwrap();
        writer.write_to(&path).unwrap();
        let gguf = GgufFile::open(&path).unwrap();
        let backend = ggml_core::null::NullBackend::open(Default::default()).unwrap();
        let loaded = || load(&gguf, &gguf.tensors().iter().collect(), &backend, true, &mut |_, _| ());
        assert!(loaded().is_ok());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
        assert_eq!(loaded().unwrap_err().io_kind(), Some(std::io::ErrorKind::UnexpectedEof));
        // Nor is it read in place.
        let cpu = ggml_core::cpu::CpuBackend::open(Default::default()).unwrap();
        assert!(reads_in_place(&gguf, &cpu).unwrap());
        let in_place = load(&gguf, &gguf.tensors().iter().collect(), &cpu, true, &mut |_, _| ());
        assert_eq!(in_place.unwrap_err().io_kind(), Some(std::io::ErrorKind::UnexpectedEof));
    }

    /// The same for a file that becomes shorter while it is uploaded.
    #[test]
    fn a_file_that_shrinks_meanwhile_is_not_uploaded_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let mut writer = GgufWriter::new();
        for name in ["a", "b"] {
            writer.tensor(name, DType::F32, &[5000], vec![0u8; 20_000]).unwrap();
        }
        writer.write_to(&path).unwrap();
        let gguf = GgufFile::open(&path).unwrap();
        let backend = ggml_core::null::NullBackend::open(Default::default()).unwrap();
        let mut reported = Vec::new();
        let mut shrink = |done: u64, _| {
            reported.push(done);
            if done == 20_000 {
                std::fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
            }
        };
        let loaded = load(&gguf, &gguf.tensors().iter().collect(), &backend, true, &mut shrink);
        assert_eq!(loaded.unwrap_err().io_kind(), Some(std::io::ErrorKind::UnexpectedEof));
        assert_eq!(reported, [0, 20_000]);
    }

    #[test]
    fn blocks_are_few_and_within_the_limit() {
        let mut writer = GgufWriter::new();
        for i in 0..100 {
            writer.tensor(format!("t{i}"), DType::F32, &[25], vec![0u8; 100]).unwrap();
        }
        let gguf = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let tensors = gguf.tensors().iter().collect();
        let limits = |largest| BufferLimits { alignment: 64, largest };
        let layout = lay_out(&tensors, limits(1000)).unwrap();
        assert_eq!((layout.blocks.len(), layout.blocks[0]), (15, 896));
        assert_eq!(layout.places[7], Location { buffer: 1, offset: 0 });
        assert_eq!(lay_out(&tensors, 64.into()).unwrap().blocks, vec![12800]);
        assert!(lay_out(&tensors, limits(100)).is_err());
    }
}
