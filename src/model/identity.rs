//! Identity of a model: distinguishes models whose saved state has the same layout.

use super::file::ModelFile;
use super::hparams::Hparams;
use super::left_out;
use ggml_core::Result;
use ggml_core::error::Error;
use ggml_core::gguf::TensorInfo;
use ggml_core::hash::Fnv1a;

/// Number of samples of a tensor's data: its beginning, its end, and offsets between them at equal distances.
const SAMPLES: usize = 4;

/// Bytes of each sample.
const BYTES: usize = 64;

impl ModelFile {
    /// Returns a hash of everything that the state of a session depends on: the hyperparameters, and the
    /// name, type, extents and some bytes of each tensor used. Offsets of tensors in the file, and metadata
    /// other than the hyperparameters, do not affect it.
    ///
    /// The bytes are 64 at each of four offsets of a tensor, so little of a large file is read. Two models
    /// with the same hyperparameters that differ only between these offsets get the same hash.
    pub(crate) fn identity(&self) -> Result<u64> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let mut hash = Fnv1a::default();
        serde_json::to_writer(&mut hash, &self.hparams)
            .map_err(|e| Error::model("hyperparameters", e, "values that JSON can represent"))?;
        let mut tensors: Vec<&TensorInfo> = self.gguf.tensors().iter().collect();
        let is_left_out = |name: &str| left_out::part_of(&self.hparams, name).is_some();
        tensors.retain(|t| !Hparams::is_rounding_scale(&t.name) && !is_left_out(&t.name));
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        for tensor in tensors {
            hash.update(format!("{} {} {:?};", tensor.name, tensor.dtype, tensor.shape()).as_bytes());
            sample(self.gguf.data(tensor)?).for_each(|bytes| hash.update(bytes));
        }
        Ok(*self.identity.get_or_init(|| hash.finish()))
    }
}

/// Returns the sampled bytes.
fn sample(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = data.len().saturating_sub(BYTES);
    (0..SAMPLES).map(move |i| {
        // The last sample ends at the end, whatever the remainder of the division.
        let begin = if i + 1 < SAMPLES { last / (SAMPLES - 1) * i } else { last };
        &data[begin..data.len().min(begin + BYTES)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_beginning_and_the_end() {
        let data: Vec<u8> = (0..=250).cycle().take(64 * 1024).collect();
        let samples: Vec<&[u8]> = sample(&data).collect();
        assert_eq!((samples[0], samples[SAMPLES - 1]), (&data[..BYTES], &data[data.len() - BYTES..]));
        assert!(samples.len() == SAMPLES && samples.iter().all(|bytes| bytes.len() == BYTES));
        assert_eq!(sample(&data[..5]).collect::<Vec<_>>(), [&data[..5]; SAMPLES]);
        assert_eq!(sample(&[]).map(<[u8]>::len).sum::<usize>(), 0);
    }
}
