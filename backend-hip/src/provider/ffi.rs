//! Code shared by the providers over C libraries: results, handles, arguments, and the functions with the
//! same signature in both.

use crate::driver::codes::{INVALID_VALUE, NOT_READY};
use crate::driver::{Arguments, Code, Reply};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Handle as a C pointer.
pub(super) type Handle = *mut c_void;

/// Maximum number of arguments of a kernel: operands and the parameter structure.
const MAX_ARGUMENTS: usize = 16;

/// Converts a code to a result.
pub(super) fn check(code: c_int) -> Reply<()> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Converts the result of an event query.
pub(super) fn is_complete(code: Code) -> Reply<bool> {
    match code {
        0 => Ok(true),
        NOT_READY => Ok(false),
        code => Err(code),
    }
}

/// Converts a handle to a C pointer.
pub(super) fn handle(value: u64) -> Handle {
    value as usize as Handle
}

/// Returns pointers to the arguments; a launch copies as many bytes from each as the code object declares. An
/// argument outside the segment is refused.
pub(super) fn argument_pointers(args: Arguments<'_>) -> Reply<[*mut c_void; MAX_ARGUMENTS]> {
    if args.offsets.len() > MAX_ARGUMENTS || args.offsets.iter().any(|&o| o as usize >= args.bytes.len()) {
        return Err(INVALID_VALUE);
    }
    let mut pointers = [null_mut::<c_void>(); MAX_ARGUMENTS];
    for (to, &offset) in pointers.iter_mut().zip(args.offsets) {
        *to = args.bytes[offset as usize..].as_ptr().cast_mut().cast();
    }
    Ok(pointers)
}

/// `hipStreamNonBlocking`, `CU_STREAM_NON_BLOCKING`: the stream does not wait for the NULL stream.
pub(super) const STREAM_NON_BLOCKING: u32 = 1;
/// `hipStreamCaptureModeRelaxed`, `CU_STREAM_CAPTURE_MODE_RELAXED`: other calls are allowed during capture.
pub(super) const CAPTURE_RELAXED: c_int = 2;
/// `hipEventDefault`, `CU_EVENT_DEFAULT`.
pub(super) const EVENT_DEFAULT: u32 = 0;
/// `hipEventDisableTiming`, `CU_EVENT_DISABLE_TIMING`.
pub(super) const EVENT_DISABLE_TIMING: u32 = 2;

