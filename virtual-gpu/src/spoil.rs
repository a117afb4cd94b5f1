//! Injects a wrong result, as a broken kernel would produce.

use crate::fault::Result;
use crate::faults::Wrong;
use crate::footprint::Footprint;
use crate::gpu::Gpu;

impl Gpu {
    /// Changes one of the F32 results that a launch wrote, as a broken kernel would.
    ///
    /// # Errors The memory has been freed.
    pub fn spoil(&self, footprint: &Footprint, wrong: Wrong) -> Result<()> {
        let words = footprint.words_written();
        let mut numbers = vec![0f32; words.len()];
        for (number, &address) in numbers.iter_mut().zip(&words) {
            let mut bytes = [0; 4];
            self.read(address, &mut bytes)?;
            *number = f32::from_le_bytes(bytes);
        }
        let squares: f64 = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let mean = (squares / words.len().max(1) as f64).sqrt();
        let at = wrong.number % words.len().max(1);
        match (words.get(at), numbers.get(at)) {
            (Some(&address), Some(&number)) => {
                let wrong = number + wrong.size * number.abs().max(mean as f32);
                self.write(address, &wrong.to_le_bytes())
            }
            _ => Ok(()),
        }
    }
}
