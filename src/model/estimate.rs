//! Memory that a model needs, computed before it is loaded.

use super::division::{DEVICES, Division, HOST, MAIN, Needs};
use super::file::ModelFile;
use super::load_options::LoadOptions;
use super::memory::{bytes, check_fits};
use super::session_options::SessionOptions;
use super::weights;
use ggml_core::backend::Backend;
use ggml_core::schedule::Fallback;
use ggml_core::{MemoryNeed, Result};

/// Memory that a model and one session on it need, and the division of the model.
///
/// Weights count only if they are copied: a device that reads the memory map in place, as the processor does,
/// needs no memory for them ([`MemoryNeed::in_place`]). For a device that shares the host's memory only its
/// own part counts. Drivers need additional memory for programs, kernels and transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Units on the device, counted from the end: the output, the last layer and so on.
    pub units: usize,
    /// Number of layers of the model; with `layers + 1` units the whole model is on the device.
    pub layers: usize,
    /// Memory needed on the device, then on the host.
    pub devices: Vec<MemoryNeed>,
    /// Nodes of the device's part that the device cannot compute.
    pub fallbacks: Vec<Fallback>,
}

impl Estimate {
    /// True if all devices have enough memory.
    pub fn fits(&self) -> bool {
        self.devices.iter().all(MemoryNeed::fits)
    }

    /// True if the host computes part of the model.
    pub fn is_partial(&self) -> bool {
        self.units <= self.layers || !self.fallbacks.is_empty()
    }

    pub(super) fn check(&self) -> Result<()> {
        check_fits(self.devices.clone())
    }
}

impl std::fmt::Display for Estimate {
    /// Writes a line for the device, one for the host if it has a part, and one for each fallback.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = self.devices.get(MAIN).map_or("the device", |need| &need.backend);
        writeln!(f, "{} of {} units on {device}", self.units, self.layers + 1)?;
        let has_part = |(at, need): &(usize, &MemoryNeed)| *at == MAIN || need.total() + need.in_place > 0;
        let parts = self.devices.iter().enumerate().filter(has_part);
        parts.map(|(_, need)| need).try_for_each(|need| writeln!(f, "{need}"))?;
        self.fallbacks.iter().try_for_each(|fallback| writeln!(f, "on the host: {fallback}"))
    }
}

impl ModelFile {
    /// Estimates the memory that the model needs on a device and on the host, from graphs and plans; nothing
    /// is allocated or copied. With [`Offload::Auto`] it finds the largest part that fits, or puts nothing on
    /// the device if no part fits.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if neither the device nor the host can compute a node; errors of a graph that
    /// cannot be built.
    ///
    /// [`Offload::Auto`]: super::Offload::Auto
    /// [`Error::Unsupported`]: ggml_core::Error::Unsupported
    pub fn estimate(&self, backend: &dyn Backend, options: &LoadOptions) -> Result<Estimate> {
        let host = options.host_backend()?;
        Ok(estimate(self, backend, host.as_ref(), options)?.0)
    }

    /// Returns the largest context with which a session takes at most half of the memory that the weights leave free:
    /// the model's own, or its half, its quarter and so on. The context of the options has no effect. It is never
    /// less than the default of [`SessionOptions::context`], and no more than that where the free memory is unknown.
    /// With [`Offload::Auto`] the part on the device is the one that fits with that default.
    ///
    /// # Errors
    /// As [`ModelFile::estimate`].
    ///
    /// [`Offload::Auto`]: super::Offload::Auto
    pub fn fitting_context(&self, backend: &dyn Backend, options: &LoadOptions) -> Result<usize> {
        let host = options.host_backend()?;
        let session = options.session.clone().with_context(None);
        let least = session.room(self.hparams());
        let mut context = self.hparams().context;
        if context <= least {
            return Ok(least);
        }
        let options = options.clone().with_session(session.clone());
        let units = match options.offload.units(self.hparams().layers) {
            Some(units) => units,
            None => estimate(self, backend, host.as_ref(), &options)?.0.units,
        };
        let backends = [backend, host.as_ref()];
        let in_place = in_place(self, backends)?;
        while context > least {
            let session = session.clone().with_context(context);
            let checked = session.check(self.hparams());
            // A context that is too large for any session is too large here.
            let found = checked.and_then(|()| of_units(self, backends, in_place, units, &session));
            if found.is_ok_and(|(estimate, _)| estimate.devices.iter().all(is_half_free)) {
                return Ok(context);
            }
            context /= 2;
        }
        Ok(least)
    }
}