/// Implements the methods of [`Driver`](crate::driver::Driver) for streams, events, modules and launches with
/// the functions of a table `symbols`, which differ in their names only.
macro_rules! same_calls {
    (
        streams $create_stream:ident $destroy_stream:ident,
        events $create_event:ident $destroy_event:ident $record:ident $query:ident $elapsed:ident,
        modules $unload:ident $function:ident $launch:ident,
        graphs $begin:ident $end:ident $instantiate:ident $run:ident $destroy_exec:ident $destroy_graph:ident
            $wait:ident $(,)?
    ) => {
        fn create_stream(&self) -> $crate::driver::Reply<$crate::driver::Stream> {
            let mut stream = std::ptr::null_mut();
            // SAFETY: writes one handle.
            check(unsafe { (self.symbols.$create_stream)(&mut stream, ffi::STREAM_NON_BLOCKING) })?;
            Ok($crate::driver::Stream(stream as usize as u64))
        }

        unsafe fn destroy_stream(&self, stream: $crate::driver::Stream) -> $crate::driver::Reply<()> {
            // SAFETY: the caller guarantees a live stream of `create_stream`.
            check(unsafe { (self.symbols.$destroy_stream)(handle(stream.0)) })
        }

        fn create_event(&self, timing: bool) -> $crate::driver::Reply<$crate::driver::Event> {
            let mut event = std::ptr::null_mut();
            let flags = if timing { ffi::EVENT_DEFAULT } else { ffi::EVENT_DISABLE_TIMING };
            // SAFETY: writes one handle.
            check(unsafe { (self.symbols.$create_event)(&mut event, flags) })?;
            Ok($crate::driver::Event(event as usize as u64))
        }

        unsafe fn destroy_event(&self, event: $crate::driver::Event) -> $crate::driver::Reply<()> {
            // SAFETY: the caller guarantees a live event.
            check(unsafe { (self.symbols.$destroy_event)(handle(event.0)) })
        }

        unsafe fn record(
            &self,
            event: $crate::driver::Event,
            stream: $crate::driver::Stream,
        ) -> $crate::driver::Reply<()> {
            // SAFETY: the caller guarantees a live event and a live stream.
            check(unsafe { (self.symbols.$record)(handle(event.0), handle(stream.0)) })
        }

        unsafe fn complete(&self, event: $crate::driver::Event) -> $crate::driver::Reply<bool> {
            // SAFETY: the caller guarantees a live event.
            ffi::is_complete(unsafe { (self.symbols.$query)(handle(event.0)) })
        }

        unsafe fn elapsed_ms(
            &self,
            from: $crate::driver::Event,
            to: $crate::driver::Event,
        ) -> $crate::driver::Reply<Option<f32>> {
            let Some(function) = self.symbols.$elapsed else { return Ok(None) };
            let mut ms = 0.0;
            // SAFETY: writes one float; the events are live (guaranteed by the caller).
            check(unsafe { function(&mut ms, handle(from.0), handle(to.0)) })?;
            Ok(Some(ms))
        }

        unsafe fn unload_module(&self, module: $crate::driver::Module) -> $crate::driver::Reply<()> {
            // SAFETY: the caller guarantees a loaded module.
            check(unsafe { (self.symbols.$unload)(handle(module.0)) })
        }

        unsafe fn function(
            &self,
            module: $crate::driver::Module,
            name: &std::ffi::CStr,
        ) -> $crate::driver::Reply<$crate::driver::Function> {
            let mut function = std::ptr::null_mut();
            // SAFETY: writes one handle; the caller guarantees a loaded module; the name is a C string.
            check(unsafe { (self.symbols.$function)(&mut function, handle(module.0), name.as_ptr()) })?;
            Ok($crate::driver::Function(function as usize as u64))
        }

        unsafe fn launch(
            &self,
            function: $crate::driver::Function,
            shape: $crate::driver::Shape,
            args: $crate::driver::Arguments<'_>,
            stream: $crate::driver::Stream,
        ) -> $crate::driver::Reply<()> {
            let mut pointers = ffi::argument_pointers(args)?;
            self.allow_lds(handle(function.0), shape.lds_bytes)?;
            let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
            // SAFETY: the caller guarantees a live function and stream, and arguments of the kernel's number
            // and sizes, so that the call reads only memory that the pointers point at. It does not write to
            // the arguments.
            check(unsafe {
                (self.symbols.$launch)(
                    handle(function.0),
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    shape.lds_bytes,
                    handle(stream.0),
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            })
        }

        fn has_graphs(&self) -> bool {
            let s = &self.symbols;
            let captures = s.$begin.is_some() && s.$end.is_some() && s.$instantiate.is_some();
            let runs = s.$run.is_some() && s.$destroy_exec.is_some() && s.$destroy_graph.is_some();
            captures && runs && self.captures_launches()
        }

        fn has_branches(&self) -> bool {
            self.symbols.$wait.is_some()
        }

        unsafe fn wait_event(
            &self,
            stream: $crate::driver::Stream,
            event: $crate::driver::Event,
        ) -> $crate::driver::Reply<()> {
            let function = self.symbols.$wait.ok_or($crate::driver::codes::NOT_SUPPORTED)?;
            // SAFETY: the caller guarantees a live stream and a live event.
            check(unsafe { function(handle(stream.0), handle(event.0), 0) })
        }

        unsafe fn begin_capture(&self, stream: $crate::driver::Stream) -> $crate::driver::Reply<()> {
            let function = self.symbols.$begin.ok_or($crate::driver::codes::NOT_SUPPORTED)?;
            // SAFETY: the caller guarantees a live stream that is not the NULL stream.
            check(unsafe { function(handle(stream.0), ffi::CAPTURE_RELAXED) })
        }

        unsafe fn end_capture(
            &self,
            stream: $crate::driver::Stream,
        ) -> $crate::driver::Reply<$crate::driver::LaunchGraph> {
            let missing = $crate::driver::codes::NOT_SUPPORTED;
            let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
            let end = self.symbols.$end.ok_or(missing)?;
            // SAFETY: writes one handle; the stream is live and capturing (guaranteed by the caller).
            check(unsafe { end(handle(stream.0), &mut graph) })?;
            let instantiate = self.symbols.$instantiate.ok_or(missing)?;
            // SAFETY: writes one handle; the graph was just created.
            let made = check(unsafe { instantiate(&mut exec, graph, 0) });
            if let Some(destroy) = self.symbols.$destroy_graph {
                // SAFETY: the graph is live and no longer needed: the executable graph is independent of it.
                check(unsafe { destroy(graph) })?;
            }
            made.map(|()| $crate::driver::LaunchGraph(exec as usize as u64))
        }

        unsafe fn launch_graph(
            &self,
            graph: $crate::driver::LaunchGraph,
            stream: $crate::driver::Stream,
        ) -> $crate::driver::Reply<()> {
            let function = self.symbols.$run.ok_or($crate::driver::codes::NOT_SUPPORTED)?;
            // SAFETY: the caller guarantees a live graph of `end_capture` and a live stream.
            check(unsafe { function(handle(graph.0), handle(stream.0)) })
        }

        unsafe fn destroy_graph(&self, graph: $crate::driver::LaunchGraph) -> $crate::driver::Reply<()> {
            let function = self.symbols.$destroy_exec.ok_or($crate::driver::codes::NOT_SUPPORTED)?;
            // SAFETY: the caller guarantees a live graph of `end_capture`, which is not used after this.
            check(unsafe { function(handle(graph.0)) })
        }
    };
}

pub(super) use same_calls;
