//! Record of a child: the backend that it opened, and how its work ended.

pub use super::fault::Fault;
use super::json::null_is_nan;
pub use super::kernel_log::KernelLog;
use super::results::{Status, TextScore, Variant};
use crate::view::View;
use ggml_core::backend::DeviceInfo;
use ggml_core::routes::RouteUse;
use serde::{Deserialize, Serialize};

/// [`Record::offload`] of a run with everything on the device.
pub const EVERYTHING: i64 = -1;

/// Description of a backend in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// ID of the run that it belongs to, see [`Run`](crate::compare::report::Run).
    #[serde(default)]
    pub run_id: String,
    /// Name on the command line.
    pub name: String,
    /// Name of the variant that opened it; `None` for the plain run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Device name; empty if none was opened.
    pub device: String,
    /// Driver name.
    pub driver: String,
    /// Versions and paths by name.
    pub versions: Vec<(String, String)>,
    /// Features by name.
    pub features: Vec<(String, String)>,
    /// Architecture class or target.
    pub arch: String,
    /// Device UUID.
    pub uuid: Option<String>,
    /// Overrides that the backend found in effect.
    pub overrides: Vec<(String, String)>,
    /// The backend's routes, and which of them it used; then the values that it used in place of its tuning table's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteUse>,
}

impl BackendReport {
    pub(crate) fn fill(&mut self, device: &DeviceInfo) {
        self.device = device.name.clone();
        self.driver = device.driver.clone();
        self.versions = device.versions.clone();
        self.features = device.features.clone();
        self.arch = device.arch.clone();
        self.uuid = device.uuid.clone();
        self.overrides = device.overrides.clone();
        let tuned = device.candidates.iter().filter(|candidate| candidate.used);
        self.routes = device.routes.iter().chain(tuned).cloned().collect();
    }

    /// Returns the backend's view of its device.
    pub(crate) fn view(&self) -> View {
        View::new(&self.name, &self.device, &self.driver, &self.arch, &self.features, self.uuid.as_ref())
    }
}

/// A process that did not end when it was killed, as the kernel describes it. It is inside a driver, in a
/// system call that cannot be interrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    /// Process state ("D (disk sleep)").
    pub state: String,
    /// Kernel function in which the process waits.
    pub wchan: String,
    /// Call stack in the kernel, innermost function first, if it is readable.
    pub stack: Vec<String>,
}

impl Stuck {
    pub(crate) fn describe(&self) -> String {
        if self.state.is_empty() {
            return "the system does not describe it".into();
        }
        let wchan = if self.wchan.is_empty() { "" } else { &format!(" in the kernel's {}", self.wchan) };
        let stack = self.stack.join(" < ");
        let stack = if stack.is_empty() { "" } else { &format!(" ({stack})") };
        format!("it is in state {}{wchan}{stack}", self.state)
    }
}

/// One run of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// ID of the run that it belongs to, see [`Run`](crate::compare::report::Run).
    #[serde(default)]
    pub run_id: String,
    /// Stem of its files in the run's folder: `STEM.work.json`, `STEM.events.jsonl`, `STEM.log`.
    #[serde(default)]
    pub stem: String,
    /// Backend name.
    pub backend: String,
    /// Number of the model's units on the device, counted from the end, see
    /// [`Offload`](crate::model::Offload); -1 is all. `cpu` computes the rest.
    pub offload: i64,
    /// Index of the repetition.
    pub epoch: usize,
    /// Name of the variant, see [`VariantRow`](crate::compare::VariantRow); `None` for the plain run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Variables that the child had in addition to its parent's; one with an empty value was removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
    /// Outcome of the run.
    pub status: Status,
    /// Operation tests: the case that failed; `None` in the record of the backend as a whole.
    pub case: Option<String>,
    /// Phase in which it failed.
    pub phase: Option<String>,
    /// The furthest phase that was entered, in the order of [`Phase::ALL`](ggml_core::Phase::ALL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest: Option<String>,
    /// Node at which it failed, if known.
    pub node: Option<String>,
    /// Part of a model's work that was being computed: "prompt", "decode step 3", "chunk 2".
    #[serde(default)]
    pub step: Option<String>,
    /// Library that the backend loaded, or was about to load, if known.
    #[serde(default)]
    pub library: Option<String>,
    /// The last call into a driver that was announced.
    #[serde(default)]
    pub last_call: Option<String>,
    /// The call whose work was waited for, if the last call only waits for earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Signal that ended the process.
    pub signal: Option<String>,
    /// Place in the program at which the signal came, if its handler could write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Lines of the kernel about graphics cards while the process ran, if it did not end well.
    #[serde(default, skip_serializing_if = "KernelLog::is_empty")]
    pub kernel: KernelLog,
    /// Description of the process if it could not be ended.
    #[serde(default)]
    pub stuck: Option<Stuck>,
    /// The error, or the last output of the process.
    pub message: Option<String>,
    /// Warnings of the backend, and its advice for the error.
    pub warnings: Vec<String>,
    /// Process id of the child.
    pub pid: u32,
    /// Seconds from start to end of the process.
    pub elapsed_s: f64,
    /// Seconds of loading.
    pub load_s: Option<f64>,
    /// Seconds of the prompt.
    pub prompt_s: Option<f64>,
    /// Seconds of generation.
    pub eval_s: Option<f64>,
    /// Number of tokens generated.
    pub tokens: usize,
    /// Tokens generated per second.
    pub tokens_per_s: Option<f64>,
    /// Ids of the generated tokens.
    pub token_ids: Vec<u32>,
    /// Difference between the two largest logits at each generated token.
    #[serde(deserialize_with = "null_is_nan")]
    pub margins: Vec<f32>,
    /// The generated text; currently never set.
    pub text: Option<String>,
    /// Number of values whose bits changed between repetitions.
    pub unstable: usize,
    /// Number of allocations requested from the driver.
    pub driver_allocations: Option<u64>,
    /// The largest observed number of resident bytes of the process.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// The largest observed number of bytes allocated on the device.
    #[serde(default)]
    pub device_bytes: Option<u64>,
    /// Number of the reference's logits that are NaN or plus infinity: with such logits nothing can agree.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub invalid_logits: usize,
    /// The node with which NaN or plus infinity begins, if a logit is one of these: the first result with such a value
    /// when the steps run one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_from: Option<String>,
    /// Results of the prompt by other methods, if requested.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Times of a decode step by operation, the slowest first; only in the first epoch.
    #[serde(default)]
    pub times: Vec<OpTime>,
    /// Score of the text, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<TextScore>,
    /// Drafts of the file's predictor: one for each generated token but the first, empty if the file has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<u32>,
}

