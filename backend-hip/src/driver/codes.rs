//! Driver codes: their names, the fatal ones, and their conversion to [`Error`]s.

use super::{Code, Driver};
use ggml_core::{Error, Phase};

/// `hipErrorInvalidValue`.
pub const INVALID_VALUE: Code = 1;
/// `hipErrorOutOfMemory`.
pub const OUT_OF_MEMORY: Code = 2;
/// `hipErrorNoDevice`.
pub const NO_DEVICE: Code = 100;
/// `hipErrorInvalidImage`.
pub const INVALID_IMAGE: Code = 200;
/// `hipErrorNotReady`: no error, but the result for an event that is not complete.
pub const NOT_READY: Code = 600;
/// `hipErrorNotSupported`.
pub const NOT_SUPPORTED: Code = 801;

/// Codes of HIP 5 to 7 with their names. The values are the same in all releases.
pub const CODES: &[(Code, &str)] = &[
    (0, "hipSuccess"),
    (1, "hipErrorInvalidValue"),
    (2, "hipErrorOutOfMemory"),
    (3, "hipErrorNotInitialized"),
    (4, "hipErrorDeinitialized"),
    (9, "hipErrorInvalidConfiguration"),
    (12, "hipErrorInvalidPitchValue"),
    (13, "hipErrorInvalidSymbol"),
    (17, "hipErrorInvalidDevicePointer"),
    (21, "hipErrorInvalidMemcpyDirection"),
    (35, "hipErrorInsufficientDriver"),
    (98, "hipErrorInvalidDeviceFunction"),
    (100, "hipErrorNoDevice"),
    (101, "hipErrorInvalidDevice"),
    (200, "hipErrorInvalidImage"),
    (201, "hipErrorInvalidContext"),
    (205, "hipErrorMapFailed"),
    (209, "hipErrorNoBinaryForGpu"),
    (214, "hipErrorECCNotCorrectable"),
    (218, "hipErrorInvalidKernelFile"),
    (301, "hipErrorFileNotFound"),
    (302, "hipErrorSharedObjectSymbolNotFound"),
    (303, "hipErrorSharedObjectInitFailed"),
    (304, "hipErrorOperatingSystem"),
    (400, "hipErrorInvalidHandle"),
    (401, "hipErrorIllegalState"),
    (500, "hipErrorNotFound"),
    (600, "hipErrorNotReady"),
    (700, "hipErrorIllegalAddress"),
    (701, "hipErrorLaunchOutOfResources"),
    (702, "hipErrorLaunchTimeOut"),
    (709, "hipErrorContextIsDestroyed"),
    (710, "hipErrorAssert"),
    (712, "hipErrorHostMemoryAlreadyRegistered"),
    (713, "hipErrorHostMemoryNotRegistered"),
    (719, "hipErrorLaunchFailure"),
    (720, "hipErrorCooperativeLaunchTooLarge"),
    (801, "hipErrorNotSupported"),
    (999, "hipErrorUnknown"),
    (1052, "hipErrorRuntimeMemory"),
    (1053, "hipErrorRuntimeOther"),
];

/// Codes after which nothing that runs on the device can be trusted. 220 and 714 to 718 occur with CUDA only:
/// broken links, stacks, instructions and addresses.
const FATAL: &[Code] = &[4, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];

/// Codes of a runtime that does not accept a code object for the device: invalid device function, invalid
/// image, no binary for the GPU, invalid kernel file. 303 (shared object init failed) is what HIP 5 returns for a
/// code object of a later version than it knows.
const CODE_REFUSED: &[Code] = &[98, INVALID_IMAGE, 209, 218, 303];

macro_rules! calls {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// Driver functions that errors and hangs can name.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Call { $($variant),* }

        impl Call {
            const ALL: &[Call] = &[$(Call::$variant),*];

            /// Returns the name of the function.
            pub fn name(self) -> &'static str {
                match self { $(Call::$variant => $name),* }
            }
        }
    };
}

