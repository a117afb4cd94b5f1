//! Events as ioctls: creates them and waits for them. Clocks and apertures, which runtimes ask for.

#![allow(unsafe_code)]

use crate::abi::{self, wait};
use crate::events::{Outcome, Report};
use crate::process;
use crate::shared::{Answer, FREQUENCY, Shared};
use crate::topology::gpu_id;
use std::time::Duration;
use virtual_gpu::Gpu;

impl Shared {
    pub(crate) fn clocks(&self, a: &mut abi::GetClockCounters) -> Answer {
        let now = self.clock();
        // The processor has a clock, too, and no card's.
        let gpu = self.card(a.gpu_id).map_or(0, |_| now);
        (a.gpu, a.cpu, a.system, a.frequency) = (gpu, now, now, FREQUENCY);
        Ok(())
    }

    pub(crate) fn apertures(&self, a: &mut abi::GetApertures) -> Answer {
        let (lds, scratch) = Gpu::apertures();
        let (lds, scratch) = (u64::from(lds) << 32, u64::from(scratch) << 32);
        let fits = if a.array == 0 { 0 } else { (a.count as usize).min(self.devices.len()) };
        for i in 0..fits {
            let of = abi::Apertures {
                lds_base: lds,
                lds_limit: lds + u64::from(u32::MAX),
                scratch_base: scratch,
                scratch_limit: scratch + u64::from(u32::MAX),
                gpu_base: 4096,
                gpu_limit: (1 << 47) - 1,
                gpu_id: gpu_id(i),
                pad: 0,
            };
            // SAFETY: the interface's promise: the address of `count` structures.
            unsafe { process::write(a.array + (i * size_of::<abi::Apertures>()) as u64, of) };
        }
        a.count = self.devices.len() as u32;
        Ok(())
    }

    pub(crate) fn create_event(&self, a: &mut abi::CreateEvent) -> Answer {
        if a.page_offset != 0 {
            self.set_slots(a.page_offset)?;
        }
        let id = self.events.create(a.kind, a.auto_reset != 0).ok_or(libc::ENOSPC)?;
        self.record.count("event", &format!("kind {}", a.kind));
        // Not 0: the runtime takes the slot of its page as the event's mailbox.
        a.page_offset = 1 << 62;
        (a.event_id, a.slot, a.trigger) = (id, id, id);
        Ok(())
    }

    pub(crate) fn wait_events(&self, a: &mut abi::WaitEvents) -> Answer {
        if a.count > 4096 {
            return Err(libc::EINVAL);
        }
        let has_ages = self.minor >= 14;
        // SAFETY: the interface's promise: the address of `count` structures.
        let mut data: Vec<abi::EventData> = unsafe { process::read_array(a.events, a.count as usize) };
        let events: Vec<(u32, u64)> =
            data.iter().map(|e| (e.event_id, if has_ages { e.data[0] } else { 0 })).collect();
        let limit = (a.timeout_ms != u32::MAX).then(|| Duration::from_millis(a.timeout_ms.into()));
        let outcome = self.events.wait(&events, a.all != 0, limit);
        let report = match outcome {
            Outcome::Timeout => {
                a.result = wait::TIMEOUT;
                return Ok(());
            }
            Outcome::Fail | Outcome::Unknown => {
                a.result = wait::FAIL;
                return Err(if outcome == Outcome::Fail { libc::EIO } else { libc::EINVAL });
            }
            Outcome::Complete(report) => report,
        };
        a.result = wait::COMPLETE;
        for (i, report) in report.into_iter().enumerate().filter_map(|(i, report)| Some((i, report?))) {
            data[i].data = describe(report, has_ages).unwrap_or(data[i].data);
            self.log(|| format!("event {}: {report:x?}", data[i].event_id));
            // SAFETY: as above.
            unsafe { process::write(a.events + (i * size_of::<abi::EventData>()) as u64, data[i]) };
        }
        Ok(())
    }
}

/// Returns the description of an event as the interface lays it out.
fn describe(report: Report, has_ages: bool) -> Option<[u64; 4]> {
    match report {
        Report::Signal(age) => has_ages.then_some([age, 0, 0, 0]),
        // `kfd_hsa_memory_exception_data`: not present; address; card.
        Report::PageFault { address, gpu_id } => Some([1, 0, address, gpu_id.into()]),
        // `kfd_hsa_hw_exception_data`: reset of the whole card after a hang; memory is lost.
        Report::Reset { gpu_id } => Some([0, 1 | u64::from(gpu_id) << 32, 0, 0]),
    }
}