/// Returns an estimate and the needs that it is computed from.
pub(super) fn estimate(
    file: &ModelFile,
    main: &dyn Backend,
    host: &dyn Backend,
    options: &LoadOptions,
) -> Result<(Estimate, Needs)> {
    options.session.check(file.hparams())?;
    let layers = file.hparams().layers;
    let in_place = in_place(file, [main, host])?;
    let of = |units: usize| of_units(file, [main, host], in_place, units, &options.session);
    if let Some(units) = options.offload.units(layers) {
        return of(units);
    }
    let all = of(layers + 1)?;
    if has_room(&all.0) {
        return Ok(all);
    }
    // Binary search: each unit adds to the memory that the device needs.
    let (mut fits, mut best) = (0, of(0)?);
    let mut too_many = layers + 1;
    while fits + 1 < too_many {
        let middle = fits.midpoint(too_many);
        let tried = of(middle)?;
        if has_room(&tried.0) {
            (fits, best) = (middle, tried);
        } else {
            too_many = middle;
        }
    }
    Ok(best)
}

/// Returns which devices read the file in place. Queried only once: a driver may have to map the whole file for it.
fn in_place(file: &ModelFile, [main, host]: [&dyn Backend; DEVICES]) -> Result<[bool; DEVICES]> {
    Ok([weights::reads_in_place(file.gguf(), main)?, weights::reads_in_place(file.gguf(), host)?])
}

/// Divisor of the share of free memory that an automatic choice leaves to the driver and to other programs.
const RESERVE: u64 = 16;

fn has_room(estimate: &Estimate) -> bool {
    let need = &estimate.devices[MAIN];
    need.free.is_none_or(|free| need.total() <= free - free / RESERVE)
}

/// True if state and intermediates are known to need at most half of the memory that the weights leave free.
fn is_half_free(need: &MemoryNeed) -> bool {
    let weights = need.weights.saturating_add(need.in_place);
    let session = need.state.saturating_add(need.compute);
    need.total() == 0 || need.free.is_some_and(|free| session <= free.saturating_sub(weights) / 2)
}

fn of_units(
    file: &ModelFile,
    backends: [&dyn Backend; DEVICES],
    in_place: [bool; DEVICES],
    units: usize,
    session: &SessionOptions,
) -> Result<(Estimate, Needs)> {
    let [main, host] = backends;
    let needs = Division { file, main, host: Some(host), units, weights: None }.needs(session)?;
    let mut devices = Vec::new();
    for device in [MAIN, HOST] {
        let backend = backends[device];
        let used = file.gguf().tensors().iter().filter(|t| needs.weights[device].contains(&t.name));
        let (weights, in_place) = match in_place[device] {
            true => (0, used.map(|t| t.bytes as u64).sum()),
            false => (weights::allocated(&needs.tensors(file, device), backend)?, 0),
        };
        devices.push(MemoryNeed {
            backend: backend.device().backend.clone(),
            weights,
            in_place,
            state: bytes(&needs.state[device]),
            compute: bytes(&needs.compute[device]),
            free: backend.free_memory(),
        });
    }
    let estimate =
        Estimate { units, layers: file.hparams().layers, devices, fallbacks: needs.fallbacks.clone() };
    Ok((estimate, needs))
}

impl Needs {
    /// Returns the tensors that a device uses, in file order. The host reads its weights from the memory map,
    /// so it gets all of them: a batch of another shape may fall back where the estimated ones did not.
    pub(super) fn tensors<'a>(&self, file: &'a ModelFile, device: usize) -> weights::Tensors<'a> {
        let used = |name: &str| device == HOST || self.weights[device].contains(name);
        file.gguf().tensors().iter().filter(|t| used(&t.name)).collect()
    }
}