impl Record {
    /// Returns the number of drafts that are the generated tokens.
    pub fn accepted_drafts(&self) -> usize {
        self.drafts.iter().zip(self.token_ids.iter().skip(1)).filter(|(draft, token)| draft == token).count()
    }
}

/// Time of an operation, or of a kind of group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTime {
    /// Name of the operation.
    pub op: String,
    /// Seconds of all its nodes, each run and waited for separately; more than their share of a whole step.
    pub seconds: f64,
}

/// True if a number is not worth writing.
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Formats a run's name for texts.
pub(crate) fn label(backend: &str, offload: i64) -> String {
    if offload == EVERYTHING { backend.into() } else { format!("{backend} offload {offload}") }
}

/// The most characters of a message's headline, about two lines of a terminal: room for "not available (no
/// device): " and for what is wrong with a library.
const HEADLINE: usize = 190;

impl Record {
    /// True if the run has results that are valid and do not change when it is repeated.
    pub(crate) fn is_sound(&self) -> bool {
        let is_stable = self.unstable == 0 && !self.variants.iter().any(|v| v.changed);
        self.status == Status::Ok && is_stable && self.invalid_logits == 0
    }

    /// Returns the first clauses of the message, as many as fit. A clause ends at a colon or semicolon before a
    /// space, so no word, path or NAME=value is cut.
    pub fn headline(&self) -> &str {
        let Some(message) = &self.message else { return "no reason given" };
        let ends = message.match_indices([':', ';']).map(|(at, _)| at).filter(|&at| at > 0);
        let ends =
            ends.filter(|&at| message[at + 1..].starts_with(char::is_whitespace)).chain([message.len()]);
        let (mut end, mut is_first) = (message.len(), true);
        for next in ends {
            if !is_first && message[..next].chars().count() > HEADLINE {
                break;
            }
            (end, is_first) = (next, false);
        }
        &message[..end]
    }

    /// Formats backend, offload and variant for texts.
    pub fn label(&self) -> String {
        let variant = self.variant.as_ref().map_or(String::new(), |variant| format!(" [{variant}]"));
        label(&self.backend, self.offload) + &variant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headlines_end_between_clauses() {
        let headline = |message: &str| Record { message: Some(message.into()), ..Record::default() };
        let of = |message: &str| headline(message).headline().to_string();
        // Field case E: the reason used to be cut off behind "not available (no device)".
        let wrong = "not available (no device): wrong library: its file name is that of HIP 7, but it reports HIP 6: files of \
                     two releases of ROCm are mixed; select the right one with DIPTYCH_HIP_LIBRARY";
        assert_eq!(of(&format!("{wrong}; the runtime lists no device")), wrong);
        let path = "x".repeat(170);
        let named = format!("LD_LIBRARY_PATH={path}:/opt/rocm/lib");
        assert_eq!(
            of(&format!("the library hip:0 needs {named}; more")),
            format!("the library hip:0 needs {named}")
        );
        assert_eq!(of(&format!("first; {named}; more")), "first");
        assert_eq!(Record::default().headline(), "no reason given");
    }
}