calls! {
    None = "",
    LoadLibrary = "dlopen",
    Init = "hipInit",
    DeviceCount = "hipGetDeviceCount",
    Properties = "hipGetDeviceProperties",
    Attach = "hipSetDevice",
    MemoryInfo = "hipMemGetInfo",
    Allocate = "hipMalloc",
    Free = "hipFree",
    AllocateHost = "hipHostMalloc",
    FreeHost = "hipHostFree",
    Fill = "hipMemsetAsync",
    Copy = "hipMemcpyAsync",
    CreateStream = "hipStreamCreateWithFlags",
    DestroyStream = "hipStreamDestroy",
    CreateEvent = "hipEventCreateWithFlags",
    DestroyEvent = "hipEventDestroy",
    Import = "hipImportExternalMemory",
    Release = "hipDestroyExternalMemory",
    Record = "hipEventRecord",
    WaitEvent = "hipStreamWaitEvent",
    Query = "hipEventQuery",
    Elapsed = "hipEventElapsedTime",
    LoadModule = "hipModuleLoadData",
    UnloadModule = "hipModuleUnload",
    Function = "hipModuleGetFunction",
    Launch = "hipModuleLaunchKernel",
    BeginCapture = "hipStreamBeginCapture",
    EndCapture = "hipStreamEndCapture",
    LaunchGraph = "hipGraphLaunch",
    DestroyGraph = "hipGraphExecDestroy",
}

impl Call {
    /// Returns the call with a function's name.
    pub fn from_name(name: &str) -> Option<Call> {
        Call::ALL.iter().copied().find(|call| call.name() == name && *call != Call::None)
    }

    /// Returns the call with an index; [`Call::None`] if the index is out of range.
    pub fn from_index(index: u8) -> Call {
        Call::ALL.get(usize::from(index)).copied().unwrap_or(Call::None)
    }
}

/// Returns the name of a code: the driver's, else HIP's, else "unknown code N".
pub fn code_name(driver: Option<&dyn Driver>, code: Code) -> String {
    let known = || CODES.iter().find(|(c, _)| *c == code).map(|(_, name)| (*name).to_string());
    let name = driver.and_then(|d| d.error_name(code)).or_else(known);
    name.unwrap_or_else(|| format!("unknown code {code}"))
}

/// Returns "hipErrorNoDevice (100)".
pub fn describe(driver: &dyn Driver, code: Code) -> String {
    format!("{} ({code})", code_name(Some(driver), code))
}

/// Creates the error of a call that returned a code.
pub(crate) fn driver_error(
    backend: &str,
    driver: &dyn Driver,
    phase: Phase,
    call: Call,
    code: Code,
) -> Error {
    Error::Driver {
        backend: backend.into(),
        phase,
        node: None,
        call: call.name(),
        code: i64::from(code),
        name: code_name(Some(driver), code),
    }
}

/// Returns true if the device must not be used after this error.
pub(crate) fn is_fatal(error: &Error) -> bool {
    match error {
        Error::Timeout { .. } | Error::DeviceLost { .. } => true,
        Error::Driver { code, .. } => FATAL.iter().any(|f| i64::from(*f) == *code),
        _ => false,
    }
}

/// Returns true for the code of a runtime that does not accept a code object for the device.
pub(crate) fn refuses_code(code: i64) -> bool {
    CODE_REFUSED.iter().any(|refused| i64::from(*refused) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stay_integers() {
        assert!(CODES.windows(2).all(|p| p[0].0 < p[1].0));
        assert_eq!(code_name(None, 209), "hipErrorNoBinaryForGpu");
        assert_eq!(code_name(None, 123_456), "unknown code 123456");
        let error = |code| Error::Driver {
            backend: "hip".into(),
            phase: Phase::Compute,
            node: None,
            call: "hipMalloc",
            code,
            name: String::new(),
        };
        assert!([98, 200, 209, 218, 303].iter().all(|code| refuses_code(*code)) && !refuses_code(301));
        assert!(is_fatal(&error(719)) && !is_fatal(&error(123_456)) && !is_fatal(&error(2)));
        assert_eq!(Call::from_index(Call::Launch as u8), Call::Launch);
        assert_eq!(Call::from_index(250), Call::None);
        assert_eq!(Call::from_name("hipFree"), Some(Call::Free));
        assert_eq!((Call::from_name("hipfree"), Call::from_name("")), (None, None));
    }
}
